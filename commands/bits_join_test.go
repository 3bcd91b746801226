package commands

import (
	"bytes"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math/rand/v2"
	"testing"
)

// TestBitopByByte joins strings of random lengths, some absent, and compares with what the
// operations do to each byte.
func TestBitopByByte(t *testing.T) {
	seed := seeds.Of(t)
	g := rand.New(rand.NewPCG(seed, 0))
	for name, of := range map[string]func(a, b byte) byte{
		"AND": func(a, b byte) byte { return a & b }, "OR": func(a, b byte) byte { return a | b },
		"XOR": func(a, b byte) byte { return a ^ b },
	} {
		join, _ := bitJoin([]byte(name))
		for range 500 {
			sources, size := make([][]byte, 1+g.IntN(5)), 0
			for i := range sources {
				sources[i] = make([]byte, g.IntN(3)*g.IntN(20))
				for j := range sources[i] {
					sources[i][j] = byte(g.Uint32())
				}
				size = max(size, len(sources[i]))
			}
			want := make([]byte, size)
			copy(want, sources[0])
			for _, s := range sources[1:] {
				s = append(bytes.Clone(s), make([]byte, size-len(s))...)
				for i := range want {
					want[i] = of(want[i], s[i])
				}
			}
			if got := joinBits(join, sources, size); !bytes.Equal(got, want) {
				t.Fatalf("%s of %x: %x, want %x", name, sources, got, want)
			}
		}
	}
}
