// This file holds the clocks: the injectable Clock, the leader's cluster clock, and the tracker that knows when the
// newest stamped entry arrived in this node's log.
package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Clock is where a node reads time. Leases hang on Monotonic alone; Wall is passed along to the machine.
type Clock interface {
	// Monotonic returns the time since some fixed point; it never goes back and no one can set it.
	Monotonic() time.Duration
	// Wall returns the time of day, which may jump.
	Wall() time.Time
}

// SystemClock is the machine's own clock.
type SystemClock struct{}

var processStart = time.Now()

// Monotonic returns the monotonic time since this process started.
func (SystemClock) Monotonic() time.Duration { return time.Since(processStart) }

// Wall returns the time of day.
func (SystemClock) Wall() time.Time { return time.Now() }

// leadership is one term of this node as leader whose barrier has passed. It is immutable.
type leadership struct {
	term   uint64
	since  uint64 // the index of its barrier
	mark   []byte // the mark of entries stamped under this leadership
	baseMs int64  // cluster clock at base
	base   time.Duration
	clock  Clock
}

// nowMs returns the cluster clock: base stamp plus monotonic time since. It never decreases within a leadership.
func (l *leadership) nowMs() int64 {
	elapsed := max(l.clock.Monotonic()-l.base, 0)
	return l.baseMs + int64(elapsed/time.Millisecond)
}

// arrivals remembers the stamp of the newest stamped entry in this node's log and the local monotonic time at which it
// arrived. The entry was stamped before it arrived, so stamp + (now − arrival) never exceeds the clock of the leader
// that stamped it. It has to be the newest: leaders in between may have lagged, and an older entry's arrival could
// put this clock ahead of theirs.
type arrivals struct {
	mu         sync.Mutex
	clock      Clock
	stampMs    int64
	arrived    time.Duration
	entryClock func(data []byte) (clockMs int64, ok bool)
}

// stampOf returns the stamp of a log entry that counts: a command that is not void.
func (a *arrivals) stampOf(l *raft.Log) (int64, bool) {
	if l.Type != raft.LogCommand || isVoid(l) {
		return 0, false
	}
	return a.entryClock(l.Data)
}

// note records the newest stamped entry among logs, which were just stored.
func (a *arrivals) note(logs []*raft.Log) {
	for i := len(logs) - 1; i >= 0; i-- {
		if stampMs, ok := a.stampOf(logs[i]); ok {
			a.reset(stampMs)
			return
		}
	}
}

// reset records that the newest stamp is stampMs and that it arrived no later than now.
func (a *arrivals) reset(stampMs int64) {
	now := a.clock.Monotonic()
	a.mu.Lock()
	a.stampMs, a.arrived = stampMs, now
	a.mu.Unlock()
}

// raise is reset for a snapshot that was restored, unless the log holds something newer.
func (a *arrivals) raise(stampMs int64) {
	a.mu.Lock()
	newer := stampMs > a.stampMs
	a.mu.Unlock()
	if newer {
		a.reset(stampMs)
	}
}

// base returns where a new leadership starts its clock, given the machine's clock after the barrier. All of the log
// is applied then, so the newest stamp is the machine's; when it is not (nothing was stored since a restart, or a
// snapshot replaced the log), the clock resumes from the machine's stamp as of now, which can only lag.
func (a *arrivals) base(appliedMs int64) (baseMs int64, at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stampMs == appliedMs {
		return appliedMs, a.arrived
	}
	return appliedMs, a.clock.Monotonic()
}

// estimate returns what a node that does not lead believes the cluster clock to be; it is for showing only.
func (a *arrivals) estimate(appliedMs int64) int64 {
	now := a.clock.Monotonic()
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(appliedMs, a.stampMs+int64(max(now-a.arrived, 0)/time.Millisecond))
}
