// Who subscribes: the counts that the nodes tell. They are part of the state, so that all nodes and
// scripts see the same (docs/adr/0042).

package fsm

import (
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/subscriptions"
)

// numberReply makes a change of what nodes have, and returns the reply: an era, see
// commands.SettingSubscribers, or an id, see commands.SettingClientIDs. ok is false if q is none.
func (m *Machine) numberReply(
	env *commands.Env, q *commands.Request,
) (n int64, ok bool, err error) {
	words := q.Cmds[0][1:]
	switch name := string(q.Cmds[0][0]); {
	case m.level < commands.LevelSecond:
		return 0, false, nil
	case name == commands.SettingEndHolder || name == commands.SettingKeepHolder ||
		name == commands.SettingDropHolders:
		n, err = m.changeHolders(env, name, words)
		return n, true, err
	case name == commands.SettingDropSubscribers && len(words) == 1:
		m.dropSubscribers(string(words[0]))
		return int64(m.index), true, nil
	case name == commands.SettingSubscribers && len(words) >= 3:
		n, err = m.countSubscribers(env, words)
		return n, true, err
	case name == commands.SettingClientIDs && len(words) == 0:
		m.idBlocks++
		return int64(commands.FirstClientID + (m.idBlocks-1)*commands.ClientIDBlock), true, nil
	}
	return 0, false, nil
}

func (m *Machine) countSubscribers(env *commands.Env, words [][]byte) (era int64, err error) {
	own, known := commands.ParseInt(words[1])
	sequence, numbered := commands.ParseInt(words[2])
	if !known || !numbered || len(words)%2 == 0 {
		return 0, commands.ErrNoSetting
	}
	changes := make([]subscriptions.Change, 0, len(words)/2)
	for i := 3; i < len(words); i += 2 {
		count, ok := commands.ParseInt(words[i+1])
		if !ok || count < 0 || len(words[i]) == 0 {
			return 0, commands.ErrNoSetting
		}
		kind := strings.IndexByte(subscriptions.Letters, words[i][0])
		if kind < 0 {
			return 0, commands.ErrNoSetting
		}
		changes = append(changes, subscriptions.Change{Kind: subscriptions.Kind(kind),
			Name: string(words[i][1:]), Count: count})
	}
	id := string(words[0])
	taken, work := m.subscribers.Tell(id, uint64(own), uint64(sequence), changes)
	env.Work += work
	switch era := m.subscribers.Era(id); {
	case taken:
		return 0, nil
	case era != 0:
		return int64(era), nil
	}
	m.dropSubscribers(id) // it has none yet, and this is no error
	return int64(m.index), nil
}

// dropSubscribers forgets the subscribers of a node, and tells it if it is this one.
func (m *Machine) dropSubscribers(id string) {
	m.subscribers.Drop(id, m.index)
	if id == m.waiting.node {
		m.events.list = append(m.events.list, commands.Event{Kind: commands.SubscribersDropped,
			Wait: m.index})
	}
}

// SubscribedNodes returns the ids of the nodes with subscribers.
func (m *Machine) SubscribedNodes() []string { return m.subscribers.Nodes() }
