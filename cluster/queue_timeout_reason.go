// This file holds what a node knows of why requests make no progress.
package cluster

import (
	"fmt"
	"time"
)

const (
	// hangTime is how long a write to the log is under way before the disk counts as hanging.
	hangTime = time.Second
	// lateTime is how much later than its timer the steering loop runs before the node counts as short of processor time.
	lateTime = 500 * time.Millisecond
)

// noteLate takes in how long the steering loop slept that wanted to be woken after pace.
func (n *Node) noteLate(slept, pace time.Duration) {
	if slept > pace+lateTime {
		n.starved.Store(time.Now().UnixNano())
	}
}

// isStarved reports whether this node was short of processor time within the time that a request waits for progress.
func (n *Node) isStarved() bool {
	at := n.starved.Load()
	return at != 0 && time.Now().UnixNano()-at < int64(n.cfg.LeaderWait+n.cfg.ReplyWait)
}

// noProgressError is the outcome of requests that have waited too long and did not run. It says what is so, as far as this node knows.
func (n *Node) noProgressError() error {
	leads := n.leads()
	storing, commit := n.logs.writing.running(), n.raft.CommitIndex()
	switch {
	case n.isStarved():
		return notRun("no progress: this node is short of processor time")
	case storing > hangTime && leads:
		return notRun(fmt.Sprintf("the leader makes no progress: its disk hangs, a write to the log has taken %v so far", storing.Round(time.Second)))
	case !leads:
		return notRun("the leader makes no progress, or does not answer")
	case n.applied() < commit:
		return notRun(fmt.Sprintf("the leader makes no progress: it has yet to apply %d entries", commit-n.applied()))
	default:
		return notRun("the leader makes no progress: no majority answers it")
	}
}
