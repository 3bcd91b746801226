// Why requests make no progress, as far as this node knows.

package cluster

import (
	"fmt"
	"time"
)

const (
	// hangTime is how long one log write may take before the disk counts as hanging.
	hangTime = time.Second
	// lateTime is how late the route loop's timer may fire before the node counts as short of
	// processor time.
	lateTime = 500 * time.Millisecond
)

// noteLate records how long the route loop slept when it asked for pace.
func (n *Node) noteLate(slept, pace time.Duration) {
	if slept > pace+lateTime {
		n.starved.Store(time.Now().UnixNano())
	}
}

// isStarved reports whether this node was short of processor time while a current request may have
// waited.
func (n *Node) isStarved() bool {
	at := n.starved.Load()
	return at != 0 && time.Now().UnixNano()-at < int64(n.cfg.LeaderWait+n.cfg.ReplyWait)
}

// noProgressError is the outcome of requests that waited too long and did not run. It names the
// likeliest reason.
func (n *Node) noProgressError() error {
	leads := n.leads()
	storing, commit := n.logs.writing.running(), n.raft.CommitIndex()
	switch {
	case n.isStarved():
		return notRun("no progress: this node is short of processor time")
	case storing > hangTime && leads:
		return notRun(
			fmt.Sprintf(
				"the leader makes no progress: its disk hangs: a log write has taken %v so far",
				storing.Round(time.Second)))
	case !leads:
		return notRun("the leader makes no progress or does not answer")
	case n.applied() < commit:
		return notRun(fmt.Sprintf("the leader makes no progress: it has yet to apply %d entries",
			commit-n.applied()))
	default:
		return notRun("the leader makes no progress: no majority answers it")
	}
}
