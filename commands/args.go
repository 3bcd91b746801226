// This file contains what handlers of several types share: option words, typed lookups, expire
// times, SCAN's arguments.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// isWord reports whether arg is the option word, which is given in upper case, in any case of
// letters.
func isWord(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, c := range arg {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != word[i] {
			return false
		}
	}
	return true
}

// cText is arg up to its first zero byte: what Redis shows of an argument in an error.
func cText(arg []byte) []byte {
	before, _, _ := bytes.Cut(arg, []byte{0})
	return before
}

// findString returns the entry of a key that holds a string, nil where there is no key, or
// ErrWrongType.
func (x *Call) findString(key []byte) (*keyspace.Entry, error) {
	e := x.DB().Find(key)
	if e != nil && e.Kind() != keyspace.KindString {
		return nil, ErrWrongType
	}
	return e, nil
}

// ttlUnit says how the argument of an expire option is to be read.
type ttlUnit uint8

const (
	ttlNone ttlUnit = iota
	ttlEX           // seconds from now
	ttlPX           // ms from now
	ttlEXAT         // seconds since 1970
	ttlPXAT         // ms since 1970
)

// parseTTLUnit is the unit of an expire option, or ttlNone for another word.
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

// parseDeadline reads the argument of an expire option of SET, GETEX, SETEX or PSETEX and returns
// the deadline in ms of the cluster clock, which an absolute time may put into the past. Times must
// be positive; what Redis's own arithmetic on wall time overflows at is refused with Redis's error.
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

// deadline turns a time in ms, since 1970 or from now, into a deadline in ms of the cluster clock.
// A time beyond what can be counted becomes the last one that can.
func (x *Call) deadline(ms int64, absolute bool) int64 {
	if absolute {
		ms = addMs(ms, -x.WallMs())
	}
	if deadlineMs := addMs(x.ClockMs, ms); deadlineMs != 0 {
		return deadlineMs
	}
	return -1 // 0 means none
}

// past reports whether a key with this deadline is to be deleted at once. A key lives through the
// millisecond of its deadline, but one that is given it then is gone, as on Redis.
func (x *Call) past(deadlineMs int64) bool { return deadlineMs <= x.ClockMs }

// addMs adds two times or durations and stays at the end of the range where the sum lies outside.
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

// roundSeconds is a time that is not negative in seconds, as Redis rounds the ms.
func roundSeconds(ms int64) int64 {
	if ms%1000 >= 500 {
		return ms/1000 + 1
	}
	return ms / 1000
}

// parseCursor reads a cursor of SCAN, HSCAN or ZSCAN, taking what C's strtoul takes of the text up
// to a zero byte.
func parseCursor(arg []byte) (uint64, error) {
	arg = cText(arg)
	digits, negative := arg, false
	if len(arg) > 1 && (arg[0] == '-' || arg[0] == '+') {
		digits, negative = arg[1:], arg[0] == '-'
	}
	var n uint64
	for _, c := range digits {
		d := uint64(c - '0')
		if c < '0' || c > '9' || n > (math.MaxUint64-d)/10 {
			return 0, ErrInvalidCursor
		}
		n = n*10 + d
	}
	if negative {
		n = -n
	}
	return n, nil
}

// scanOptions are the options of SCAN and its kin.
type scanOptions struct {
	count    int
	filter   bool // by match
	match    []byte
	matcher  matcher // of match
	oneType  bool    // of SCAN alone: by typeName
	typeName []byte
	noValues bool // of HSCAN and ZSCAN: names alone
}

// scanWords are the options that not all commands of the SCAN family have.
type scanWords uint8

const (
	scanType     scanWords = 1 << iota // TYPE
	scanNoValues                       // NOVALUES
	scanNoScores                       // NOSCORES
)

// wants reports whether the pattern takes name.
func (o *scanOptions) wants(name []byte) bool {
	return !o.filter || o.matcher.match(o.match, name, 0)
}

// work is what looking at one element with a name of n bytes costs, in units of Env.Work: its copy,
// and what its match may take.
func (o *scanOptions) work(n int) int {
	units := 1 + n/bytesSpent
	if o.filter {
		units += len(o.match) * n / 32
	}
	return units
}

// parseScanOptions reads MATCH and COUNT, and the words that the command has more.
func parseScanOptions(args [][]byte, words scanWords) (scanOptions, error) {
	o := scanOptions{count: 10}
	for i := 0; i < len(args); i += 2 {
		if (words&scanNoValues != 0 && isWord(args[i], "NOVALUES")) ||
			(words&scanNoScores != 0 && isWord(args[i], "NOSCORES")) {
			o.noValues = true
			i-- // no value follows
			continue
		}
		if i+1 == len(args) {
			return o, ErrSyntax
		}
		value := args[i+1]
		switch {
		case isWord(args[i], "COUNT"):
			n, ok := ParseInt(value)
			if !ok {
				return o, ErrNotInteger
			}
			if n < 1 {
				return o, ErrSyntax
			}
			o.count = int(n)
		case isWord(args[i], "MATCH"):
			if err := CheckPattern(value); err != nil {
				return o, err
			}
			// a star alone takes the empty name too, which Glob's does not
			o.match, o.filter = value, string(value) != "*"
		case words&scanType != 0 && isWord(args[i], "TYPE"):
			o.typeName, o.oneType = value, true
		default:
			return o, ErrSyntax
		}
	}
	return o, nil
}
