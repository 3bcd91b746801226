// The rate limits CL.THROTTLE and GCRA. They use the cluster clock; the clocks of clients and nodes
// do not matter.
//
// Both are the generic cell rate algorithm in its virtual scheduling form (ITU-T I.371, annex A;
// redis-cell's README describes its use as a limit). A key holds one time, the theoretical arrival
// time, at which the bucket will be full of tokens again. Each token taken moves it on by
// period/count. A request passes if it then lies at most limit tokens ahead.
//
// The arithmetic is exact. period/count need not be a whole number of nanoseconds, so times carry a
// fraction with the denominator count: 7 tokens a minute are 7 in every minute, not 7 in a minute
// and 4 ns, nor 8 in some minute of a long run.

package commands

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
)

const (
	nsPerSecond = 1_000_000_000
	nsPerMs     = 1_000_000
)

// Errors of rate limits.
const (
	errPeriod        Error = "ERR period must be > 0 and < 1e12"
	errNoRequests    Error = "ERR Missing NUM_REQUESTS value"
	errRateState     Error = "ERR Invalid GCRA key"
	errRateStateTime Error = "ERR Negative time is invalid value for GCRA"
)

var rateSpecs = []Spec{
	{Name: "cl.throttle", Kind: Write, Acts: actRate | actAlone, Arity: -5, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "0.1.0",
		Syntax:     "key max_burst count_per_period:integer period [quantity] [ID request]",
		RequestID:  func(args [][]byte) []byte { return requestID(args, 5) },
		Summary:    "Takes tokens from a rate limit, or returns how long to wait for them.",
		Complexity: "O(1)", Grows: growsKey, Handler: clThrottle},
	{Name: "gcra", Kind: Write, Acts: actRate | actAlone, Arity: -5, Flags: DenyOOM | Fast,
		Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "8.8.0",
		Syntax:     "key max_burst requests_per_period period [NUM_REQUESTS count:integer]",
		Summary:    "Takes tokens from a rate limit, or returns how long to wait for them.",
		Complexity: "O(1)", Grows: growsKey, Handler: gcra},
}

// rateLimit is one call: a burst of up to limit tokens, and count tokens per period.
type rateLimit struct {
	limit    int64
	count    int64
	periodNs int64
	quantity int64 // tokens to take; 0 only inspects
}

// rateSpan is a duration, or a time of the cluster clock: ns + part/count, where 0 <= part < count,
// the count of the call.
type rateSpan struct {
	ns, part int64
}

// tokens returns the time in which n tokens come back. It returns false past the range, some 292
// years.
func (l *rateLimit) tokens(n int64) (rateSpan, bool) {
	hi, lo := bits.Mul64(uint64(n), uint64(l.periodNs))
	if hi >= uint64(l.count) {
		return rateSpan{}, false
	}
	ns, part := bits.Div64(hi, lo, uint64(l.count))
	return rateSpan{int64(ns), int64(part)}, ns <= math.MaxInt64
}

// whole returns how many tokens come back in a time, which is at most that of limit tokens.
func (l *rateLimit) whole(s rateSpan) int64 {
	hi, lo := bits.Mul64(uint64(s.ns), uint64(l.count))
	lo, carry := bits.Add64(lo, uint64(s.part), 0)
	n, _ := bits.Div64(hi+carry, lo, uint64(l.periodNs))
	return int64(n)
}

// add returns a+b for times that are not negative, false on overflow.
func (l *rateLimit) add(a, b rateSpan) (rateSpan, bool) {
	sum := rateSpan{a.ns + b.ns, a.part}
	if b.part >= l.count-a.part {
		sum.part -= l.count
		sum.ns++
	}
	sum.part += b.part
	return sum, sum.ns >= 0
}

// sub returns a-b, where a is not before b.
func (l *rateLimit) sub(a, b rateSpan) rateSpan {
	if a.part < b.part {
		return rateSpan{a.ns - b.ns - 1, a.part - b.part + l.count}
	}
	return rateSpan{a.ns - b.ns, a.part - b.part}
}

func (s rateSpan) before(t rateSpan) bool {
	return s.ns < t.ns || (s.ns == t.ns && s.part < t.part)
}

// roundUp returns the time in units of unitNs, rounded up.
func (s rateSpan) roundUp(unitNs int64) int64 {
	units, rest := s.ns/unitNs, s.ns%unitNs
	if rest > 0 || s.part > 0 {
		units++
	}
	return units
}

// appendState encodes a theoretical arrival time as the key holds it: ns, or ns+part/count.
func (l *rateLimit) appendState(dst []byte, at rateSpan) []byte {
	dst = strconv.AppendInt(dst, at.ns, 10)
	if at.part == 0 {
		return dst
	}
	dst = append(dst, '+')
	dst = strconv.AppendInt(dst, at.part, 10)
	dst = append(dst, '/')
	return strconv.AppendInt(dst, l.count, 10)
}

// readState decodes it. A fraction of another count, from a call with another rate, is rounded up
// to a nanosecond.
func (l *rateLimit) readState(state []byte) (at rateSpan, err error) {
	whole, fraction, fractional := bytes.Cut(state, []byte{'+'})
	ns, ok := ParseInt(whole)
	if !ok {
		return at, errRateState
	}
	if ns <= 0 {
		return at, errRateStateTime
	}
	if !fractional {
		return rateSpan{ns: ns}, nil
	}
	above, below, _ := bytes.Cut(fraction, []byte{'/'})
	part, okPart := ParseInt(above)
	count, okCount := ParseInt(below)
	switch {
	case !okPart || !okCount || part < 1 || part >= count || ns == math.MaxInt64:
		return at, errRateState
	case count != l.count:
		return rateSpan{ns: ns + 1}, nil
	}
	return rateSpan{ns, part}, nil
}

// overflow is the error for numbers whose times do not fit into nanoseconds; what names the last of
// them.
func (l *rateLimit) overflow(x *Call, what string) error {
	name := "GCRA"
	if x.Spec.Name != "gcra" {
		name = "Rate"
	}
	return Errorf(
		"ERR %s limiting uses nanosecond accuracy. Combination of period, requests_per_period "+
			"and %s would cause an overflow", name, what)
}

// run takes the tokens if they are available, and replies: limited or not, the limit, the tokens
// left, the seconds until as many are available (-1 if they just were, or never will be), the
// seconds until all are. If it takes nothing, it writes nothing.
func (l *rateLimit) run(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	now := rateSpan{ns: x.ClockMs * nsPerMs}
	ahead := rateSpan{} // how far the theoretical arrival time is ahead of now
	if e != nil {
		at, err := l.readState(e.Bytes())
		if err != nil {
			return err
		}
		if now.before(at) {
			ahead = l.sub(at, now)
		}
	}
	cost, ok := l.tokens(l.quantity)
	if !ok {
		return l.overflow(x, "num_requests")
	}
	room, ok := l.tokens(l.limit)
	if !ok {
		return l.overflow(x, "max_burst")
	}
	then, ok := l.add(ahead, cost)
	at, ok2 := l.add(now, then)
	if !ok || !ok2 || x.ClockMs > math.MaxInt64/nsPerMs {
		return l.overflow(x, "num_requests")
	}
	limited, retryAfter := int64(0), int64(-1)
	switch {
	case room.before(then):
		limited = 1
		if !room.before(cost) {
			retryAfter = l.sub(then, room).roundUp(nsPerSecond)
		}
	case l.quantity > 0:
		ahead = then
		x.storeRate(e != nil, l.appendState(nil, at), at.roundUp(nsPerMs))
	}
	remaining := int64(0)
	if !room.before(ahead) {
		remaining = l.whole(l.sub(room, ahead))
	}
	x.Out.Array(5)
	for _, n := range [5]int64{limited, l.limit, remaining, retryAfter,
		ahead.roundUp(nsPerSecond)} {
		x.Out.Int(n)
	}
	return nil
}

// storeRate stores the state of a limit. The key expires when the bucket is full again, which no
// state means too.
func (x *Call) storeRate(exists bool, state []byte, deadlineMs int64) {
	key := x.Args[1]
	db := x.DB()
	if exists {
		db.SetDeadline(db.SetString(key, state), deadlineMs)
	} else {
		db.SetDeadline(db.Create(key, state), deadlineMs)
	}
	x.notify(NotifyString, "set", key)
	x.notify(NotifyGeneric, "expire", key)
}

// setBurst parses max_burst. The limit is one more, so that a burst of 0 lets single requests pass.
func (l *rateLimit) setBurst(arg []byte) error {
	burst, ok := ParseInt(arg)
	if !ok || burst < 0 {
		return ErrNotPositive
	}
	l.limit = burst
	if burst < math.MaxInt64 {
		l.limit++
	}
	return nil
}

// parsePositive parses an integer of at least 1.
func parsePositive(arg []byte) (int64, error) {
	n, ok := ParseInt(arg)
	switch {
	case !ok:
		return 0, ErrNotInteger
	case n < 1:
		return 0, outOfRange(1, math.MaxInt64)
	}
	return n, nil
}

// clThrottle is the command of redis-cell: all numbers are integers, the period is in seconds.
func clThrottle(x *Call) error {
	args := x.withoutID(5)
	if len(args) > 6 {
		return x.Spec.ArityError()
	}
	l := rateLimit{quantity: 1}
	err := l.setBurst(args[2])
	if err != nil {
		return err
	}
	if l.count, err = parsePositive(args[3]); err != nil {
		return err
	}
	seconds, err := parsePositive(args[4])
	if err != nil {
		return err
	}
	if len(args) == 6 {
		var ok bool
		if l.quantity, ok = ParseInt(args[5]); !ok || l.quantity < 0 {
			return ErrNotPositive
		}
	}
	if seconds > math.MaxInt64/nsPerSecond {
		return l.overflow(x, "max_burst")
	}
	l.periodNs = seconds * nsPerSecond
	return l.run(x)
}

// gcra is the command that was proposed for Redis 8.8 and not released: the period is in seconds
// with decimals, TOKENS is a later name for NUM_REQUESTS.
func gcra(x *Call) error {
	if len(x.Args) > 7 {
		return x.Spec.ArityError()
	}
	l := rateLimit{quantity: 1}
	err := l.setBurst(x.Args[2])
	if err != nil {
		return err
	}
	if l.count, err = parsePositive(x.Args[3]); err != nil {
		return err
	}
	seconds, ok := ParseFloat(x.Args[4])
	if !ok {
		return ErrNotFloat
	}
	if seconds <= 0 || seconds >= 1e12 {
		return errPeriod
	}
	if len(x.Args) > 5 {
		switch {
		case !isWord(x.Args[5], "NUM_REQUESTS") && !isWord(x.Args[5], "TOKENS"):
			return ErrSyntax
		case len(x.Args) == 6:
			return errNoRequests
		}
		if l.quantity, err = parsePositive(x.Args[6]); err != nil {
			return err
		}
	}
	// one multiplication, rounded as IEEE 754 prescribes: the same on every processor
	ns := math.Round(float64(seconds * nsPerSecond))
	if ns >= math.MaxInt64 {
		return l.overflow(x, "max_burst")
	}
	l.periodNs = max(int64(ns), 1)
	return l.run(x)
}
