// This file holds the reads that wait for an entry: see leaderClock.instant.
package cluster

import (
	"sync"
	"time"
)

// parked are calls of reads that named an instant which there was not yet. They run again when an entry was answered.
type parked struct {
	mu    sync.Mutex
	calls []*call
}

// park keeps a call that the read loop has taken under a leadership, and has an entry proposed where none is under way.
func (n *Node) park(lead *leadership, c *call) {
	n.parked.mu.Lock()
	n.parked.calls = append(n.parked.calls, c)
	n.parked.mu.Unlock()
	// Behind that: an entry that is under way, and a change of leader that is not noticed yet, find the call when their time comes.
	if n.route.Load().lead != lead {
		n.unpark(time.Time{})
		return
	}
	// inFlight would not do: the proposer counts an entry before it looks whether there is anything for one.
	if n.pendingEntries.empty() {
		n.tickDue.Store(true)
		kick(n.writes.wake)
	}
}

// unpark has the parked calls go round again, but for those whose deadline is before limit.
func (n *Node) unpark(limit time.Time) {
	n.parked.mu.Lock()
	calls := n.parked.calls
	n.parked.calls = nil
	n.parked.mu.Unlock()
	if len(calls) == 0 {
		return
	}
	var again, late []*call
	for _, c := range calls {
		if c.deadline.Before(limit) {
			late = append(late, c)
		} else {
			again = append(again, c)
		}
	}
	n.reads.requeue(again, false)
	n.failOverdue(late)
}
