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

// connection returns the connection that the arguments name. ok is false if they name none.
func (c *systemCall) connection() (of leases.Connection, ok bool) {
	of.Node = string(c.args[0])
	if len(c.args) == 2 {
		id, isInt := commands.ParseInt(c.args[1])
		of.ID, ok = uint64(id), isInt && id > 0
	}
	return of, ok && of.Node != ""
}

func (c *systemCall) endHolder() error  { return c.changeHolder(c.env.EndHolder) }
func (c *systemCall) keepHolder() error { return c.changeHolder(c.env.KeepHolder) }

// changeHolder changes the leases of a connection, and replies 1 if there is more to do.
func (c *systemCall) changeHolder(change func(leases.Connection) (more bool)) error {
	of, ok := c.connection()
	if !ok {
		return commands.ErrNoSystemRequest
	}
	c.repliesMore(change(of))
	return nil
}

// dropHolders changes those of all connections of a node, or of those of smaller ids than one.
func (c *systemCall) dropHolders() error {
	of, ok := c.connection()
	if all := len(c.args) == 1; !ok && (!all || of.Node == "") {
		return commands.ErrNoSystemRequest
	} else if all && of.Node == c.m.waiting.node {
		c.m.events.list = append(c.m.events.list, commands.Event{Kind: commands.HoldersDropped})
	}
	c.repliesMore(c.env.DropHolders(of.Node, of.ID))
	return nil
}

func (c *systemCall) repliesMore(more bool) {
	if more {
		c.resp.Int(1)
	} else {
		c.resp.Int(0)
	}
}

// HolderNodes returns the ids of the nodes with connections that have leases and are there, as far
// as known.
func (m *Machine) HolderNodes() []string { return m.leases.Nodes() }
