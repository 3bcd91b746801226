package resp

import (
	"bytes"
	"errors"
)

// The type bytes. RESP3 adds those from Null on.
const (
	Status    = '+'
	Error     = '-'
	Int       = ':'
	Bulk      = '$'
	Array     = '*'
	Null      = '_'
	Double    = ','
	Bool      = '#'
	BigNumber = '('
	BulkError = '!'
	Verbatim  = '='
	Map       = '%'
	Set       = '~'
	Push      = '>'
	Attribute = '|' // stands before the value that it describes
)

// Errors of readers.
var (
	ErrMalformed = errors.New("malformed RESP")
	ErrTooLarge  = errors.New("RESP value too large")
)

// Head is the first line of a value.
type Head struct {
	Kind byte
	Text []byte // the rest of the line
	N    int64  // bytes of a string, elements of an aggregate, pairs of a map; -1: null
}

// IsError reports whether the value is an error.
func (h Head) IsError() bool { return h.Kind == Error || h.Kind == BulkError }

// kinds says what a type byte means.
var kinds = [256]struct {
	known      bool
	text       bool  // a length, and a string of it, follow
	each, more int64 // values that follow for each one counted, and besides
}{
	Status: {known: true}, Error: {known: true}, Int: {known: true}, Null: {known: true},
	Double: {known: true}, Bool: {known: true}, BigNumber: {known: true},
	Bulk: {known: true, text: true}, BulkError: {known: true, text: true},
	Verbatim: {known: true, text: true},
	Array:    {known: true, each: 1}, Set: {known: true, each: 1}, Push: {known: true, each: 1},
	Map: {known: true, each: 2}, Attribute: {known: true, each: 2, more: 1},
}

// isAggregate reports whether values follow, unless it is null or empty.
func (h Head) isAggregate() bool { return kinds[h.Kind].each > 0 }

// textLen returns the number of bytes that follow, CR LF included.
func (h Head) textLen() int64 {
	if !kinds[h.Kind].text || h.N < 0 {
		return 0
	}
	return h.N + 2
}

// elements returns the number of values that follow.
func (h Head) elements() int64 {
	k := &kinds[h.Kind]
	if h.N < 0 {
		return 0
	}
	return k.each*h.N + k.more
}

// parseHead reads a line without its CR LF.
func parseHead(line []byte) (h Head, ok bool) {
	if len(line) == 0 {
		return Head{}, false
	}
	h = Head{Kind: line[0], Text: line[1:]}
	k := &kinds[h.Kind]
	if k.text || k.each > 0 {
		h.N, ok = parseCount(h.Text)
		return h, ok
	}
	return h, k.known
}

// parseCount reads a length: digits, or -1.
func parseCount(text []byte) (n int64, ok bool) {
	const maxDigits = 17 // twice as much still fits into 64 bits
	if string(text) == "-1" {
		return -1, true
	}
	if len(text) == 0 || len(text) > maxDigits {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// Len returns the length of the first value in b, or 0 if it is incomplete or malformed. The server
// calls it for every reply.
func Len(b []byte) int {
	at := 0
	for left := int64(1); left > 0; left-- {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 2 || b[at+i-1] != '\r' || !kinds[b[at]].known {
			return 0
		}
		k, line := &kinds[b[at]], b[at+1:at+i-1]
		at += i + 1
		if !k.text && k.each == 0 {
			continue
		}
		n, ok := parseCount(line)
		switch {
		case !ok || n > int64(len(b)-at):
			return 0
		case n < 0: // null
		case !k.text:
			left += k.each*n + k.more
		case at+int(n)+2 > len(b) || b[at+int(n)] != '\r' || b[at+int(n)+1] != '\n':
			return 0
		default:
			at += int(n) + 2
		}
	}
	return at
}

// Elements splits an array into its length and its elements. ok is false if b does not start with
// one: also for null.
func Elements(b []byte) (n int, rest []byte, ok bool) {
	h, size := headOf(b)
	if size == 0 || h.Kind != Array || h.N < 0 {
		return 0, nil, false
	}
	return int(h.N), b[size:], true
}

// headOf reads the line at the start of b, and returns its size with CR LF: 0 if there is none.
func headOf(b []byte) (h Head, size int) {
	i := bytes.IndexByte(b, '\n')
	if i < 2 || b[i-1] != '\r' {
		return Head{}, 0
	}
	h, ok := parseHead(b[:i-1])
	if !ok {
		return Head{}, 0
	}
	return h, i + 1
}
