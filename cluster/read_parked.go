// Reads that wait for an entry: see clock.Leader.

package cluster

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// parked holds read calls that named an instant that does not exist yet. They run again after the
// next entry is answered.
type parked struct {
	mu    lockorder.Mutex
	calls []*call
}

// park keeps a call that the read loop took under lead, and has an entry proposed if none is in
// flight.
func (n *Node) park(lead *leadership, c *call) {
	n.parked.mu.Lock()
	n.parked.calls = append(n.parked.calls, c)
	n.parked.mu.Unlock()
	// After the append: a concurrent completion or change of leader then finds the call.
	if n.route.Load().lead != lead {
		n.unpark(time.Time{})
		return
	}
	// Not inFlight: the proposer counts an entry before it knows whether there is anything to
	// propose.
	if n.pendingEntries.empty() {
		n.tickDue.Store(true)
		kick(n.writes.wake)
	}
}

// unpark reroutes the parked calls, and refuses those whose deadline is before limit.
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
