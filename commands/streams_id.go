// Parsing of stream ids: 1526919030474-55, a time alone, - and + for the ends, ( for an exclusive
// end.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of stream ids.
const (
	errStreamID      Error = "ERR Invalid stream ID specified as stream command argument"
	errIntervalStart Error = "ERR invalid start ID for the interval"
	errIntervalEnd   Error = "ERR invalid end ID for the interval"
)

// maxStreamIDText is the longest text that is parsed as an id, as on Redis.
const maxStreamIDText = 127

// parseStreamID parses an id other than - and +. A time alone gets the number seq.
func parseStreamID(arg []byte, seq uint64) (keyspace.StreamID, error) {
	id, auto, ok := readStreamID(arg, seq)
	if !ok || auto {
		return id, errStreamID
	}
	return id, nil
}

// readStreamID parses an id whose number may be * (auto).
func readStreamID(arg []byte, seq uint64) (id keyspace.StreamID, auto, ok bool) {
	if len(arg) > maxStreamIDText {
		return id, false, false
	}
	text := string(resp.CText(arg))
	ms, number, parted := cutByte(text, '-')
	if id.Ms, ok = parseUnsigned(ms); !ok {
		return id, false, false
	}
	switch {
	case !parted:
		id.Seq = seq
	case number == "*":
		return id, true, true
	default:
		id.Seq, ok = parseUnsigned(number)
	}
	return id, false, ok
}

func cutByte(s string, sep byte) (before, after string, found bool) {
	for i := range len(s) {
		if s[i] == sep {
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

// parseUnsigned parses an unsigned number as Redis does: not a negative integer, but else all that
// C's strtoull accepts, with leading spaces and a sign.
func parseUnsigned(s string) (n uint64, ok bool) {
	if v, ok := ParseInt([]byte(s)); ok {
		return uint64(v), v >= 0
	}
	for len(s) > 0 && (s[0] == ' ' || '\t' <= s[0] && s[0] <= '\r') {
		s = s[1:]
	}
	negative := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		negative, s = s[0] == '-', s[1:]
	}
	if s == "" {
		return 0, false
	}
	for i := range len(s) {
		d := uint64(s[i] - '0')
		if s[i] < '0' || s[i] > '9' || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	if negative {
		n = -n
	}
	return n, true
}

// parseOpenStreamID is parseStreamID that also accepts - and + for the lowest and the highest id.
func parseOpenStreamID(arg []byte, seq uint64) (keyspace.StreamID, error) {
	if len(arg) > maxStreamIDText {
		return keyspace.StreamID{}, errStreamID
	}
	switch string(resp.CText(arg)) {
	case "-":
		return keyspace.StreamID{}, nil
	case "+":
		return keyspace.MaxStreamID, nil
	}
	return parseStreamID(arg, seq)
}

// parseRangeStart parses the lower end of a range.
func parseRangeStart(arg []byte) (keyspace.StreamID, error) {
	if len(arg) < 2 || arg[0] != '(' {
		return parseOpenStreamID(arg, 0)
	}
	id, err := parseStreamID(arg[1:], 0)
	if err != nil {
		return id, err
	}
	id, ok := id.Next()
	if !ok {
		return id, errIntervalStart
	}
	return id, nil
}

// parseRangeEnd parses the upper end of a range.
func parseRangeEnd(arg []byte) (keyspace.StreamID, error) {
	if len(arg) < 2 || arg[0] != '(' {
		return parseOpenStreamID(arg, math.MaxUint64)
	}
	id, err := parseStreamID(arg[1:], math.MaxUint64)
	if err != nil {
		return id, err
	}
	id, ok := id.Prev()
	if !ok {
		return id, errIntervalEnd
	}
	return id, nil
}

// parseStreamIDs parses ids that must be complete.
func parseStreamIDs(args [][]byte) ([]keyspace.StreamID, error) {
	ids := make([]keyspace.StreamID, len(args))
	for i, arg := range args {
		var err error
		if ids[i], err = parseStreamID(arg, 0); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// parseLastID parses an id, or $ for the last one of a stream, which may be nil. open allows - and
// +.
func parseLastID(arg []byte, s *keyspace.Stream, open bool) (keyspace.StreamID, error) {
	switch {
	case string(resp.CText(arg)) == "$":
		return lastID(s), nil
	case open:
		return parseOpenStreamID(arg, 0)
	}
	return parseStreamID(arg, 0)
}

// lastID returns the last id of a stream, which may be nil.
func lastID(s *keyspace.Stream) keyspace.StreamID {
	if s == nil {
		return keyspace.StreamID{}
	}
	return s.Last()
}
