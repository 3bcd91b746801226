// This file holds the leader's clock: the cluster clock, the time of day beside it, and the instants that reads name.
// docs/adr/0016-the-time-of-day.md has the reasons.
package cluster

import (
	"slices"
	"sync"
	"time"
)

const usPerMs = 1000

// stamp is what an entry says of time: the cluster clock, and the time of day, µs since 1970; 0 where that is not known.
type stamp struct{ clockMs, wallUs int64 }

// offsetMs is how far the time of day is ahead of the cluster clock.
func (s stamp) offsetMs() int64 { return floorDiv(s.wallUs, usPerMs) - s.clockMs }

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// reading is a reading of the cluster clock with the time of day that belongs to it. They are whole milliseconds apart, so while that distance
// stays the same a conversion there and back gives what was given, at whatever fraction of a millisecond both are read.
type reading struct{ clockUs, offsetMs int64 }

func (r reading) clockMs() int64 { return r.clockUs / usPerMs }
func (r reading) wallUs() int64  { return r.clockUs + r.offsetMs*usPerMs }

// readingOf has the time of day of a wall clock.
func readingOf(clockMs int64, wall time.Time) reading {
	return reading{clockMs * usPerMs, wall.UnixMilli() - clockMs}
}

// How the time of day follows the leader's wall clock.
const (
	// deadbandMs is how far they may be apart before it does anything about it. Wall clocks that are kept by NTP are much closer to each
	// other, and what a node's clocks differ by in rate, some 20 µs a second, takes more than an hour to add up to so much.
	deadbandMs = 100
	// aheadEveryUs is the time in which it gains at most 1 ms on the cluster clock: 500 parts in a million, as much as quartz clocks and Linux's own
	// slewing differ by. A window that a script counts by TIME is over so much early, so it is little.
	aheadEveryUs = 2_000_000
	// behindEveryUs is the time in which it loses at most 1 ms on the cluster clock. Windows get longer by that, which harms less.
	behindEveryUs = 200_000
)

// Reads that name an instant.
const (
	// readRoomUs is how many instants before the newest possible one a read may use: what others need that come while an entry is under way.
	readRoomUs = 1000
	// readAheadUs is how far beyond the newest applied stamp reads may name instants. A new leader names none before it is as far
	// beyond the newest stamp in its log, whatever its clock lags behind the old leader's. It is also how far behind the clock they
	// may be.
	readAheadUs = 20_000
)

// leaderClock is the clock of one leadership. It is safe for concurrent use.
type leaderClock struct {
	clock  Clock
	base   time.Duration // local monotonic time at which the cluster clock was baseUs, at least
	baseUs int64

	mu         sync.Mutex
	offsetMs   int64 // of the time of day
	slewing    bool
	ahead      bool    // slewing: the wall clock is ahead
	slewedUs   int64   // cluster clock up to which the offset has followed the wall clock
	stampedUs  int64   // time of day of the newest stamp
	readUs     int64   // newest instant that a read may have named
	inFlightUs []int64 // stamps of entries that are not known to be applied, or to have failed
}

func newLeaderClock(clock Clock, from origin) *leaderClock {
	c := &leaderClock{clock: clock, base: from.at, baseUs: from.stamp.clockMs * usPerMs, stampedUs: from.stamp.wallUs}
	if from.stamp.wallUs != 0 {
		c.readUs = from.stamp.wallUs + readAheadUs // by reads of earlier leaders
	}
	wallOffsetMs := readingOf(c.nowMs(), clock.Wall()).offsetMs
	switch known := from.stamp.wallUs != 0; {
	case !known:
		c.offsetMs = wallOffsetMs
	case from.live:
		c.offsetMs = from.stamp.offsetMs()
	default: // the whole cluster stood still, and its clock with it
		c.offsetMs = max(from.stamp.offsetMs(), wallOffsetMs)
	}
	return c
}

// untilClear is how long it is until the instants of this leadership are later than all that reads of earlier ones named. The base lost
// fractions of a millisecond.
func (c *leaderClock) untilClear() time.Duration {
	return max(c.base+(readAheadUs+2*usPerMs)*time.Microsecond-c.clock.Monotonic(), 0)
}

func (c *leaderClock) clockUs() int64 {
	return c.baseUs + max(c.clock.Monotonic()-c.base, 0).Microseconds()
}

// nowMs returns the cluster clock: the base's stamp plus the monotonic time since. It never decreases.
func (c *leaderClock) nowMs() int64 { return c.clockUs() / usPerMs }

// now reads the clock.
func (c *leaderClock) now() reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *leaderClock) nowLocked() reading {
	now := c.clockUs()
	c.slew(now)
	return reading{now, c.offsetMs}
}

// slew has the offset follow the wall clock.
func (c *leaderClock) slew(nowUs int64) {
	apartMs := readingOf(nowUs/usPerMs, c.clock.Wall()).offsetMs - c.offsetMs
	switch {
	case !c.slewing || apartMs != 0 && c.ahead != (apartMs > 0): // it was set again: what is left of a slow step is not made up for by quick ones
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

// stamp stamps an entry that is proposed next. landed is to be called with the stamp when that has its outcome.
func (c *leaderClock) stamp() stamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.nowLocked()
	// It is later anyway, but where the offset was just lowered, and at the first stamp where the base lost the fraction of a millisecond.
	wallUs := max(now.wallUs(), c.stampedUs+1, c.readUs+1)
	c.stampedUs = wallUs
	c.inFlightUs = append(c.inFlightUs, wallUs)
	return stamp{now.clockMs(), wallUs}
}

// landed notes that the entry of a stamp was applied or never will be.
func (c *leaderClock) settled(s stamp) { c.forget(func(us int64) bool { return us == s.wallUs }) }

func (c *leaderClock) forget(f func(us int64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlightUs = slices.DeleteFunc(c.inFlightUs, f)
}

// instant is the instant that a read names, by the state of the machine that it sees: see Machine.Read. Reads come later than
// what is applied and earlier than what is under way, as they see the one and not the other. askedUs is the time of day when the
// read came: while the newest entry is older than that, what reads may name stands still behind the clock. None is given then that
// is behind by more than readAheadUs, so that the read waits for an entry, which is stamped later.
func (c *leaderClock) instant(lastUs, stampUs, askedUs int64) (us int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := min(c.nowLocked().wallUs()-1, stampUs+readAheadUs)
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
