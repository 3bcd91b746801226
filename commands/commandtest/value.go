// What lives here: a RESP reply as a tree, its reader, and its two texts: the notation of scenario files, and RESP itself.

package commandtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Value is a RESP reply. Kind is RESP's own type byte; '_' is RESP3's null, and Null marks RESP2's null bulk string and null
// array. Text holds what is not an element: a string, a number's digits, "t" or "f". A map's Elems are key, value, key, value;
// those of an attribute ('|') end with the value that it belongs to.
type Value struct {
	Kind  byte
	Text  string
	Null  bool
	Elems []Value
}

// maxElements and maxText bound a reply that a test reads: beyond them the stream is broken.
const (
	maxElements = 1 << 24
	maxText     = 1 << 30
)

// reader reads replies and keeps their bytes.
type reader struct {
	br  *bufio.Reader
	raw []byte
}

// Parse reads one reply. Bytes that follow it are an error.
func Parse(raw []byte) (Value, error) {
	r := &reader{br: bufio.NewReader(bytes.NewReader(raw))}
	v, err := r.value()
	if err != nil {
		return Value{}, fmt.Errorf("%w in %q", err, clip(string(raw)))
	}
	if len(r.raw) != len(raw) {
		return Value{}, fmt.Errorf("%q follows the reply %q", clip(string(raw[len(r.raw):])), clip(string(r.raw)))
	}
	return v, nil
}

// ParseAll reads the replies of a run of calls.
func ParseAll(raw []byte) ([]Value, error) {
	r := &reader{br: bufio.NewReader(bytes.NewReader(raw))}
	var all []Value
	for len(r.raw) < len(raw) {
		v, err := r.value()
		if err != nil {
			return nil, fmt.Errorf("%w in %q", err, clip(string(raw)))
		}
		all = append(all, v)
	}
	return all, nil
}

func (r *reader) value() (Value, error) {
	line, err := r.line()
	if err != nil {
		return Value{}, err
	}
	if line == "" {
		return Value{}, errors.New("empty line")
	}
	v := Value{Kind: line[0], Text: line[1:]}
	switch v.Kind {
	case '+', '-', ':', ',', '#', '(', '_':
		return v, nil
	case '$', '=', '!':
		return v, r.text(&v)
	case '*', '~', '>', '%', '|':
		return v, r.elements(&v)
	case '?': // of a machine alone: the command waits, see commands.Block
		again, err := r.value()
		v.Elems = []Value{again}
		return v, err
	}
	return Value{}, fmt.Errorf("unknown type byte %q", v.Kind)
}

// line reads up to CR LF, which it leaves out.
func (r *reader) line() (string, error) {
	b, err := r.br.ReadBytes('\n')
	r.raw = append(r.raw, b...)
	if err != nil {
		return "", cut(err)
	}
	if len(b) < 2 || b[len(b)-2] != '\r' {
		return "", fmt.Errorf("line %q does not end in CR LF", clip(string(b)))
	}
	return string(b[:len(b)-2]), nil
}

// text reads the bytes that v.Text counts into v.Text.
func (r *reader) text(v *Value) error {
	n, err := strconv.Atoi(v.Text)
	if err != nil || n < -1 || n > maxText {
		return fmt.Errorf("bad length %q", v.Text)
	}
	v.Text = ""
	if n == -1 {
		v.Null = true
		return nil
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(r.br, b); err != nil {
		return cut(err)
	}
	r.raw = append(r.raw, b...)
	if string(b[n:]) != "\r\n" {
		return errors.New("a string does not end in CR LF")
	}
	v.Text = string(b[:n])
	return nil
}

// elements reads the elements that v.Text counts.
func (r *reader) elements(v *Value) error {
	n, err := strconv.Atoi(v.Text)
	if err != nil || n < -1 || n > maxElements {
		return fmt.Errorf("bad count %q", v.Text)
	}
	v.Text = ""
	if n == -1 {
		v.Null = true
		return nil
	}
	switch v.Kind {
	case '%':
		n *= 2
	case '|':
		n = 2*n + 1
	}
	for range n {
		e, err := r.value()
		if err != nil {
			return err
		}
		v.Elems = append(v.Elems, e)
	}
	return nil
}

// cut makes an end of the stream inside of a reply an error of its own.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func clip(s string) string {
	const most = 2000
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// IsError says whether the reply is an error.
func (v Value) IsError() bool { return v.Kind == '-' || v.Kind == '!' }

// String writes the reply in the notation of scenario files.
func (v Value) String() string {
	switch {
	case v.Null && v.Kind == '*':
		return "nil*"
	case v.Null, v.Kind == '_':
		return "nil"
	}
	switch v.Kind {
	case '$':
		return Quote(v.Text)
	case '*':
		return join("[", v.Elems, "]")
	case '%':
		return join("{", v.Elems, "}")
	case '~', '>', '|':
		return string(v.Kind) + join("[", v.Elems, "]")
	case '+', '-', '=', '!':
		return string(v.Kind) + word(v.Text)
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

// word is s as it is where the notation can read it so, else quoted.
func word(s string) string {
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return !bare(c) }) {
		return Quote(s)
	}
	return s
}

// bare says whether the notation takes c outside of quotes.
func bare(c rune) bool { return c > ' ' && c < 0x7f && !strings.ContainsRune("\"[]{}|\\", c) }

// Quote writes s in double quotes, with the escapes that a scenario file reads.
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

// AppendRESP appends the reply in protocol proto, 2 or 3: RESP2 has bulk strings for doubles, big numbers and verbatim texts, 0 and 1
// for booleans, arrays for maps, sets and pushes. In RESP3 every null is the same.
func (v Value) AppendRESP(dst []byte, proto int) []byte {
	kind := v.Kind
	if proto == 3 {
		if v.Null || kind == '_' {
			return append(dst, "_\r\n"...)
		}
	} else {
		switch kind {
		case '_':
			return append(dst, "$-1\r\n"...)
		case ',', '(':
			kind = '$'
		case '=':
			kind, v.Text = '$', v.Text[min(4, len(v.Text)):]
		case '#':
			kind, v.Text = ':', map[string]string{"t": "1", "f": "0"}[v.Text]
		case '%', '~', '>':
			kind = '*'
		}
	}
	switch kind {
	case '$', '=', '!':
		if v.Null {
			return append(dst, kind, '-', '1', '\r', '\n')
		}
		return fmt.Appendf(dst, "%c%d\r\n%s\r\n", kind, len(v.Text), v.Text)
	case '*', '%', '~', '>':
		n := len(v.Elems)
		switch {
		case v.Null:
			n = -1
		case kind == '%':
			n /= 2
		}
		dst = fmt.Appendf(dst, "%c%d\r\n", kind, n)
		for _, e := range v.Elems {
			dst = e.AppendRESP(dst, proto)
		}
		return dst
	}
	return fmt.Appendf(dst, "%c%s\r\n", kind, v.Text)
}
