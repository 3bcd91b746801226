// Options and arithmetic of expire times, for keys and for fields of hashes.

package commands

import "math"

// ttlUnit says what the argument of an expire option means.
type ttlUnit uint8

const (
	ttlNone ttlUnit = iota
	ttlEX           // seconds from now
	ttlPX           // ms from now
	ttlEXAT         // seconds since 1970
	ttlPXAT         // ms since 1970
)

// parseTTLUnit returns the unit of an expire option, or ttlNone for another word.
func parseTTLUnit(arg []byte) ttlUnit {
	switch {
	case isWord(arg, "PX"):
		return ttlPX
	case isWord(arg, "EX"):
		return ttlEX
	case isWord(arg, "PXAT"):
		return ttlPXAT
	case isWord(arg, "EXAT"):
		return ttlEXAT
	}
	return ttlNone
}

// parseDeadline parses the argument of an expire option of SET, GETEX, SETEX or PSETEX and returns
// the deadline in ms of the cluster clock, which may be past if the time is absolute. Times must be
// positive. What overflows in Redis's arithmetic on wall time is refused with Redis's error.
func (x *Call) parseDeadline(unit ttlUnit, arg []byte) (deadlineMs int64, err error) {
	ms, ok := ParseInt(arg)
	if !ok {
		return 0, ErrNotInteger
	}
	unitMs := int64(1)
	if unit == ttlEX || unit == ttlEXAT {
		unitMs = 1000
	}
	if ms <= 0 || ms > math.MaxInt64/unitMs {
		return 0, InvalidExpire(x.Spec.FullName())
	}
	ms *= unitMs
	absolute := unit == ttlEXAT || unit == ttlPXAT
	if !absolute && ms > math.MaxInt64-x.WallMs() {
		return 0, InvalidExpire(x.Spec.FullName())
	}
	return x.deadline(ms, absolute), nil
}

// deadline converts a time in ms, since 1970 or from now, into a deadline in ms of the cluster
// clock. It saturates.
func (x *Call) deadline(ms int64, absolute bool) int64 {
	if absolute {
		ms = addMs(ms, -x.WallMs())
	}
	if deadlineMs := addMs(x.ClockMs, ms); deadlineMs != 0 {
		return deadlineMs
	}
	return -1 // 0 means none
}

// past reports whether a key that gets this deadline is deleted at once. A key exists through the
// millisecond of its deadline, but one that gets it in that millisecond is gone, as on Redis.
func (x *Call) past(deadlineMs int64) bool { return deadlineMs <= x.ClockMs }

// addMs adds two times or durations and saturates.
func addMs(a, b int64) int64 {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}

// roundSeconds converts a time that is not negative to seconds, rounded as Redis does.
func roundSeconds(ms int64) int64 {
	if ms%1000 >= 500 {
		return ms/1000 + 1
	}
	return ms / 1000
}

// remainingMs returns the time until a deadline, at least 0: a read's clock may be past the
// deadline of a key that exists until the next entry.
func (x *Call) remainingMs(deadlineMs int64) int64 { return max(deadlineMs-x.ClockMs, 0) }

// expiryMs returns the wall time of a deadline, ms since 1970, at least 0.
func (x *Call) expiryMs(deadlineMs int64) int64 {
	return max(addMs(deadlineMs-x.ClockMs, x.WallMs()), 0)
}
