package commands

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/coordd/coordd/internal/tests/seeds"
)

// bitRules say whether a bit is in the result: whether the first source has it, and how many have.
var bitRules = map[string]func(first bool, have, sources int) bool{
	"AND":   func(_ bool, have, sources int) bool { return have == sources },
	"OR":    func(_ bool, have, _ int) bool { return have > 0 },
	"XOR":   func(_ bool, have, _ int) bool { return have%2 == 1 },
	"NOT":   func(first bool, _, _ int) bool { return !first },
	"DIFF":  func(first bool, have, _ int) bool { return first && have == 1 },
	"DIFF1": func(first bool, have, _ int) bool { return !first && have > 0 },
	"ANDOR": func(first bool, have, _ int) bool { return first && have > 1 },
	"ONE":   func(_ bool, have, _ int) bool { return have == 1 },
}

// TestBitopByBit joins strings of random lengths, some absent, and compares with what the
// operations do to each bit.
func TestBitopByBit(t *testing.T) {
	seed := seeds.Of(t)
	g := rand.New(rand.NewPCG(seed, 0))
	if len(bitRules) != len(bitOps) {
		t.Fatalf("%d rules of %d operations", len(bitRules), len(bitOps))
	}
	for i := range bitOps {
		op := &bitOps[i]
		rule := bitRules[op.name]
		for range 500 {
			n := 1 + g.IntN(5)
			switch {
			case op.kind == bitNot:
				n = 1
			case op.first != nil:
				n++
			}
			sources, size := make([][]byte, n), 0
			for i := range sources {
				sources[i] = make([]byte, g.IntN(3)*g.IntN(20))
				for j := range sources[i] {
					sources[i][j] = byte(g.Uint32())
				}
				size = max(size, len(sources[i]))
			}
			want := make([]byte, size)
			for at := range size * 8 {
				have := 0
				for _, s := range sources {
					have += int(bitAt(s, at))
				}
				if rule(bitAt(sources[0], at) == 1, have, n) {
					want[at>>3] |= 1 << (7 - at&7)
				}
			}
			if got := op.apply(sources, size); !bytes.Equal(got, want) {
				t.Fatalf("%s of %x: %x, want %x", op.name, sources, got, want)
			}
		}
	}
}
