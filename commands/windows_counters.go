// Windows that are not exact: how many hits came in the running period and in the one before, which
// are each as long as the window. Of the period before so much counts as lies in the window, as if
// its hits had come evenly. docs/compatibility.md says how far that is off.

package commands

import (
	"math/bits"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

// windowCounters are the fields of the hash.
type windowCounters struct {
	start, end      int64 // the running period, ms of the cluster clock
	current, before int64
}

// The names of the fields.
const (
	windowStart   = "start"
	windowEnd     = "end"
	windowCurrent = "current"
	windowBefore  = "before"
)

// read reads the counters. It returns false if the hash holds something else.
func (c *windowCounters) read(h *keyspace.Hash) bool {
	fields := [...]struct {
		name string
		n    *int64
	}{{windowStart, &c.start}, {windowEnd, &c.end}, {windowCurrent, &c.current},
		{windowBefore, &c.before}}
	for _, f := range fields {
		value, ok := h.Get([]byte(f.name))
		if !ok {
			return false
		}
		if *f.n, ok = ParseInt(value); !ok || *f.n < 0 {
			return false
		}
	}
	return h.Len() == len(fields) && c.start < c.end && c.current <= maxQuantity &&
		c.before <= maxQuantity
}

// write writes the counters.
func (c *windowCounters) write(h *keyspace.Hash) {
	set := func(name string, n int64) {
		h.Set([]byte(name), strconv.AppendInt(nil, n, 10))
	}
	set(windowStart, c.start)
	set(windowEnd, c.end)
	set(windowCurrent, c.current)
	set(windowBefore, c.before)
}

// roll makes the period that of now, ms long. A period that begins later is of another cluster's
// clock and does not count.
func (c *windowCounters) roll(now, ms int64) {
	switch elapsed := now - c.start; {
	case elapsed < 0 || elapsed-ms >= ms:
		*c = windowCounters{start: now}
	case elapsed >= ms:
		*c = windowCounters{start: c.start + ms, before: c.current}
	}
	c.end = c.start + ms
}

// used returns how many hits count now.
func (c *windowCounters) used(now int64) int64 {
	return c.current + share(c.before, c.end-now, c.end-c.start, true)
}

// waitMs returns how long it takes until at most room hits count, which now are more.
func (c *windowCounters) waitMs(now, room int64) int64 {
	ms, rest := c.end-c.start, c.end-now
	if room >= c.current {
		return rest - share(ms, room-c.current, c.before, false)
	}
	// then current is the period before
	return rest + ms - share(ms, room, c.current, false)
}

// share returns n*part/whole, rounded down or up. part is at most whole, which is not 0.
func share(n, part, whole int64, up bool) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, rest := bits.Div64(hi, lo, uint64(whole))
	if up && rest > 0 {
		q++
	}
	return int64(q)
}
