// The Clock interface, and the record of when the newest stamped entry arrived in this node's log.

package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Clock is how a node reads time. Leases depend on Monotonic alone; Wall is passed on to the
// machine.
type Clock interface {
	// Monotonic returns the time since some fixed point. It never goes back and cannot be set.
	Monotonic() time.Duration
	// Wall returns the time of day, which may jump.
	Wall() time.Time
}

// leadership is one term of this node as leader, after its barrier.
type leadership struct {
	term  uint64
	since uint64 // index of its barrier
	mark  []byte // of entries stamped under this leadership
	*leaderClock
	// wallsOpen: the cluster's clock stood still, and wall clocks of voters that are not known yet
	// may say where the time of day is; the route loop's.
	wallsOpen bool
}

// arrivals remembers the stamp of the newest stamped entry in this node's log and the local
// monotonic time of its arrival. The entry was stamped before it arrived, so stamp + (now −
// arrival) never exceeds the clock of the leader that stamped it. It must be the newest: earlier
// leaders may have lagged, and an older entry's arrival could put this clock ahead of theirs.
type arrivals struct {
	mu         sync.Mutex
	clock      Clock
	stamp      stamp
	arrived    time.Duration
	live       bool // an entry arrived since the process started: the cluster's clock was running
	entryClock func(data []byte) (clockMs, wallUs int64, ok bool)
}

// stampOf returns the stamp of a command entry that is not void.
func (a *arrivals) stampOf(l *raft.Log) (s stamp, ok bool) {
	if l.Type != raft.LogCommand || isVoid(l) {
		return s, false
	}
	s.clockMs, s.wallUs, ok = a.entryClock(l.Data)
	return s, ok
}

// note records the newest stamped entry among logs, which were just stored.
func (a *arrivals) note(logs []*raft.Log) {
	for i := len(logs) - 1; i >= 0; i-- {
		if s, ok := a.stampOf(logs[i]); ok {
			a.set(s, true)
			return
		}
	}
}

// reset records that the newest stamp is s, arrived no later than now: the log and snapshots do not
// record arrivals.
func (a *arrivals) reset(s stamp) { a.set(s, false) }

func (a *arrivals) set(s stamp, live bool) {
	now := a.clock.Monotonic()
	a.mu.Lock()
	a.stamp, a.arrived, a.live = s, now, a.live || live
	a.mu.Unlock()
}

// running reports whether an entry arrived since the process started.
func (a *arrivals) running() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live
}

// raise is reset for a restored snapshot, unless the log holds something newer.
func (a *arrivals) raise(s stamp) {
	a.mu.Lock()
	newer := s.clockMs > a.stamp.clockMs
	a.mu.Unlock()
	if newer {
		a.reset(s)
	}
}

// origin is where a leader's clock starts.
type origin struct {
	stamp stamp         // the newest
	at    time.Duration // local monotonic time of that stamp
	live  bool          // the cluster's clock ran since, as far as this node knows
}

// base returns where a new leadership starts its clock, given the machine's stamp after the
// barrier. Everything in the log is applied then, so the newest stamp is the machine's. If it is
// not (nothing was stored since a restart, or a snapshot replaced the log), the clock resumes from
// the machine's stamp as of now, which can only lag.
func (a *arrivals) base(applied stamp) origin {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stamp.clockMs != applied.clockMs {
		return origin{applied, a.clock.Monotonic(), false}
	}
	if a.stamp.wallUs != 0 {
		applied.wallUs = a.stamp.wallUs
	}
	return origin{applied, a.arrived, a.live}
}

// estimate returns what a node that does not lead believes the cluster clock to be. It is for
// display only.
func (a *arrivals) estimate(applied stamp) reading {
	now := a.clock.Monotonic()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stamp.clockMs > 0 {
		stampUs := a.stamp.clockMs*usPerMs + max(now-a.arrived, 0).Microseconds()
		if stampUs >= applied.clockMs*usPerMs && a.stamp.wallUs != 0 {
			return reading{stampUs, a.stamp.offsetMs()}
		}
		if applied.wallUs != 0 {
			applied.wallUs += max(stampUs-applied.clockMs*usPerMs, 0)
		}
		applied.clockMs = max(applied.clockMs, stampUs/usPerMs)
	}
	if applied.wallUs == 0 {
		return readingOf(applied.clockMs, a.clock.Wall())
	}
	return reading{applied.clockMs * usPerMs, applied.offsetMs()}
}
