package commands

import (
	"math"
	"strconv"
	"strings"

	"github.com/coordd/coordd/internal/resp"
)

// Reply receives a command's reply piece by piece. RESP encodes it for the client, the script
// engine makes Lua values of it, Discard is for nodes that need no reply.
type Reply interface {
	Status(s string)
	Error(msg string) // code word first; line breaks become spaces
	Int(n int64)
	Bulk(b []byte)
	BulkString(s string)
	Null()      // no value
	NullArray() // no value in place of an array, which RESP2 distinguishes
	Array(n int)
	Map(pairs int)
	Set(n int)
	Push(n int)
	Double(f float64)
	Decimal(f float64) // a double with up to 17 decimals and no exponent
	Bool(b bool)
	BigNumber(digits string)
	Verbatim(format, text string) // format has three letters: txt, mkd
}

// MaxReplyBytes bounds the replies of one batch: RESP.Limit.
const MaxReplyBytes = 64 << 20

// ErrReplySize replaces a reply that does not fit.
const ErrReplySize Error = "ERR the reply, with those that go before it, is larger than 67108864 " +
	"bytes; nothing was changed"

// RESP encodes replies in the Redis protocol, version Proto (2 or 3). It decides which type a reply
// has in that version and what still fits; internal/resp writes the bytes. Both decisions are part
// of applying the log: every node must refuse the same reply for its size.
type RESP struct {
	Buf   []byte
	Proto int
	Limit int // maximum size of Buf in bytes; 0: no limit
	// something did not fit: it was left out, as is everything that follows, until the caller
	// truncates Buf and resets this
	Full bool
	// Spend, if set, is charged for each element before it is written, as Call.Spend is. It may
	// panic.
	Spend func(units int)
}

// fits reports whether n more bytes may be written.
func (r *RESP) fits(n int) bool {
	if r.Spend != nil && n >= replyBytes {
		r.Spend(n / replyBytes)
	}
	if r.Limit > 0 && len(r.Buf)+n > r.Limit {
		r.Full = true
	}
	return !r.Full
}

// element charges for an element.
func (r *RESP) element() {
	if r.Spend != nil {
		r.Spend(replyWork)
	}
}

func (r *RESP) head(kind byte, n int64) {
	r.element()
	if r.Full {
		return
	}
	r.Buf = resp.AppendHead(r.Buf, kind, n)
	r.fits(0) // if not, the caller truncates all of it
}

// Encoded appends what a RESP of the same Proto encoded before.
func (r *RESP) Encoded(b []byte) {
	if r.fits(len(b)) {
		r.Buf = append(r.Buf, b...)
	}
}

func (r *RESP) line(kind byte, s string) {
	r.element()
	if r.fits(len(s) + 3) {
		r.Buf = resp.AppendLine(r.Buf, kind, s)
	}
}

// Status writes a simple string.
func (r *RESP) Status(s string) { r.line(resp.Status, s) }

// Error writes an error.
func (r *RESP) Error(msg string) { r.line(resp.Error, trimmed(msg)) }

// trimmed returns an error without trailing line breaks.
func trimmed(msg string) string { return strings.TrimRight(msg, "\r\n") }

// Int writes an integer.
func (r *RESP) Int(n int64) { r.head(resp.Int, n) }

// Bulk writes a bulk string.
func (r *RESP) Bulk(b []byte) {
	r.head(resp.Bulk, int64(len(b)))
	if r.fits(len(b) + 2) {
		r.Buf = resp.AppendText(r.Buf, b)
	}
}

// BulkString writes a bulk string.
func (r *RESP) BulkString(s string) {
	r.head(resp.Bulk, int64(len(s)))
	if r.fits(len(s) + 2) {
		r.Buf = resp.AppendText(r.Buf, s)
	}
}

// Null writes the absence of a value.
func (r *RESP) Null() {
	if r.Proto == 3 {
		r.line(resp.Null, "")
		return
	}
	r.head(resp.Bulk, -1)
}

// NullArray writes the absence of an array.
func (r *RESP) NullArray() {
	if r.Proto == 3 {
		r.line(resp.Null, "")
		return
	}
	r.head(resp.Array, -1)
}

// Array opens an array of n elements.
func (r *RESP) Array(n int) { r.head(resp.Array, int64(n)) }

// Map opens a map; RESP2 has an array of keys and values.
func (r *RESP) Map(pairs int) {
	if r.Proto == 3 {
		r.head(resp.Map, int64(pairs))
		return
	}
	r.head(resp.Array, int64(2*pairs))
}

// Set opens a set; RESP2 has an array.
func (r *RESP) Set(n int) {
	if r.Proto == 3 {
		r.head(resp.Set, int64(n))
		return
	}
	r.head(resp.Array, int64(n))
}

// Push opens a push message; RESP2 has an array.
func (r *RESP) Push(n int) {
	if r.Proto == 3 {
		r.head(resp.Push, int64(n))
		return
	}
	r.head(resp.Array, int64(n))
}

// Double writes a double; RESP2 has a bulk string.
func (r *RESP) Double(f float64) {
	var buf [32]byte
	r.double(appendFloat(buf[:0], f))
}

// Decimal writes a double; RESP2 has a bulk string.
func (r *RESP) Decimal(f float64) { r.double([]byte(FormatDecimal(f))) }

// double writes a double from its text.
func (r *RESP) double(text []byte) {
	if r.Proto == 3 {
		r.line(resp.Double, string(text))
		return
	}
	r.Bulk(text)
}

// Bool writes a boolean; RESP2 has 1 and 0.
func (r *RESP) Bool(b bool) {
	switch {
	case r.Proto == 3 && b:
		r.line(resp.Bool, "t")
	case r.Proto == 3:
		r.line(resp.Bool, "f")
	case b:
		r.Int(1)
	default:
		r.Int(0)
	}
}

// BigNumber writes an integer of any size; RESP2 has a bulk string.
func (r *RESP) BigNumber(digits string) {
	if r.Proto == 3 {
		r.line(resp.BigNumber, digits)
		return
	}
	r.BulkString(digits)
}

// Verbatim writes a text with its format; RESP2 has a bulk string.
func (r *RESP) Verbatim(format, text string) {
	if r.Proto == 3 {
		r.head(resp.Verbatim, int64(len(text)+4))
		if r.fits(len(text) + 6) {
			r.Buf = append(r.Buf, format...)
			r.Buf = append(r.Buf, ':')
			r.Buf = resp.AppendText(r.Buf, text)
		}
		return
	}
	r.BulkString(text)
}

// Discard is a Reply that does nothing, for replies that nobody needs.
type Discard struct{}

// Status does nothing.
func (Discard) Status(string) {}

// Error does nothing.
func (Discard) Error(string) {}

// Int does nothing.
func (Discard) Int(int64) {}

// Bulk does nothing.
func (Discard) Bulk([]byte) {}

// BulkString does nothing.
func (Discard) BulkString(string) {}

// Null does nothing.
func (Discard) Null() {}

// NullArray does nothing.
func (Discard) NullArray() {}

// Array does nothing.
func (Discard) Array(int) {}

// Map does nothing.
func (Discard) Map(int) {}

// Set does nothing.
func (Discard) Set(int) {}

// Push does nothing.
func (Discard) Push(int) {}

// Double does nothing.
func (Discard) Double(float64) {}

// Decimal does nothing.
func (Discard) Decimal(float64) {}

// Bool does nothing.
func (Discard) Bool(bool) {}

// BigNumber does nothing.
func (Discard) BigNumber(string) {}

// Verbatim does nothing.
func (Discard) Verbatim(string, string) {}

// FormatFloat formats a double as Redis 7.0 formats scores: 17 significant digits in C's %g,
// integers without an exponent up to that, inf, -inf, nan.
func FormatFloat(f float64) string { return string(appendFloat(nil, f)) }

// appendFloat appends what FormatFloat returns.
func appendFloat(dst []byte, f float64) []byte {
	const exact = 1e17 // integers below it have at most 17 digits
	switch {
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case f == 0 && math.Signbit(f):
		return append(dst, "-0"...)
	case f == math.Trunc(f) && math.Abs(f) < exact:
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', 17, 64)
}

// FormatDecimal formats a double with up to 17 decimals, without trailing zeros.
func FormatDecimal(f float64) string { return trimZeros(strconv.FormatFloat(f, 'f', 17, 64)) }

// replyHelp writes the lines of a HELP subcommand.
func replyHelp(out Reply, lines ...string) {
	out.Array(len(lines))
	for _, l := range lines {
		out.Status(l)
	}
}
