// The compact forms that Redis has for small collections: all elements in one string.

package rdb

import (
	"encoding/binary"
	"strconv"

	"github.com/coordd/coordd/internal/wire"
)

const endOfList = 0xff

// Listpack returns the elements of a listpack, numbers as decimals; ok is false if it is none.
func Listpack(b []byte) (elements [][]byte, ok bool) {
	c := wire.NewCursor(b)
	if c.Take(4); c.Failed() || uint64(binary.LittleEndian.Uint32(b)) != uint64(len(b)) {
		return nil, false
	}
	c.Take(2) // the number of elements, if there are few
	for !c.Failed() {
		before := c.Len()
		text, end := listpackElement(&c)
		if end {
			return elements, c.Done()
		}
		skipBackLength(&c, before-c.Len())
		elements = append(elements, text)
	}
	return nil, false
}

// listpackElement reads an element without its size.
func listpackElement(c *wire.Cursor) (text []byte, end bool) {
	first := c.Byte()
	number := func(bytes uint64) []byte {
		n, _ := integer(c.Take(bytes))
		return strconv.AppendInt(nil, n, 10)
	}
	switch {
	case first < 0x80:
		return strconv.AppendInt(nil, int64(first), 10), false
	case first < 0xc0:
		return c.Take(uint64(first & 0x3f)), false
	case first < 0xe0: // 13 bits with a sign
		n := int64(first&0x1f)<<8 | int64(c.Byte())
		return strconv.AppendInt(nil, n<<51>>51, 10), false
	case first < 0xf0:
		return c.Take(uint64(first&0x0f)<<8 | uint64(c.Byte())), false
	}
	switch first {
	case 0xf0:
		n, _ := integer(append(c.Take(4), 0))
		return c.Take(uint64(n)), false
	case 0xf1:
		return number(2), false
	case 0xf2:
		return number(3), false
	case 0xf3:
		return number(4), false
	case 0xf4:
		return number(8), false
	case endOfList:
		return nil, true
	}
	c.Fail()
	return nil, false
}

// BackLength returns how many bytes the size of an element of n bytes takes behind it, for reading
// backwards: one for each 7 bits. As on Redis the largest sizes of two bytes and more have one byte
// more than they need.
func BackLength(n int) int {
	switch {
	case n <= 127:
		return 1
	case n < 1<<14-1:
		return 2
	case n < 1<<21-1:
		return 3
	case n < 1<<28-1:
		return 4
	}
	return 5
}

// skipBackLength skips the size of an element of n bytes. Builds of coordd before 0.2 was released
// wrote it without the byte that it does not need: then its first byte is not zero.
func skipBackLength(c *wire.Cursor, n int) {
	bytes, rest := BackLength(n), c.Rest()
	if n>>(7*(bytes-1)) == 0 && len(rest) > 0 && rest[0] != 0 {
		bytes--
	}
	c.Take(uint64(bytes))
}

// ListpackWriter makes a listpack.
type ListpackWriter struct {
	b     []byte
	count int
}

// Len returns the number of bytes so far.
func (w *ListpackWriter) Len() int { return len(w.b) + 7 }

// Text appends a string.
func (w *ListpackWriter) Text(text []byte) {
	start := len(w.b)
	switch n := len(text); {
	case n < 1<<6:
		w.b = append(w.b, 0x80|byte(n))
	case n < 1<<12:
		w.b = append(w.b, 0xe0|byte(n>>8), byte(n))
	default:
		w.b = binary.LittleEndian.AppendUint32(append(w.b, 0xf0), uint32(n))
	}
	w.b = append(w.b, text...)
	w.appendSize(start)
}

// Int appends a number.
func (w *ListpackWriter) Int(n int64) {
	start := len(w.b)
	switch {
	case n >= 0 && n < 1<<7:
		w.b = append(w.b, byte(n))
	case n >= -1<<12 && n < 1<<12:
		w.b = append(w.b, 0xc0|byte(n>>8)&0x1f, byte(n))
	case n >= -1<<15 && n < 1<<15:
		w.b = binary.LittleEndian.AppendUint16(append(w.b, 0xf1), uint16(n))
	case n >= -1<<31 && n < 1<<31:
		w.b = binary.LittleEndian.AppendUint32(append(w.b, 0xf3), uint32(n))
	default:
		w.b = binary.LittleEndian.AppendUint64(append(w.b, 0xf4), uint64(n))
	}
	w.appendSize(start)
}

// appendSize appends the size of the element that began at start, in groups of 7 bits.
func (w *ListpackWriter) appendSize(start int) {
	n := len(w.b) - start
	bytes := BackLength(n)
	for i := bytes - 1; i >= 0; i-- {
		group := byte(n>>(7*i)) & 127
		if i < bytes-1 {
			group |= 128
		}
		w.b = append(w.b, group)
	}
	w.count++
}

// Bytes returns the listpack.
func (w *ListpackWriter) Bytes() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, w.Len()), uint32(w.Len()))
	b = binary.LittleEndian.AppendUint16(b, uint16(min(w.count, 1<<16-1)))
	return append(append(b, w.b...), endOfList)
}

// Ziplist returns the elements of a ziplist, which listpacks replaced in Redis 7.0; ok is false if
// it is none.
func Ziplist(b []byte) (elements [][]byte, ok bool) {
	c := wire.NewCursor(b)
	if c.Take(4); c.Failed() || uint64(binary.LittleEndian.Uint32(b)) != uint64(len(b)) {
		return nil, false
	}
	c.Take(4 + 2) // where the last element is, and their number
	for !c.Failed() {
		switch previous := c.Byte(); previous { // the size of the element before
		case endOfList:
			return elements, c.Done()
		case 254:
			c.Take(4)
		}
		elements = append(elements, ziplistElement(&c))
	}
	return nil, false
}

// ziplistElement reads an element without the size of the one before.
func ziplistElement(c *wire.Cursor) []byte {
	first := c.Byte()
	switch first >> 6 {
	case 0:
		return c.Take(uint64(first))
	case 1:
		return c.Take(uint64(first&0x3f)<<8 | uint64(c.Byte()))
	case 2:
		var n uint64
		for range 4 {
			n = n<<8 | uint64(c.Byte())
		}
		return c.Take(n)
	}
	var n int64
	switch first {
	case 0xc0:
		n, _ = integer(c.Take(2))
	case 0xd0:
		n, _ = integer(c.Take(4))
	case 0xe0:
		n, _ = integer(c.Take(8))
	case 0xf0:
		n, _ = integer(c.Take(3))
	case 0xfe:
		n, _ = integer(c.Take(1))
	default:
		if first < 0xf1 || first > 0xfd {
			c.Fail()
		}
		n = int64(first&0x0f) - 1
	}
	return strconv.AppendInt(nil, n, 10)
}

// Intset returns the members of a set of integers; ok is false if it is none.
func Intset(b []byte) (members [][]byte, ok bool) {
	if len(b) < 8 {
		return nil, false
	}
	bytes, count := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if b = b[8:]; bytes != 2 && bytes != 4 && bytes != 8 ||
		uint64(len(b)) != uint64(bytes)*uint64(count) {
		return nil, false
	}
	for ; len(b) > 0; b = b[bytes:] {
		n, _ := integer(b[:bytes])
		members = append(members, strconv.AppendInt(nil, n, 10))
	}
	return members, true
}

// Zipmap returns the names and values of a zipmap, the form of small hashes before Redis 2.6; ok is
// false if it is none.
func Zipmap(b []byte) (elements [][]byte, ok bool) {
	c := wire.NewCursor(b)
	c.Byte() // the number of pairs, if there are few
	for !c.Failed() {
		first := c.Byte()
		if first == endOfList {
			return elements, c.Done() && len(elements)%2 == 0
		}
		size := uint64(first)
		if first == 254 {
			n, _ := integer(append(c.Take(4), 0))
			size = uint64(n)
		}
		free := uint64(0)
		if len(elements)%2 == 1 {
			free = uint64(c.Byte())
		}
		elements = append(elements, c.Take(size))
		c.Take(free)
	}
	return nil, false
}
