// The Clock interface, and the record of when the newest stamped entry arrived in this node's log.

package clock

import (
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

// Clock is how a node reads time. Leases depend on Monotonic alone; Wall is passed on to the
// machine.
type Clock interface {
	// Monotonic returns the time since some fixed point. It never goes back and cannot be set.
	Monotonic() time.Duration
	// Wall returns the time of day, which may jump.
	Wall() time.Time
}

// Arrivals remembers the stamp of the newest stamped entry in this node's log and the local
// monotonic time of its arrival. The entry was stamped before it arrived, so stamp + (now −
// arrival) never exceeds the clock of the leader that stamped it. It must be the newest: earlier
// leaders may have lagged, and an older entry's arrival could put this clock ahead of theirs.
type Arrivals struct {
	mu      lockorder.Mutex
	clock   Clock
	stamp   Stamp
	arrived time.Duration
	live    bool // an entry arrived since the process started: the cluster's clock was running
}

// NewArrivals returns a record by a node's clock, without any stamp.
func NewArrivals(clock Clock) *Arrivals { return &Arrivals{clock: clock} }

// Note records the stamp of an entry that was just stored, the newest.
func (a *Arrivals) Note(s Stamp) { a.set(s, true) }

// Reset records that the newest stamp is s, arrived no later than now: the log and snapshots do not
// record arrivals.
func (a *Arrivals) Reset(s Stamp) { a.set(s, false) }

func (a *Arrivals) set(s Stamp, live bool) {
	now := a.clock.Monotonic()
	a.mu.Lock()
	a.stamp, a.arrived, a.live = s, now, a.live || live
	a.mu.Unlock()
}

// Running reports whether an entry arrived since the process started.
func (a *Arrivals) Running() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live
}

// Raise is Reset for a restored snapshot, unless the log holds something newer.
func (a *Arrivals) Raise(s Stamp) {
	a.mu.Lock()
	newer := s.ClockMs > a.stamp.ClockMs
	a.mu.Unlock()
	if newer {
		a.Reset(s)
	}
}

// origin is where a leader's clock starts.
type origin struct {
	stamp Stamp         // the newest
	at    time.Duration // local monotonic time of that stamp
	live  bool          // the cluster's clock ran since, as far as this node knows
}

// base returns where a new leadership starts its clock, given the machine's stamp after the
// barrier. Everything in the log is applied then, so the newest stamp is the machine's. If it is
// not (nothing was stored since a restart, or a snapshot replaced the log), the clock resumes from
// the machine's stamp as of now, which can only lag.
func (a *Arrivals) base(applied Stamp) origin {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stamp.ClockMs != applied.ClockMs {
		return origin{applied, a.clock.Monotonic(), false}
	}
	if a.stamp.WallUs != 0 {
		applied.WallUs = a.stamp.WallUs
	}
	return origin{applied, a.arrived, a.live}
}

// Lead returns the clock of a leadership that begins, given the machine's stamp after the barrier.
// live: the cluster's clock ran since the newest stamp, as far as this node knows.
func (a *Arrivals) Lead(applied Stamp) (c *Leader, live bool) {
	from := a.base(applied)
	return newLeader(a.clock, from), from.live
}

// Estimate returns what a node that does not lead believes the cluster clock to be. It is for
// display only.
func (a *Arrivals) Estimate(applied Stamp) Reading {
	now := a.clock.Monotonic()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stamp.ClockMs > 0 {
		stampUs := a.stamp.ClockMs*usPerMs + max(now-a.arrived, 0).Microseconds()
		if stampUs >= applied.ClockMs*usPerMs && a.stamp.WallUs != 0 {
			return Reading{stampUs, a.stamp.offsetMs()}
		}
		if applied.WallUs != 0 {
			applied.WallUs += max(stampUs-applied.ClockMs*usPerMs, 0)
		}
		applied.ClockMs = max(applied.ClockMs, stampUs/usPerMs)
	}
	if applied.WallUs == 0 {
		return readingOf(applied.ClockMs, a.clock.Wall())
	}
	return Reading{applied.ClockMs * usPerMs, applied.offsetMs()}
}
