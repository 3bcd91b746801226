package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

func TestNumbers(t *testing.T) {
	b := append([]byte(nil), 7)
	b = binary.LittleEndian.AppendUint64(b, math.MaxUint64-1)
	numbers := []uint64{0, 1, 127, 128, 1<<14 - 1, 1 << 14, 1<<63 - 1, math.MaxUint64}
	for _, v := range numbers {
		start := len(b)
		b = binary.AppendUvarint(b, v)
		if n := UvarintLen(v); n != len(b)-start {
			t.Errorf("UvarintLen(%d) is %d, want %d", v, n, len(b)-start)
		}
	}
	signed := []int64{0, -1, 1, -64, 64, math.MinInt64, math.MaxInt64}
	for _, v := range signed {
		b = binary.AppendVarint(b, v)
	}

	c := NewCursor(b)
	if got := c.Byte(); got != 7 {
		t.Errorf("Byte is %d", got)
	}
	if got := c.Uint64(); got != math.MaxUint64-1 {
		t.Errorf("Uint64 is %d", got)
	}
	for _, want := range numbers {
		if got := c.Uvarint(); got != want {
			t.Errorf("Uvarint is %d, want %d", got, want)
		}
	}
	for _, want := range signed {
		if got := c.Varint(); got != want {
			t.Errorf("Varint is %d, want %d", got, want)
		}
	}
	if !c.Done() {
		t.Errorf("%q is left", c.Rest())
	}
}

func TestFields(t *testing.T) {
	list := [][]byte{[]byte("a"), {}, bytes.Repeat([]byte("b"), 300)}
	b := AppendBytes(AppendBytes(nil, "text"), []byte{})
	b = AppendBool(AppendBool(b, true), false)
	b = append(AppendList(b, list), "rest"...)

	c := NewCursor(b)
	if got := c.Text(); got != "text" {
		t.Errorf("Text is %q", got)
	}
	if got := c.Bytes(); got == nil || len(got) != 0 {
		t.Errorf("empty Bytes are %v", got)
	}
	if !c.Bool() || c.Bool() {
		t.Error("Bool differs from what AppendBool got")
	}
	if got := c.List(3); !slices.EqualFunc(got, list, bytes.Equal) {
		t.Errorf("List is %q", got)
	}
	if c.Len() != 4 || string(c.Rest()) != "rest" || c.Done() {
		t.Errorf("%q is left", c.Rest())
	}
	rest := c.Take(4)
	if !c.Done() || cap(rest) != 4 {
		t.Errorf("Take(4) is %q with capacity %d, done: %v", rest, cap(rest), c.Done())
	}
}

// Each read fails, and leaves a cursor that stays failed and empty.
func TestFailures(t *testing.T) {
	const more = "\x01more"
	for _, test := range []struct {
		name, input string
		read        func(c *Cursor) bool // reports whether it returned zero
	}{
		{"byte", "", func(c *Cursor) bool { return c.Byte() == 0 }},
		{"uint64", "1234567", func(c *Cursor) bool { return c.Uint64() == 0 }},
		{"uvarint", "", func(c *Cursor) bool { return c.Uvarint() == 0 }},
		{"uvarint cut off", "\x80\x80", func(c *Cursor) bool { return c.Uvarint() == 0 }},
		{"uvarint of 65 bits", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02" + more,
			func(c *Cursor) bool { return c.Uvarint() == 0 }},
		{"uvarint without end", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80" + more,
			func(c *Cursor) bool { return c.Uvarint() == 0 }},
		{"varint cut off", "\x80", func(c *Cursor) bool { return c.Varint() == 0 }},
		{"bool", "", func(c *Cursor) bool { return !c.Bool() }},
		{"take", "123", func(c *Cursor) bool { return c.Take(4) == nil }},
		{"take all", "123", func(c *Cursor) bool { return c.Take(math.MaxUint64) == nil }},
		{"bytes cut off", "\x05more", func(c *Cursor) bool { return c.Bytes() == nil }},
		{"bytes of 2^64-1", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + more,
			func(c *Cursor) bool { return c.Bytes() == nil }},
		{"string cut off", "\x05more", func(c *Cursor) bool { return c.Text() == "" }},
		{"count", "\x05more", func(c *Cursor) bool { return c.Count(1) == 0 }},
		{"count of pairs", "\x03more", func(c *Cursor) bool { return c.Count(2) == 0 }},
		{"count of nothing", "\x05more", func(c *Cursor) bool { return c.Count(0) == 0 }},
		{"count of 2^63", "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01" + more,
			func(c *Cursor) bool { return c.Count(1) == 0 }},
		{"long list", "\x03\x00\x00\x00" + more, func(c *Cursor) bool { return c.List(2) == nil }},
		{"list cut off", "\x02\x00\x05", func(c *Cursor) bool { return len(c.List(9)) == 2 }},
		{"refused by the caller", more, func(c *Cursor) bool { c.Fail(); return true }},
	} {
		c := NewCursor([]byte(test.input))
		if !test.read(&c) {
			t.Errorf("%s: the value is not zero", test.name)
		}
		if !c.Failed() || c.Done() || c.Len() != 0 || len(c.Rest()) != 0 {
			t.Errorf("%s: failed %v, done %v, %d bytes left", test.name, c.Failed(), c.Done(),
				c.Len())
		}
		if c.Byte() != 0 || c.Bytes() != nil || c.Uvarint() != 0 || !c.Failed() {
			t.Errorf("%s: the cursor goes on after the failure", test.name)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	b := AppendBytes(binary.AppendVarint(binary.AppendUvarint(nil, 1<<40), -5), "text")
	if n := testing.AllocsPerRun(100, func() {
		c := NewCursor(b)
		c.Uvarint()
		c.Varint()
		c.Bytes()
		if !c.Done() {
			t.Error("not done")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCursor runs any sequence of reads, one for each byte of plan, over any input. What a cursor
// returns is a part of the input, in order, and encodes to at most the bytes that it took.
func FuzzCursor(f *testing.F) {
	f.Add([]byte("\x05\x01\x02\x03\x04\x06\x07"),
		[]byte("\x04text\x01\x80\x01\x00\x00\x00\x00\x00\x00\x00\x01\x02"))
	f.Add([]byte("\x07\x00"), []byte("\x02\x01a\x01b\x05"))
	f.Add([]byte("\x02\x02\x03"), []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x80\x00\x80"))
	f.Fuzz(func(t *testing.T, plan, input []byte) {
		c := NewCursor(input)
		for _, op := range plan {
			before, failed := len(input)-c.Len(), c.Failed()
			fields, least := step(&c, op)
			after := len(input) - c.Len()
			if failed && (!c.Failed() || after != len(input)) {
				t.Fatal("a failed cursor recovers")
			}
			if c.Failed() {
				if c.Len() != 0 || c.Done() {
					t.Fatalf("a failed cursor has %d bytes left", c.Len())
				}
				continue
			}
			if after < before || after-before < least {
				t.Fatalf("operation %d moves from %d to %d, want %d bytes", op, before, after,
					least)
			}
			part := input[before:after]
			for _, b := range fields {
				i := bytes.Index(part, b)
				if i < 0 || cap(b) != len(b) {
					t.Fatalf("operation %d returns %q with capacity %d of %q", op, b, cap(b), part)
				}
				part = part[i+len(b):]
			}
		}
	})
}

// step runs one read. It returns the parts of the input that the cursor returned, and the least
// number of bytes that they and the numbers take.
func step(c *Cursor, op byte) (fields [][]byte, least int) {
	switch op % 10 {
	case 0:
		c.Byte()
		return nil, 1
	case 1:
		c.Uint64()
		return nil, 8
	case 2:
		return nil, UvarintLen(c.Uvarint())
	case 3:
		v := c.Varint()
		return nil, len(binary.AppendVarint(nil, v))
	case 4:
		b := c.Bytes()
		return [][]byte{b}, len(AppendBytes(nil, b))
	case 5:
		b := c.Take(uint64(op))
		return [][]byte{b}, int(op)
	case 6:
		return nil, len(AppendBytes(nil, c.Text()))
	case 7:
		list := c.List(int(op))
		return list, len(AppendList(nil, list))
	case 8:
		c.Bool()
		return nil, 1
	default:
		n := c.Count(int(op) / 10)
		if n > c.Len() {
			panic("more elements than bytes")
		}
		return nil, UvarintLen(uint64(n))
	}
}
