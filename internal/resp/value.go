package resp

import (
	"fmt"
	"strings"
)

// Value is a value as a tree. Text holds what is not an element: a string, a number's digits, "t"
// or "f". A map's Elems are key, value, key, value; those of an attribute end with the value that
// it belongs to. Null marks RESP2's null string and null array; RESP3's null is the kind Null.
type Value struct {
	Kind  byte
	Text  string
	Null  bool
	Elems []Value
}

// IsError reports whether the value is an error.
func (v Value) IsError() bool { return v.Kind == Error || v.Kind == BulkError }

// Append appends the value in protocol proto, 2 or 3. RESP2 has bulk strings for doubles, big
// numbers and verbatim texts, 0 and 1 for booleans, arrays for maps, sets and pushes. RESP3 has one
// null.
func (v Value) Append(dst []byte, proto int) []byte {
	if proto != 3 {
		v = v.downgraded()
	} else if v.Null || v.Kind == Null {
		return AppendLine(dst, Null, "")
	}
	switch v.Kind {
	case Bulk, Verbatim, BulkError:
		if v.Null {
			return AppendHead(dst, v.Kind, -1)
		}
		return AppendText(AppendHead(dst, v.Kind, int64(len(v.Text))), v.Text)
	case Array, Map, Set, Push, Attribute:
		if v.Null {
			return AppendHead(dst, v.Kind, -1)
		}
		n := len(v.Elems)
		if v.Kind == Map || v.Kind == Attribute {
			n /= 2
		}
		dst = AppendHead(dst, v.Kind, int64(n))
		for _, e := range v.Elems {
			dst = e.Append(dst, proto)
		}
		return dst
	}
	return AppendLine(dst, v.Kind, v.Text)
}

// downgraded returns the value with a type of RESP2.
func (v Value) downgraded() Value {
	switch v.Kind {
	case Null:
		return Value{Kind: Bulk, Null: true}
	case Double, BigNumber:
		v.Kind = Bulk
	case Verbatim:
		const format = len("txt:")
		v.Kind, v.Text = Bulk, v.Text[min(format, len(v.Text)):]
	case Bool:
		v.Kind, v.Text = Int, map[bool]string{true: "1", false: "0"}[v.Text == "t"]
	case Map, Set, Push:
		v.Kind = Array
	}
	return v
}

// String writes the value on one line, in the notation of the scenario files: a bulk string in
// quotes, [an array], {a map}, nil, nil* for RESP2's null array, and all others after their type
// byte.
func (v Value) String() string {
	switch {
	case v.Null && v.Kind == Array:
		return "nil*"
	case v.Null, v.Kind == Null:
		return "nil"
	}
	switch v.Kind {
	case Bulk:
		return Quote(v.Text)
	case Array:
		return join("[", v.Elems, "]")
	case Map:
		return join("{", v.Elems, "}")
	case Set, Push, Attribute:
		return string(v.Kind) + join("[", v.Elems, "]")
	case Status, Error, Verbatim, BulkError:
		if v.Text == "" || strings.ContainsFunc(v.Text, func(c rune) bool { return !IsBare(c) }) {
			return string(v.Kind) + Quote(v.Text)
		}
	}
	return string(v.Kind) + v.Text
}

func join(open string, elems []Value, end string) string {
	texts := make([]string, len(elems))
	for i, e := range elems {
		texts[i] = e.String()
	}
	return open + strings.Join(texts, " ") + end
}

// IsBare reports whether the notation of String takes c outside of quotes.
func IsBare(c rune) bool { return c > ' ' && c < 0x7f && !strings.ContainsRune("\"[]{}|\\", c) }

// Quote writes s in double quotes, with the escapes that redis-cli reads.
func Quote(s string) string {
	b := []byte{'"'}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c < ' ' || c > '~':
			b = fmt.Appendf(b, `\x%02x`, c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
