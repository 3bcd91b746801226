package wire

import "encoding/binary"

// Cursor reads fields off the front of a slice. The zero value is at the end of an empty one.
type Cursor struct {
	rest   []byte
	failed bool
}

// NewCursor returns a cursor at the start of b.
func NewCursor(b []byte) Cursor { return Cursor{rest: b} }

// Rest returns the bytes that have not been read.
func (c *Cursor) Rest() []byte { return c.rest }

// Len returns the number of bytes that have not been read.
func (c *Cursor) Len() int { return len(c.rest) }

// Failed reports whether a field was missing or Fail was called.
func (c *Cursor) Failed() bool { return c.failed }

// Done reports whether everything was read and nothing failed.
func (c *Cursor) Done() bool { return !c.failed && len(c.rest) == 0 }

// Fail makes the cursor fail: the input is malformed in a way that only the caller can see.
func (c *Cursor) Fail() { c.rest, c.failed = nil, true }

// Take returns the next n bytes.
func (c *Cursor) Take(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.Fail()
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// Byte reads one byte.
func (c *Cursor) Byte() byte {
	if len(c.rest) == 0 {
		c.Fail()
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b
}

// Uint64 reads 8 bytes, little-endian.
func (c *Cursor) Uint64() uint64 {
	if len(c.rest) < 8 {
		c.Fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(c.rest)
	c.rest = c.rest[8:]
	return v
}

// Uvarint reads an unsigned number.
func (c *Cursor) Uvarint() uint64 {
	if len(c.rest) > 0 && c.rest[0] < 0x80 { // most are lengths of one byte
		v := uint64(c.rest[0])
		c.rest = c.rest[1:]
		return v
	}
	v, n := binary.Uvarint(c.rest)
	if n <= 0 { // cut off, or more than 64 bits
		c.Fail()
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

// Varint reads a signed number.
func (c *Cursor) Varint() int64 {
	v := c.Uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// Bytes reads a bytes field.
func (c *Cursor) Bytes() []byte { return c.Take(c.Uvarint()) }

// Text reads a bytes field as a string, which is a copy.
func (c *Cursor) Text() string { return string(c.Bytes()) }

// Bool reads a bool. It accepts any number, since a later version may know more than two states.
func (c *Cursor) Bool() bool { return c.Uvarint() == 1 }

// Count reads the number of elements that follow, each at least minBytes long. A larger number than
// can follow fails the cursor before anything is allocated for it.
func (c *Cursor) Count(minBytes int) int {
	n := c.Uvarint()
	if n > uint64(len(c.rest)/max(minBytes, 1)) {
		c.Fail()
		return 0
	}
	return int(n)
}

// List reads a list. One of more than most elements fails the cursor.
func (c *Cursor) List(most int) [][]byte {
	n := c.Count(1)
	if n > most {
		c.Fail()
		return nil
	}
	list := make([][]byte, n)
	for i := range list {
		list[i] = c.Bytes()
	}
	return list
}
