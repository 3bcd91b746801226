// This file holds the tests of what a node says of why requests make no progress.

package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A node says what is so: that its disk hangs only while a write to the log is under way, and not
// when it is short of processor time.
func TestNoProgressSaysWhatIsSo(t *testing.T) {
	simulated(t, func(t *testing.T) {
		n := alone(t, newToy())
		says := func(want string) {
			t.Helper()
			if err := n.noProgressError(); !errors.Is(err, ErrNotRun) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		says("no majority answers")
		n.logs.writing.begin(nil)
		says("no majority answers") // for a moment only
		n.logs.writing.since.Add(-int64(time.Minute))
		says("its disk hangs: a log write has taken 1m0s so far")
		n.noteLate(leaderTick+lateTime, leaderTick)
		says("its disk hangs")
		n.noteLate(leaderTick+lateTime+1, leaderTick)
		says("this node is short of processor time")
		n.starved.Add(-int64(n.cfg.LeaderWait + n.cfg.ReplyWait))
		says("its disk hangs")
		n.logs.writing.end()

		late := newLocalCall([]byte("g"), 1, time.Now())
		heavy := newLocalCall([]byte("g"), 1, time.Now())
		heavy.heavy = true
		n.failOverdue([]*call{late, heavy})
		if !errors.Is(late.err, ErrNotRun) || errors.Is(late.err, ErrBusy) {
			t.Errorf("a light batch: %v", late.err)
		}
		if !errors.Is(heavy.err, ErrBusy) {
			t.Errorf("a batch that waited for its turn: %v", heavy.err)
		}
	})
}
