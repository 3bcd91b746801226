package keyspace

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/coordd/coordd/internal/tests/seeds"
)

// marked checks what an index notes of its pages, as the pages themselves say it.
func marked(t *testing.T, x *index) {
	t.Helper()
	counts, sizes := make([]int, len(x.dir)), make([]int, len(x.sizes))
	some := make([][1 << partBits / 64]uint64, len(x.dir))
	pages := [maxDepth + 1]int{}
	total := 0
	for at := 0; at < 1<<x.depth; {
		p := x.page(at)
		width := 1 << (x.depth - p.depth)
		if at%width != 0 {
			t.Fatalf("a page of depth %d starts at %d of depth %d", p.depth, at, x.depth)
		}
		for i := range width {
			if x.page(at+i) != p {
				t.Fatalf("position %d has another page than %d", at+i, at)
			}
		}
		n := p.len()
		counts[at>>partBits] += n
		sizes[at>>partBits>>groupBits] += n
		total += n
		pages[p.depth]++
		if n > 0 {
			some[at>>partBits][at%(1<<partBits)/64] |= 1 << (at % 64)
		}
		at += width
	}
	for i := range x.dir {
		if x.dir[i].count != counts[i] || x.dir[i].some != some[i] {
			t.Fatalf("part %d counts %d with %x, has %d with %x", i, x.dir[i].count, x.dir[i].some,
				counts[i], some[i])
		}
	}
	for i, n := range sizes {
		if x.sizes[i] != n {
			t.Fatalf("group %d counts %d, has %d", i, x.sizes[i], n)
		}
	}
	if total != x.size || pages != x.used {
		t.Fatalf("%d entries, size %d; pages %v, counted %v", total, x.size, pages, x.used)
	}
}

// What an index notes of its pages is so after every history: keys with chosen, equal and spread
// hashes, that come and go at directories of every depth, and in frozen copies.
func TestNotesOfPages(t *testing.T) {
	seed, groups := seeds.Of(t), 0
	for round := range uint64(25) {
		g := rand.New(rand.NewPCG(seed, round))
		chosen := g.Uint64()
		shift := g.IntN(50)
		m := newIndexModel(t, func(key string) uint64 {
			h := hashOf(key)
			switch {
			case key[0] == 'c':
				return chosen ^ h>>(shift+14)
			case h%31 == 0:
				return ^chosen
			}
			return h
		})
		m.Rand = g
		type copied struct {
			x       *index
			content []slot
		}
		var frozen []copied
		for step := range 8 {
			aim := []int{5, 50, 500, 500, 3000, 3000, 20_000, 60_000}[g.IntN(8)]
			prefix := "k"
			switch {
			case round%5 == 0 && step == 0:
				aim = 60_000 // so that chosen hashes have a large directory
			case round%5 == 0 && step == 1, g.IntN(3) == 0:
				prefix, aim = "c", max(500, min(aim, 3000))
			}
			for range 2 * aim {
				key := prefix + strconv.Itoa(g.IntN(2*aim))
				switch e := m.entries[key]; {
				case g.IntN(12) == 0 && e != nil && e.deadline == 0:
					again := newString([]byte(key), nil)
					m.x.replace(m.hash(key), e, again)
					m.entries[key] = again
				case g.IntN(2) == 0:
					m.set(key)
				default:
					m.remove(key)
				}
			}
			if g.IntN(3) == 0 {
				for _, s := range m.content() {
					if g.IntN(20) > 0 {
						m.remove(s.entry.Key())
					}
				}
			}
			marked(t, m.x)
			groups = max(groups, len(m.x.sizes))
			m.holds(m.x, m.content())
			m.expires()
			if g.IntN(2) == 0 {
				frozen = append(frozen, copied{m.x.freeze(uint64(step + 2)), m.content()})
			}
		}
		for _, f := range frozen {
			marked(t, f.x)
			m.holds(f.x, f.content)
		}
	}
	if groups < 2 {
		t.Error("no directory had several groups")
	}
}
