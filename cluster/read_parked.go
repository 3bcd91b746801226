// This file holds the reads that wait for an entry: see leaderClock.instant.
package cluster

import (
	"sync"
	"time"
)

// parked are units of reads that named an instant which there was not yet. They run again when an entry was answered.
type parked struct {
	mu    sync.Mutex
	units []*unit
}

// park keeps a unit that the read loop has taken under a leadership, and has an entry proposed where none is under way.
func (n *Node) park(lead *leadership, u *unit) {
	n.parked.mu.Lock()
	n.parked.units = append(n.parked.units, u)
	n.parked.mu.Unlock()
	// Behind that: an entry that is under way, and a change of leader that is not noticed yet, find the unit when their time comes.
	if n.route.Load().lead != lead {
		n.unpark(time.Time{})
		return
	}
	// inFlight would not do: the proposer counts an entry before it looks whether there is anything for one.
	if n.underWay.empty() {
		n.tickDue.Store(true)
		kick(n.writes.wake)
	}
}

// unpark has the parked units go round again, but for those whose deadline is before limit.
func (n *Node) unpark(limit time.Time) {
	n.parked.mu.Lock()
	units := n.parked.units
	n.parked.units = nil
	n.parked.mu.Unlock()
	if len(units) == 0 {
		return
	}
	var again, late []*unit
	for _, u := range units {
		if u.deadline.Before(limit) {
			late = append(late, u)
		} else {
			again = append(again, u)
		}
	}
	n.reads.pushBack(again, false)
	n.refuse(late)
}
