// The leader's clock: the cluster clock, the time of day beside it, and the instants that reads
// name. See docs/adr/0016-the-time-of-day.md.

package clock

import (
	"slices"
	"time"

	"github.com/coordd/coordd/internal/lockorder"
)

const usPerMs = 1000

// Stamp is an entry's time: the cluster clock, and the time of day in µs since 1970, 0 if unknown.
type Stamp struct{ ClockMs, WallUs int64 }

// offsetMs is how far the time of day is ahead of the cluster clock.
func (s Stamp) offsetMs() int64 { return floorDiv(s.WallUs, usPerMs) - s.ClockMs }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Reading is a reading of the cluster clock with its time of day. The two are whole milliseconds
// apart, so while that offset is constant, converting there and back yields the same value at any
// fraction of a millisecond.
type Reading struct{ clockUs, offsetMs int64 }

// ClockMs returns the cluster clock, in ms.
func (r Reading) ClockMs() int64 { return r.clockUs / usPerMs }

// WallUs returns the time of day, in µs since 1970.
func (r Reading) WallUs() int64 { return r.clockUs + r.offsetMs*usPerMs }

// readingOf combines a cluster clock with a wall clock.
func readingOf(clockMs int64, wall time.Time) Reading {
	return Reading{clockMs * usPerMs, wall.UnixMilli() - clockMs}
}

// How the time of day follows the wall clock of the leader, or of a majority that disagrees.
const (
	// deadbandMs is how far they may diverge before the time of day follows. Wall clocks kept by
	// NTP are much closer to each other, and a node's clocks, which differ in rate by some 20 µs a
	// second, take over an hour to diverge this far.
	deadbandMs = 100
	// aheadEveryUs is the time in which it gains at most 1 ms on the cluster clock: 500 parts in a
	// million, as much as quartz clocks and Linux's own slewing differ by. A window that a script
	// counts by TIME ends early by that much.
	aheadEveryUs = 2_000_000
	// behindEveryUs is the time in which it loses at most 1 ms on the cluster clock. That lengthens
	// windows, which harms less.
	behindEveryUs = 200_000
)

// Reads that name an instant.
const (
	// readRoomUs is how far before the newest possible instant a read may name one, which leaves
	// room for others while an entry is in flight.
	readRoomUs = 1000
	// readAheadUs is how far past the newest applied stamp reads may name instants. A new leader
	// names none until it is that far past the newest stamp in its log, however much its clock lags
	// the old leader's. It is also how far behind the clock instants may be.
	readAheadUs = 20_000
)

// Leader is the clock of one leadership. It is safe for concurrent use.
type Leader struct {
	clock  Clock
	base   time.Duration // local monotonic time at which the cluster clock was at least baseUs
	baseUs int64

	mu         lockorder.Mutex
	offsetMs   int64 // how far the time of day is ahead of the cluster clock
	shiftMs    int64 // what requests see is ahead of that time of day by
	steerMs    int64 // what the time of day follows is ahead of this node's wall clock by
	slewing    bool
	ahead      bool    // slewing: the wall clock is ahead
	slewedUs   int64   // cluster clock up to which the offset has followed the wall clock
	stampedUs  int64   // time of day of the newest stamp
	readUs     int64   // newest instant that a read may have named
	inFlightUs []int64 // stamps of entries without an outcome
}

func newLeader(clock Clock, from origin) *Leader {
	c := &Leader{clock: clock, base: from.at, baseUs: from.stamp.ClockMs * usPerMs,
		stampedUs: from.stamp.WallUs}
	if from.stamp.WallUs != 0 {
		c.readUs = from.stamp.WallUs + readAheadUs // by reads of earlier leaders
	}
	if from.stamp.WallUs != 0 {
		c.offsetMs = from.stamp.offsetMs()
	} else {
		c.offsetMs = c.wallOffsetMs(c.NowMs())
	}
	return c
}

// wallOffsetMs is the offset at which requests see the time of this node's wall clock.
func (c *Leader) wallOffsetMs(nowMs int64) int64 {
	return readingOf(nowMs, c.clock.Wall()).offsetMs - c.shiftMs
}

// SetShift notes that an administrator has set the time of day that requests see.
func (c *Leader) SetShift(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shiftMs = ms
}

// Steer has the time of day follow a majority of the voters' wall clocks, given how far some of
// them are ahead of this node's.
func (c *Leader) Steer(ahead []int64, voters int) {
	aheadMs := steerTo(ahead, voters)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steerMs = aheadMs
}

// CatchUp has the time of day jump to the wall clocks, since the whole cluster was down and its
// clock stood still, or there is no time of day yet. aheadMs is how far a majority of the wall
// clocks is ahead of this node's at least. Unless they disagree, this node's counts: it is known
// exactly. What was stamped before is not gone back on. It returns how far the time jumped.
func (c *Leader) CatchUp(aheadMs int64) (jumpMs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if max(aheadMs, -aheadMs) <= deadbandMs {
		aheadMs = 0
	}
	wallMs := c.wallOffsetMs(c.NowMs()) + aheadMs
	if c.stampedUs != 0 {
		wallMs = max(wallMs, c.offsetMs)
	}
	jumpMs = wallMs - c.offsetMs
	c.offsetMs = wallMs
	return jumpMs
}

// UntilClear returns how long until this leadership's instants are later than all that earlier
// leaders' reads named. The base lost fractions of a millisecond.
func (c *Leader) UntilClear() time.Duration {
	return max(c.base+(readAheadUs+2*usPerMs)*time.Microsecond-c.clock.Monotonic(), 0)
}

func (c *Leader) clockUs() int64 {
	return c.baseUs + max(c.clock.Monotonic()-c.base, 0).Microseconds()
}

// NowMs returns the cluster clock: the base's stamp plus the monotonic time since. It never
// decreases.
func (c *Leader) NowMs() int64 { return c.clockUs() / usPerMs }

// Now reads the clock.
func (c *Leader) Now() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Leader) nowLocked() Reading {
	now := c.clockUs()
	c.slew(now)
	return Reading{now, c.offsetMs}
}

// slew makes the offset follow the wall clock, or those that are right if that is wrong.
func (c *Leader) slew(nowUs int64) {
	apartMs := c.wallOffsetMs(nowUs/usPerMs) + c.steerMs - c.offsetMs
	switch {
	case !c.slewing || apartMs != 0 && c.ahead != (apartMs > 0):
		// a new step: what is left of a slow one is not made up by quick ones
		c.slewing = max(apartMs, -apartMs) > deadbandMs
		c.ahead, c.slewedUs = apartMs > 0, nowUs
	case apartMs > 0:
		steps := (nowUs - c.slewedUs) / aheadEveryUs
		c.offsetMs += min(steps, apartMs)
		c.slewedUs += steps * aheadEveryUs
	case apartMs < 0:
		steps := (nowUs - c.slewedUs) / behindEveryUs
		c.offsetMs -= min(steps, -apartMs)
		c.slewedUs += steps * behindEveryUs
	default:
		c.slewing = false
	}
}

// Stamp stamps the next proposed entry. Call settled with the stamp when the entry has its outcome.
func (c *Leader) Stamp() Stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.nowLocked()
	// The clamp matters only after the offset was lowered, and at the first stamp, where the base
	// lost the fraction of a millisecond.
	wallUs := max(now.WallUs(), c.stampedUs+1, c.readUs+1)
	c.stampedUs = wallUs
	c.inFlightUs = append(c.inFlightUs, wallUs)
	return Stamp{now.ClockMs(), wallUs}
}

// Settled notes that the entry of a stamp was applied or never will be.
func (c *Leader) Settled(s Stamp) { c.forget(func(us int64) bool { return us == s.WallUs }) }

func (c *Leader) forget(f func(us int64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlightUs = slices.DeleteFunc(c.inFlightUs, f)
}

// Instant returns the instant that a read names, given the state that it sees: see Machine.Read. A
// read comes after what is applied and before what is in flight. askedUs is the time of day when
// the read arrived. While the newest entry is older than that, the instants available lag the
// clock; once they lag by more than readAheadUs, instant fails, and the read waits for an entry
// with a later stamp.
func (c *Leader) Instant(lastUs, stampUs, askedUs int64) (us int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := min(c.nowLocked().WallUs()-1, stampUs+readAheadUs)
	for _, us := range c.inFlightUs {
		if us > stampUs {
			most = min(most, us-1)
			break
		}
	}
	us = max(lastUs+1, c.readUs+1, most-readRoomUs)
	if us > most || stampUs == 0 || us < askedUs-readAheadUs {
		return us, false
	}
	c.readUs = us
	return us, true
}
