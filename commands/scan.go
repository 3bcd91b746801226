// What SCAN, HSCAN, SSCAN and ZSCAN share: cursors, options, and one step through a collection.

package commands

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// parseCursor parses a cursor: what C's strtoul accepts, up to a zero byte.
func parseCursor(arg []byte) (uint64, error) {
	arg = resp.CText(arg)
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

// scanOptions are the options of the SCAN family.
type scanOptions struct {
	count    int
	filter   bool // by match
	match    []byte
	matcher  glob.Matcher // matches names with match
	oneType  bool         // SCAN alone: by typeName
	typeName []byte
	noValues bool // HSCAN and ZSCAN: names alone
}

// scanWords are the options that only some commands of the SCAN family have.
type scanWords uint8

const (
	scanType     scanWords = 1 << iota // TYPE
	scanNoValues                       // NOVALUES
	scanNoScores                       // NOSCORES
)

// wants reports whether the pattern matches name.
func (o *scanOptions) wants(name []byte) bool {
	return !o.filter || o.matcher.Match(o.match, name)
}

// work returns the cost of looking at an element with a name of n bytes, in units of Env.Work:
// copying it and matching it.
func (o *scanOptions) work(n int) int {
	units := 1 + n/bytesSpent
	if o.filter {
		units += len(o.match) * n / 32
	}
	return units
}

// parseScanOptions parses MATCH and COUNT, and the options in words.
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
			// * alone also matches the empty name, unlike in Glob
			o.match, o.filter = value, string(value) != "*"
		case words&scanType != 0 && isWord(args[i], "TYPE"):
			o.typeName, o.oneType = value, true
		default:
			return o, ErrSyntax
		}
	}
	return o, nil
}

// elementScan is one step of HSCAN, SSCAN or ZSCAN.
type elementScan struct {
	scanOptions
	call  *Call
	found []scanned
}

type scanned struct {
	name  string
	value []byte // shared, not copied
}

// keptWork is the cost of keeping an element until the reply is written, in units of Env.Work.
const keptWork = 6

// matches reports whether the pattern matches an element.
func (s *elementScan) matches(name string) bool {
	s.call.Spend(s.work(len(name)))
	if s.call.Level >= LevelSecond {
		s.call.Spend(walkedWork + keptWork)
	}
	return s.wants([]byte(name))
}

// keep adds an element to the reply.
func (s *elementScan) keep(name string, value []byte) {
	s.found = append(s.found, scanned{name, value})
}

// reply writes the next cursor and the elements.
func (s *elementScan) reply(out Reply, next uint64) {
	out.Array(2)
	out.BulkString(strconv.FormatUint(next, 10))
	if s.noValues {
		out.Array(len(s.found))
	} else {
		out.Array(2 * len(s.found))
	}
	for _, f := range s.found {
		out.BulkString(f.name)
		if !s.noValues {
			out.Bulk(f.value)
		}
	}
}

// scanElements runs HSCAN, SSCAN or ZSCAN on what find returns; walk makes the step. Options are
// parsed after the lookup: Redis replies for a missing key without checking them.
func scanElements[T keyspace.Collection](x *Call, find func(*Call, []byte) (T, error),
	walk func(T, *elementScan, uint64) uint64) error {
	cursor, err := parseCursor(x.Args[2])
	if err != nil {
		return err
	}
	c, err := find(x, x.Args[1])
	if err != nil {
		return err
	}
	s := elementScan{call: x}
	if c.Len() == 0 {
		s.reply(x.Out, 0)
		return nil
	}
	var words scanWords
	switch c.Kind() {
	case keyspace.KindHash:
		words = scanNoValues
	case keyspace.KindZSet:
		words = scanNoScores
	}
	if s.scanOptions, err = parseScanOptions(x.Args[3:], words); err != nil {
		return err
	}
	next := walk(c, &s, cursor)
	s.reply(x.Out, next)
	return nil
}
