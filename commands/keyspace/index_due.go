// How an index finds the entries whose deadlines come first: in the order of (deadline, hash, key),
// which is the same on every node.
//
// Each page's earliest deadline is a leaf of a tree of minima. Most deadlines that come, go or move
// are not the earliest of their page and cost nothing but a comparison.

package keyspace

import "slices"

// deadline is an entry's element of an order of deadlines.
type deadline struct {
	atMs  int64
	hash  uint64
	entry *Entry
}

// deadlineLess orders by time, then by hash and key, which are the same on every node.
func deadlineLess(a, b deadline) bool {
	switch {
	case a.atMs != b.atMs:
		return a.atMs < b.atMs
	case a.hash != b.hash:
		return a.hash < b.hash
	}
	return a.entry.Key() < b.entry.Key()
}

// reorder updates the order of a tree's deadlines after a change of one slot.
func (p *page) reorder(old, s slot) {
	if old.entry != nil && old.due != never {
		p.order.Delete(deadline{old.due, old.hash, old.entry})
	}
	if s.entry != nil && s.due != never {
		p.order.Set(deadline{s.due, s.hash, s.entry})
	}
}

// first returns the entry of a page whose deadline comes first.
func (p *page) first() slot {
	if p.tree != nil {
		d, some := p.order.Min()
		if !some {
			return slot{due: never}
		}
		return slot{d.hash, d.entry, d.atMs}
	}
	first := slot{due: never}
	for i := range p.slots {
		if s := &p.slots[i]; s.due < first.due {
			first = *s
		}
	}
	return first
}

// enterEarliest enters the earliest deadline of a page into the tree.
func (x *index) enterEarliest(position int, p *page) {
	x.due.set(x.first(position, p), p.first().due)
}

// replaced is enterEarliest after one deadline took the place of another.
func (x *index) replaced(position int, p *page, old, due int64) {
	first := x.first(position, p)
	switch earliest := x.due.at(first); {
	case due <= earliest:
		x.due.set(first, due)
	case old == earliest:
		x.enterEarliest(position, p)
	}
}

// earliest returns the entry whose deadline comes first. There must be one.
func (x *index) earliest() *Entry { return x.page(x.due.first()).first().entry }

// dueBefore calls f with every deadline before limit.
func (x *index) dueBefore(limit int64, f func(atMs int64)) {
	x.due.below(limit, func(position int) {
		p := x.page(position)
		if p.tree != nil {
			p.order.Scan(func(d deadline) bool {
				if d.atMs < limit {
					f(d.atMs)
				}
				return d.atMs < limit
			})
			return
		}
		for _, s := range p.slots {
			if s.due < limit {
				f(s.due)
			}
		}
	})
}

// minTree is a tree of numbers in which every node is the minimum of the fanOut nodes below it. The
// leaves come first, the root is the last level.
type minTree [][]int64

// fanOut is the binary logarithm of the children of a node: they share a cache line.
const fanOut = 3

// newMinTree returns a tree of n leaves, all never.
func newMinTree(n int) minTree {
	var t minTree
	for {
		t = append(t, slices.Repeat([]int64{never}, n))
		if n == 1 {
			return t
		}
		n = (n-1)>>fanOut + 1
	}
}

// at returns a leaf.
func (t minTree) at(i int) int64 { return t[0][i] }

// min returns the smallest leaf.
func (t minTree) min() int64 { return t[len(t)-1][0] }

// set sets a leaf.
func (t minTree) set(i int, n int64) {
	for _, level := range t {
		if level[i] == n {
			return
		}
		level[i] = n
		i >>= fanOut
		n = slices.Min(below(level, i))
	}
}

// below returns the children of node i, which are in level.
func below(level []int64, i int) []int64 {
	return level[i<<fanOut : min((i+1)<<fanOut, len(level))]
}

// first returns the position of the smallest leaf, of the first one if several are equal.
func (t minTree) first() int {
	i, n := 0, t.min()
	for l := len(t) - 2; l >= 0; l-- {
		i = i<<fanOut + slices.Index(below(t[l], i), n)
	}
	return i
}

// below calls f with the positions of all leaves smaller than limit, in order.
func (t minTree) below(limit int64, f func(i int)) { t.walk(len(t)-1, 0, limit, f) }

func (t minTree) walk(l, i int, limit int64, f func(i int)) {
	switch {
	case t[l][i] >= limit:
	case l == 0:
		f(i)
	default:
		for c := range below(t[l-1], i) {
			t.walk(l-1, i<<fanOut+c, limit, f)
		}
	}
}
