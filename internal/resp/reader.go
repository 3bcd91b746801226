package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Limits bound what a Reader accepts.
type Limits struct {
	Line     int   // bytes of a line
	Text     int64 // bytes of a string
	Elements int64 // elements of one aggregate
	Depth    int   // aggregates inside each other, for Value
}

// DefaultLimits are those of NewReader: larger than what a working server sends.
var DefaultLimits = Limits{Line: 128 << 20, Text: 1 << 30, Elements: 1 << 24, Depth: 1 << 12}

// Reader reads values from a stream.
type Reader struct {
	in   *bufio.Reader
	max  Limits
	line []byte // a line that is longer than the buffer of in
}

// NewReader returns a reader of r. If r is a bufio.Reader, it is used as it is.
func NewReader(r io.Reader) *Reader { return NewReaderLimits(r, DefaultLimits) }

// NewReaderLimits returns a reader of r with other limits.
func NewReaderLimits(r io.Reader, limits Limits) *Reader {
	in, ok := r.(*bufio.Reader)
	if !ok {
		in = bufio.NewReader(r)
	}
	return &Reader{in: in, max: limits}
}

// Head reads the first line of a value. What follows it, the caller reads with Text or with a Head
// for each element. Its Text is valid until the next read.
func (r *Reader) Head() (Head, error) {
	h, _, err := r.head()
	return h, err
}

// head returns the line too, with its CR LF.
func (r *Reader) head() (h Head, line []byte, err error) {
	line, err = r.readLine()
	if err != nil {
		return Head{}, nil, err
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return Head{}, nil, fmt.Errorf("%w: line %q does not end in CR LF", ErrMalformed,
			clip(line))
	}
	h, ok := parseHead(line[:len(line)-2])
	switch {
	case !ok:
		return Head{}, nil, fmt.Errorf("%w: line %q", ErrMalformed, clip(line))
	case h.textLen() > 0 && h.N > r.max.Text:
		return Head{}, nil, fmt.Errorf("%w: string of %d bytes", ErrTooLarge, h.N)
	case h.elements() > 0 && h.N > r.max.Elements:
		return Head{}, nil, fmt.Errorf("%w: %d elements", ErrTooLarge, h.N)
	}
	return h, line, nil
}

// readLine reads up to and with a line feed.
func (r *Reader) readLine() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if err == nil && len(line) <= r.max.Line {
		return line, nil
	}
	r.line = append(r.line[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) && len(r.line) <= r.max.Line {
		line, err = r.in.ReadSlice('\n')
		r.line = append(r.line, line...)
	}
	switch {
	case len(r.line) > r.max.Line:
		return nil, fmt.Errorf("%w: line of more than %d bytes", ErrTooLarge, r.max.Line)
	case errors.Is(err, io.EOF) && len(r.line) > 0:
		return nil, io.ErrUnexpectedEOF
	}
	return r.line, err
}

// Text returns a stream of the string that h announced, without the CR LF behind it.
func (r *Reader) Text(h Head) io.Reader { return io.LimitReader(r.in, max(h.textLen()-2, 0)) }

// Skip discards a value and returns its head, whose Text is the caller's.
func (r *Reader) Skip() (Head, error) {
	var first Head
	for left, begun := int64(1), false; left > 0; left-- {
		h, _, err := r.head()
		if err != nil {
			return first, inside(err, begun)
		}
		if !begun {
			begun, first = true, h
			first.Text = slices.Clone(h.Text)
		}
		if h.textLen() > 0 {
			if err := r.skipText(h.N); err != nil {
				return first, inside(err, true)
			}
		}
		left += h.elements()
	}
	return first, nil
}

// AppendRaw appends the bytes of a whole value to dst. After an error they are those that came.
func (r *Reader) AppendRaw(dst []byte) ([]byte, error) {
	for left, begun := int64(1), false; left > 0; left-- {
		h, line, err := r.head()
		if err != nil {
			return dst, inside(err, begun)
		}
		begun = true
		dst = append(dst, line...)
		if n := h.textLen(); n > 0 {
			if dst, err = r.appendText(dst, n-2); err != nil {
				return dst, err
			}
			dst = append(dst, '\r', '\n')
		}
		left += h.elements()
	}
	return dst, nil
}

// skipText discards a string of n bytes and its CR LF.
func (r *Reader) skipText(n int64) error {
	if _, err := io.CopyN(io.Discard, r.in, n); err != nil {
		return err
	}
	return r.endText()
}

// endText reads the CR LF behind a string.
func (r *Reader) endText() error {
	end, err := r.in.Peek(2)
	if err != nil {
		return err
	}
	if string(end) != "\r\n" {
		return fmt.Errorf("%w: a string does not end in CR LF", ErrMalformed)
	}
	_, err = r.in.Discard(2)
	return err
}

// appendText appends a string of n bytes to dst, in steps as they arrive, and reads the CR LF.
func (r *Reader) appendText(dst []byte, n int64) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		at, size := len(dst), int(min(n, step))
		dst = slices.Grow(dst, size)[:at+size]
		got, err := io.ReadFull(r.in, dst[at:])
		if err != nil {
			return dst[:at+got], inside(err, true)
		}
		n -= int64(size)
	}
	return dst, inside(r.endText(), true)
}

// Value reads a value with all that belongs to it.
func (r *Reader) Value() (Value, error) { return r.value(0) }

func (r *Reader) value(depth int) (Value, error) {
	h, err := r.Head()
	if err != nil {
		return Value{}, inside(err, depth > 0)
	}
	v := Value{Kind: h.Kind, Null: h.N < 0}
	switch {
	case v.Null:
		return v, nil
	case h.textLen() > 0:
		text, err := r.appendText(nil, h.N)
		v.Text = string(text)
		return v, err
	case h.isAggregate():
		if depth >= r.max.Depth {
			return v, fmt.Errorf("%w: nested deeper than %d", ErrTooLarge, r.max.Depth)
		}
		for range h.elements() {
			e, err := r.value(depth + 1)
			if err != nil {
				return v, err
			}
			v.Elems = append(v.Elems, e)
		}
		return v, nil
	}
	v.Text = string(h.Text)
	return v, nil
}

// inside makes the end of the stream inside a value an error.
func inside(err error, begun bool) error {
	if begun && errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// clip shortens what an error shows.
func clip(b []byte) []byte { return b[:min(len(b), 100)] }
