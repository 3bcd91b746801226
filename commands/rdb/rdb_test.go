package rdb

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// texts shows elements.
func texts(elements [][]byte) string { return string(bytes.Join(elements, []byte(" "))) }

func TestLengths(t *testing.T) {
	for _, n := range []uint64{0, 63, 64, 1<<14 - 1, 1 << 14, math.MaxUint32, math.MaxUint32 + 1,
		math.MaxUint64} {
		r := NewReader(AppendLength(nil, n), 0)
		if got := r.Length(); got != n || !r.Done() {
			t.Errorf("%d is read as %d", n, got)
		}
	}
	for _, bad := range []string{"", "\x40", "\x80\x00\x00\x00", "\x82", "\xc0"} {
		if r := NewReader([]byte(bad), 0); r.Length() != 0 || !r.Failed() {
			t.Errorf("%q is a length", bad)
		}
	}
	// more than there can be
	if r := NewReader(append(AppendLength(nil, 4), "123"...), 0); r.Items(1) != 0 || !r.Failed() {
		t.Error("four items in three bytes")
	}
}

func TestTexts(t *testing.T) {
	for in, want := range map[string]string{
		"\x03abc": "abc", "\xc0\xfe": "-2", "\xc1\x30\x75": "30000",
		"\xc2\x00\x00\x00\x80":             "-2147483648",
		"\xc3\x05\x0a\x00a\xe0\x00\x00":    "aaaaaaaaaa",
		"\xc3\x08\x0a\x02abc\x80\x02\x00d": "abcabcabcd",
	} {
		r := NewReader([]byte(in), 100)
		if got := r.Text(); string(got) != want || !r.Done() {
			t.Errorf("%q is read as %q", in, got)
		}
	}
	for _, n := range []int32{0, 127, -128, 128, -129, 32767, 32768, math.MinInt32} {
		r := NewReader(AppendInt(nil, n), 0)
		if got := r.Text(); string(got) != strconv.Itoa(int(n)) || !r.Done() {
			t.Errorf("%d is read as %q", n, got)
		}
	}
	for _, bad := range []string{"\x04abc", "\xc1\x00", "\xc4", "\xc3\x01\x01\x00",
		"\xc3\x03\x0a\x20\x00\x00", "\xc3\x02\x7f\x00a", "\xc3\x02\x02\x00a"} {
		r := NewReader([]byte(bad), 100)
		if got := r.Text(); !r.Failed() {
			t.Errorf("%q is read as %q", bad, got)
		}
	}
}

func TestListpacks(t *testing.T) {
	w := &ListpackWriter{}
	var want []string
	for _, n := range []int64{0, 127, 128, -1, 4095, -4096, 4096, 32767, -32768, 1 << 20, -1 << 31,
		math.MaxInt64, math.MinInt64} {
		w.Int(n)
		want = append(want, strconv.FormatInt(n, 10))
	}
	for _, n := range []int{0, 1, 63, 64, 125, 126, 127, 128, 4095, 4096, 20000} {
		text := strings.Repeat("x", n)
		w.Text([]byte(text))
		want = append(want, text)
	}
	b := w.Bytes()
	all, ok := Listpack(b)
	if !ok || texts(all) != strings.Join(want, " ") || len(b) != w.Len() {
		t.Errorf("read %v %d elements of %d", ok, len(all), len(want))
	}
	for i := range b[:60] {
		bad := slices.Clone(b)
		bad[i] ^= 0x55
		Listpack(bad) // whatever it finds
		if _, ok := Listpack(b[:i]); ok {
			t.Errorf("%d bytes of it are one", i)
		}
	}
}

// Listpacks are read with the widths of sizes that Redis writes, and with those that early builds
// of coordd wrote, which had a byte less at two sizes. The latter begin with a byte that is not 0.
func TestListpackWidths(t *testing.T) {
	for _, size := range []int{127, 128, 1<<14 - 2, 1<<14 - 1, 1 << 14, 1<<21 - 2, 1<<21 - 1,
		1 << 21} {
		w := &ListpackWriter{}
		head := map[bool]int{true: 5, false: 2}[size > 4096+5]
		text := strings.Repeat("x", size-head)
		w.Text([]byte(text))
		end := len(w.b)
		w.Text([]byte("next"))
		written := w.b[size:end]
		if all, ok := Listpack(w.Bytes()); !ok || texts(all) != text+" next" {
			t.Errorf("an element of %d bytes is not read", size)
		}
		if got, want := written[0] == 0, size == 1<<14-1 || size == 1<<21-1; got != want {
			t.Errorf("the size of an element of %d bytes is written %x", size, written)
		} else if got {
			w.b = slices.Delete(w.b, size, size+1)
			if all, ok := Listpack(w.Bytes()); !ok || texts(all) != text+" next" {
				t.Errorf("an element of %d bytes with a byte less is not read", size)
			}
		}
	}
}

// The forms of versions before 7.0, written by hand after the descriptions in Redis's sources.
func TestOldForms(t *testing.T) {
	entry := func(body string) string { return "\x00" + body }
	body := strings.Join([]string{entry("\x03abc"), entry("\x40\x46" + strings.Repeat("y", 70)),
		entry("\x80\x00\x00\x00\x02zz"), entry("\xc0\x30\x75"), entry("\xd0\x00\x00\x00\x80"),
		entry("\xe0\xff\xff\xff\xff\xff\xff\xff\x7f"), entry("\xf0\xff\xff\xff"),
		entry("\xfe\x80"), entry("\xf1"), entry("\xfd"), "\xfe\x00\x01\x00\x00\x01q"}, "")
	ziplist := binary.LittleEndian.AppendUint32(nil, uint32(len(body)+11))
	ziplist = append(append(ziplist, 0, 0, 0, 0, 11, 0), body...)
	ziplist = append(ziplist, 0xff)
	want := "abc " + strings.Repeat("y", 70) +
		" zz 30000 -2147483648 9223372036854775807 -1 -128 0 12 q"
	if all, ok := Ziplist(ziplist); !ok || texts(all) != want {
		t.Errorf("ziplist: %v %q", ok, texts(all))
	}
	zipmap := "\x02\x01a\x02\x01xx.\x03foo\x00\x00\xff"
	if all, ok := Zipmap([]byte(zipmap)); !ok || texts(all) != "a xx foo " {
		t.Errorf("zipmap: %v %q", ok, texts(all))
	}
	for _, c := range []struct{ in, want string }{
		{"\x02\x00\x00\x00\x02\x00\x00\x00\xff\xff\x05\x00", "-1 5"},
		{"\x04\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x80", "-2147483648"},
		{"\x08\x00\x00\x00\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f", "9223372036854775807"},
	} {
		if all, ok := Intset([]byte(c.in)); !ok || texts(all) != c.want {
			t.Errorf("%q: %v %q", c.in, ok, texts(all))
		}
	}
	for _, bad := range []string{"", "\x02", "\x03\x00\x00\x00\x01\x00\x00\x00abc",
		"\x02\x00\x00\x00\x02\x00\x00\x00\xff\xff"} {
		if _, ok := Intset([]byte(bad)); ok {
			t.Errorf("%q is a set", bad)
		}
		if _, ok := Zipmap([]byte(bad)); ok {
			t.Errorf("%q is a zipmap", bad)
		}
		if _, ok := Ziplist([]byte(bad)); ok {
			t.Errorf("%q is a ziplist", bad)
		}
	}
	scores := "\xfd\xfe\xff\x031.5\x01x"
	r := NewReader([]byte(scores), 0)
	if a, b, c, d := r.OldDouble(), r.OldDouble(), r.OldDouble(), r.OldDouble(); a == a ||
		!math.IsInf(b, 1) || !math.IsInf(c, -1) || d != 1.5 {
		t.Error(a, b, c, d)
	}
	if r.OldDouble(); !r.Failed() {
		t.Error("a score that is no number")
	}
}

func TestSeals(t *testing.T) {
	b := Seal([]byte("body"), 10)
	if body, ok := Open(b, 10); !ok || string(body) != "body" {
		t.Errorf("%q %v", body, ok)
	}
	if _, ok := Open(b, 9); ok {
		t.Error("a newer version")
	}
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 1
		if _, ok := Open(bad, math.MaxUint16); ok {
			t.Errorf("byte %d may change", i)
		}
	}
}
