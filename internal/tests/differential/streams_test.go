// Streams of many nodes, and trims of them. Random calls alone seldom make a stream longer than a
// node.

package differential

import (
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// TestStreamNodes adds entries of all sizes to a stream, deletes and trims some, and compares what
// is left with redis-server: which entries ~ removes depends on where its nodes end.
func TestStreamNodes(t *testing.T) {
	d := newDifferential(t)
	seed := seeds.Of(t)
	rounds := uint64(4)
	if tier.Soaking() {
		rounds = 40
	}
	for round := range rounds {
		g := streamCalls{Rand: rand.New(rand.NewPCG(seed, round))}
		if failure := d.play(2, g.requests(1000)); failure != "" {
			t.Fatalf("seed %d, round %d: %s", seed, round, failure)
		}
	}
}

// streamCalls makes calls on one stream.
type streamCalls struct {
	*rand.Rand
	ms, seq uint64   // the last id
	ids     []string // all so far
}

func (g *streamCalls) requests(n int) iter.Seq[request] {
	sizes := []int{1, 10, 40, 100, 1000, 5000}[g.IntN(6)]
	return func(yield func(request) bool) {
		for range n {
			if !yield(request{calls: [][][]byte{g.call(sizes)}}) {
				return
			}
		}
	}
}

// call returns an XADD mostly, with texts of up to size bytes.
func (g *streamCalls) call(size int) [][]byte {
	words := "XINFO STREAM s"
	switch n := g.IntN(40); {
	case n == 1:
		words = "XTRIM s " + g.trim()
	case n == 2:
		words = "XRANGE s - +"
	case n == 3 && len(g.ids) > 0:
		words = "XDEL s"
		at := g.IntN(len(g.ids))
		for _, id := range g.ids[at:min(at+1+g.IntN(150), len(g.ids))] {
			if g.IntN(8) > 0 {
				words += " " + id
			}
		}
		words += " " + g.ids[at]
	case n > 3:
		words = "XADD s"
		if g.IntN(20) == 0 {
			words += " " + g.trim()
		}
		words += " " + g.nextID()
		for i := range 1 + g.IntN(2) + g.IntN(60)/59*70 {
			words += " f" + strconv.Itoa(i*g.IntN(8)/7) + " " + g.text(size)
		}
	}
	return commandtest.Args(strings.Fields(words)...)
}

// trim returns the options of a trim, with ~ mostly.
func (g *streamCalls) trim() string {
	how := "~ "
	if g.IntN(5) == 0 {
		how = "= "
	}
	kept := g.IntN(len(g.ids)/2 + 2)
	words := "MAXLEN " + how + strconv.Itoa(kept)
	if g.IntN(2) == 0 && kept < len(g.ids) {
		words = "MINID " + how + g.ids[len(g.ids)-1-kept]
	}
	if how == "~ " && g.IntN(3) > 0 {
		words += " LIMIT " + strconv.Itoa(g.IntN(350))
	}
	return words
}

// nextID returns an id, whose difference to those before takes one to nine bytes in a node.
func (g *streamCalls) nextID() string {
	if step := g.Uint64N(1 << g.IntN(34)); g.IntN(2) == 0 {
		g.seq += 1 + step
	} else {
		g.ms, g.seq = g.ms+1+step, g.Uint64N(1<<g.IntN(40))
	}
	id := strconv.FormatUint(g.ms, 10) + "-" + strconv.FormatUint(g.seq, 10)
	g.ids = append(g.ids, id)
	return id
}

// text returns a number or another text.
func (g *streamCalls) text(size int) string {
	if g.IntN(3) == 0 {
		return strconv.FormatInt(g.Int64()>>g.IntN(64)*int64(1-2*g.IntN(2)), 10)
	}
	return strings.Repeat("x", 1+g.IntN(size))
}
