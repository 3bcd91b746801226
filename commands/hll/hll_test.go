package hll

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// Sparse and dense strings of the same elements have the same registers, and the estimate is near
// the truth: its standard error is 0.81 %.
func TestSparseAndDense(t *testing.T) {
	b := New()
	d, err := densify(New())
	if err != nil {
		t.Fatal(err)
	}
	sparseUntil := 0
	for n := 1; n <= 100_000; n++ {
		element := fmt.Append(nil, "element ", n)
		var rose, denseRose bool
		if b, rose, err = Add(b, element); err != nil {
			t.Fatal(err)
		}
		if d, denseRose, err = Add(d, element); err != nil || rose != denseRose {
			t.Fatal(n, rose, denseRose, err)
		}
		if b[encodingAt] == sparse {
			sparseUntil = n
			if len(b) > MaxSparse {
				t.Fatalf("%d elements take %d bytes", n, len(b))
			}
		}
		if n != 10 && n != 1000 && n != 100_000 {
			continue
		}
		var r, dr Registers
		if _, err := r.Join(b); err != nil {
			t.Fatal(err)
		}
		if _, err := dr.Join(d); err != nil || r != dr {
			t.Fatalf("%d elements have other registers (%v)", n, err)
		}
		if got := float64(r.Count()); math.Abs(got-float64(n)) > 0.04*float64(n) {
			t.Errorf("%d elements count as %v", n, got)
		}
	}
	if sparseUntil < 1000 || sparseUntil == 100_000 {
		t.Errorf("sparse until %d elements", sparseUntil)
	}
}

// Registers that are full count the same on every processor.
func TestFullRegisters(t *testing.T) {
	for _, most := range []byte{rankBits + 1, 1<<width - 1} {
		var r Registers
		for i := range r {
			r[i] = most
		}
		if n := r.Count(); n != largest {
			t.Errorf("%d in each: %d", most, n)
		}
		r[0] = 0
		if n := r.Count(); n == 0 || n > largest {
			t.Errorf("%d in each but one: %d", most, n)
		}
	}
}

// Whatever Check accepts can be read, added to and merged: it is an error or has all registers.
func FuzzStrings(f *testing.F) {
	f.Add(New(), []byte("a"))
	f.Add(append(New()[:headSize], 0x7f, 0xff, 0x80), []byte("b"))
	f.Add(append(New()[:headSize], 0x7f), []byte("c"))
	f.Add(append(New()[:headSize], bytes.Repeat([]byte{0xff, 0x80, 0x00}, 1500)...), []byte("d"))
	f.Fuzz(func(t *testing.T, b, element []byte) {
		if Check(b) != nil {
			return
		}
		var before, after Registers
		if _, err := before.Join(b); err != nil {
			_, _, _ = Add(bytes.Clone(b), element)
			_, _ = Merge(bytes.Clone(b), &Registers{7: 3, 9000: 40}, false)
			return
		}
		out, _, err := Add(bytes.Clone(b), element)
		if err != nil {
			t.Fatal(err)
		}
		index, rank := place(element)
		before[index] = max(before[index], rank)
		if _, err := after.Join(out); err != nil || after != before {
			t.Fatalf("register %d of %d is %d, %v", index, rank, after[index], err)
		}
		merged, err := Merge(New(), &before, false)
		if err != nil {
			t.Fatal(err)
		}
		var again Registers
		if _, err := again.Join(merged); err != nil || again != before {
			t.Fatal("a merge into nothing has other registers", err)
		}
		_ = before.Count()
	})
}
