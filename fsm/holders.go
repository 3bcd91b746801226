// The connections that hold leases: nodes say which of theirs have closed, the leader which nodes
// it does not reach. Leases themselves are changed by commands (docs/adr/0064).

package fsm

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/leases"
)

// entryLeases is how many leases that have ended an entry drops at most, and after entryItems of
// their keys none. leaseDropped is the work of one, in units of commands.Env.Work, besides that of
// its keys.
const (
	entryLeases  = 256
	entryItems   = 4096
	leaseDropped = 64
)

// changeHolders changes the leases of connections, and returns 1 if there is more to do. See
// commands.SettingEndHolder.
func (m *Machine) changeHolders(
	env *commands.Env, name string, words [][]byte,
) (more int64, err error) {
	of := leases.Connection{}
	if len(words) > 0 {
		of.Node = string(words[0])
	}
	if name == commands.SettingDropHolders && len(words) == 1 && of.Node != "" {
		again := env.DropHolders(of.Node, 0)
		if of.Node == m.waiting.node {
			m.events.list = append(m.events.list, commands.Event{Kind: commands.HoldersDropped})
		}
		return number(again), nil
	}
	if len(words) != 2 || of.Node == "" {
		return 0, commands.ErrNoSetting
	}
	id, ok := commands.ParseInt(words[1])
	if of.ID = uint64(id); !ok || id <= 0 {
		return 0, commands.ErrNoSetting
	}
	switch name {
	case commands.SettingDropHolders:
		return number(env.DropHolders(of.Node, of.ID)), nil
	case commands.SettingEndHolder:
		return number(env.EndHolder(of)), nil
	}
	return number(env.KeepHolder(of)), nil
}

func number(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// HolderNodes returns the ids of the nodes with connections that have leases and are there, as far
// as known.
func (m *Machine) HolderNodes() []string { return m.leases.Nodes() }
