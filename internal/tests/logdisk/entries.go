// What tests put into logs, and how they damage them.

package logdisk

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// Entries returns entries of these sizes from an index on.
func Entries(index uint64, word string, sizes ...int) []*raft.Log {
	var logs []*raft.Log
	for i, size := range sizes {
		data := strings.Repeat(fmt.Sprintf("%s%d.", word, index+uint64(i)), size/3+1)[:size]
		logs = append(logs, &raft.Log{Index: index + uint64(i), Term: 1, Data: []byte(data)})
	}
	return logs
}

// bitsApart is how far apart the bits are that are changed: in make soak it is each.
func bitsApart() int {
	switch {
	case tier.Soaking():
		return 1
	case tier.Checking():
		return 61
	}
	return 1021
}

// Bits returns the bits of a file's content to change: those near what is not zero.
func Bits(content string, from int) (bits []int) {
	last := -1 << 20
	for at := range len(content) {
		if content[at] != 0 {
			last = at
		}
		near := at-last < 64 || strings.Trim(content[at:min(at+8, len(content))], "\x00") != ""
		for bit := 8 * at; near && bit < 8*at+8; bit++ {
			if bit%bitsApart() == from {
				bits = append(bits, bit)
			}
		}
	}
	return bits
}

// FirstBit is the first bit that is changed.
func FirstBit(t *testing.T) int {
	return rand.New(rand.NewPCG(seeds.Of(t), 0)).IntN(bitsApart())
}
