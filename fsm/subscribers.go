// Who subscribes: the counts that the nodes tell. They are part of the state, so that all nodes and
// scripts see the same (docs/adr/0042).

package fsm

import (
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/subscriptions"
)

// countSubscribers replies 0, or the era of the node's counts, see commands.SystemSubscribers.
func (c *systemCall) countSubscribers() error {
	m, args := c.m, c.args
	own, known := commands.ParseInt(args[1])
	sequence, numbered := commands.ParseInt(args[2])
	if !known || !numbered || len(args)%2 == 0 {
		return commands.ErrNoSystemRequest
	}
	changes := make([]subscriptions.Change, 0, len(args)/2)
	for i := 3; i < len(args); i += 2 {
		count, ok := commands.ParseInt(args[i+1])
		if !ok || count < 0 || len(args[i]) == 0 {
			return commands.ErrNoSystemRequest
		}
		kind := strings.IndexByte(subscriptions.Letters, args[i][0])
		if kind < 0 {
			return commands.ErrNoSystemRequest
		}
		changes = append(changes, subscriptions.Change{Kind: subscriptions.Kind(kind),
			Name: string(args[i][1:]), Count: count})
	}
	id := string(args[0])
	taken, work := m.subscribers.Tell(id, uint64(own), uint64(sequence), changes)
	c.env.Work += work
	era := m.subscribers.Era(id)
	switch {
	case taken:
		c.resp.Int(0)
	case era != 0:
		c.resp.Int(int64(era))
	default: // it has none yet, and this is no error
		return c.dropSubscribers()
	}
	return nil
}

// dropSubscribers forgets the subscribers of a node, and tells it if it is this one. It replies the
// era of its counts from now on.
func (c *systemCall) dropSubscribers() error {
	m, id := c.m, string(c.args[0])
	m.subscribers.Drop(id, m.index)
	if id == m.waiting.node {
		m.events.list = append(m.events.list, commands.Event{Kind: commands.SubscribersDropped,
			Wait: m.index})
	}
	c.resp.Int(int64(m.index))
	return nil
}

// SubscribedNodes returns the ids of the nodes with subscribers.
func (m *Machine) SubscribedNodes() []string { return m.subscribers.Nodes() }
