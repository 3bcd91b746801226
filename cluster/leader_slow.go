// A leader whose disk is slow hands over to a voter whose disk is not.
//
// A write waits for the leader's disk and for those of enough others, so a slow follower costs
// nothing beside quick ones, and a slow leader costs each write. Members tell how long their
// newest writes took. The same entries are written by all, so what one takes much longer for is its
// disk, or that it does not run.

package cluster

import (
	"sync/atomic"
	"time"
)

const (
	// slowWrite is what a write of a slow disk takes at least, besides what its bytes take.
	slowWrite = 10 * time.Millisecond
	// slowTimes is how many times longer than others a slow disk takes.
	slowTimes = 4
	// slowFor is how much time a leader spends in slow writes, with no quick one in between,
	// before it hands over. One write counts for half of it: the process may have been stopped.
	slowFor = time.Second
	// paceOf is of how many of the newest writes the pace is about the mean.
	paceOf = 8
)

// pace is how long a node's newest writes took. One goroutine at a time notes them.
type pace struct {
	mean atomic.Int64 // ns
	slow atomic.Int64 // ns spent in writes since the newest quick one
}

func (p *pace) note(took time.Duration) {
	mean := p.mean.Load()
	if mean == 0 {
		mean = int64(took)
	}
	p.mean.Store(mean + (int64(took)-mean)/paceOf)
	if took < slowWrite {
		p.slow.Store(0)
	} else {
		p.slow.Add(int64(min(took, slowFor/2)))
	}
}

// slower reports whether one who takes so long for a write is slow, beside another who is not.
func slower(one, other time.Duration) bool {
	return other > 0 && one >= slowWrite && one >= slowTimes*other
}

// pace returns how long the newest writes of this node took, and whether none of them has been
// quick for so long that others should lead.
func (n *Node) pace() (mean time.Duration, slow bool) {
	w := &n.logs.writing
	running := w.beyondBytes(w.running())
	mean = max(time.Duration(w.pace.mean.Load()), running)
	return mean, time.Duration(w.pace.slow.Load())+min(running, slowFor/2) >= slowFor
}
