// The tree for the middle of a list. Its nodes are immutable, so copies of a list share them; a
// change copies the few nodes on its path. Leaves hold pieces of the list, and each node knows the
// number of elements below it, which finds an element by position. It is balanced as AVL trees are:
// Blelloch, Ferizovic, Sun: Just Join for Parallel Ordered Sets, 2016. btree, which the other
// collections use, inserts by key only.

package keyspace

import "slices"

// pieceMax is the maximum number of elements in a leaf.
const pieceMax = 64

// element is an element of a list with its hash, which saves reading it again for the list's Sum
// and in searches.
type element struct {
	hash  uint64
	value string
}

// digest is a hash of a sequence of elements that depends on their order: sum is the polynomial of
// their hashes at digestBase, and power is digestBase to the number of elements.
type digest struct{ sum, power uint64 }

const digestBase = 0x9e3779b97f4a7c15

// then returns the digest of d's elements followed by e's.
func (d digest) then(e digest) digest { return digest{d.sum + d.power*e.sum, d.power * e.power} }

func digestOf(piece []element) digest {
	d := digest{power: 1}
	for _, e := range piece {
		d.sum += d.power * e.hash
		d.power *= digestBase
	}
	return d
}

// rope is a node: a leaf, which has a piece, or an inner node, which has two children. An empty
// rope is nil, and never a child.
type rope struct {
	left, right *rope
	piece       []element
	count       int
	height      int // 0 for a leaf
	bytes       int // what the elements take, by itemSize
	digest      digest
}

// leaf returns a rope of one piece, which it keeps, or nil if the piece is empty.
func leaf(piece []element) *rope {
	if len(piece) == 0 {
		return nil
	}
	return &rope{piece: piece, count: len(piece), bytes: itemsSize(piece),
		digest: digestOf(piece)}
}

// link returns a node of two children whose heights differ by at most one.
func link(l, r *rope) *rope {
	return &rope{left: l, right: r, count: l.count + r.count, height: max(l.height, r.height) + 1,
		bytes: l.bytes + r.bytes, digest: l.digest.then(r.digest)}
}

// size returns the bytes that a rope's elements count.
func (t *rope) size() int {
	if t == nil {
		return 0
	}
	return t.bytes
}

// balance is link for heights that differ by at most two.
func balance(l, r *rope) *rope {
	switch {
	case l.height > r.height+1 && l.left.height >= l.right.height:
		return link(l.left, link(l.right, r))
	case l.height > r.height+1:
		return link(link(l.left, l.right.left), link(l.right.right, r))
	case r.height > l.height+1 && r.right.height >= r.left.height:
		return link(link(l, r.left), r.right)
	case r.height > l.height+1:
		return link(link(l, r.left.left), link(r.left.right, r.right))
	}
	return link(l, r)
}

// concat concatenates two ropes of any height.
func concat(l, r *rope) *rope {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	case l.height > r.height+1:
		return balance(l.left, concat(l.right, r))
	case r.height > l.height+1:
		return balance(concat(l, r.left), r.right)
	}
	return link(l, r)
}

// join is concat that merges the two leaves that meet, if they fit, so that small pieces grow
// together again.
func join(l, r *rope) *rope {
	if l == nil || r == nil {
		return concat(l, r)
	}
	a, b := l.last(), r.first()
	if len(a)+len(b) > pieceMax {
		return concat(l, r)
	}
	return concat(concat(l.withoutLast(), leaf(slices.Concat(a, b))), r.withoutFirst())
}

func (t *rope) first() []element {
	for t.height > 0 {
		t = t.left
	}
	return t.piece
}

func (t *rope) last() []element {
	for t.height > 0 {
		t = t.right
	}
	return t.piece
}

// withoutFirst returns t without its first leaf.
func (t *rope) withoutFirst() *rope {
	if t.height == 0 {
		return nil
	}
	return concat(t.left.withoutFirst(), t.right)
}

// withoutLast returns t without its last leaf.
func (t *rope) withoutLast() *rope {
	if t.height == 0 {
		return nil
	}
	return concat(t.left, t.right.withoutLast())
}

// at returns the element at position i, 0 to count-1.
func (t *rope) at(i int) element {
	for t.height > 0 {
		if i < t.left.count {
			t = t.left
		} else {
			i -= t.left.count
			t = t.right
		}
	}
	return t.piece[i]
}

// set returns t with e in place of the element at i.
func (t *rope) set(i int, e element) *rope {
	switch {
	case t.height == 0:
		piece := slices.Clone(t.piece)
		piece[i] = e
		return leaf(piece)
	case i < t.left.count:
		return link(t.left.set(i, e), t.right)
	}
	return link(t.left, t.right.set(i-t.left.count, e))
}

// insert returns t with e before the element at i.
func (t *rope) insert(i int, e element) *rope {
	switch {
	case t.height == 0:
		piece := slices.Concat(t.piece[:i], []element{e}, t.piece[i:])
		if half := len(piece) / 2; len(piece) > pieceMax {
			return link(leaf(slices.Clone(piece[:half])), leaf(slices.Clone(piece[half:])))
		}
		return leaf(piece)
	case i < t.left.count:
		return balance(t.left.insert(i, e), t.right)
	}
	return balance(t.left, t.right.insert(i-t.left.count, e))
}

// split splits t before the element at i, 0 to count; an empty side is nil.
func (t *rope) split(i int) (before, from *rope) {
	switch {
	case i == 0:
		return nil, t
	case i == t.count:
		return t, nil
	case t.height == 0: // clone: a subslice would keep the whole piece in memory
		return leaf(slices.Clone(t.piece[:i])), leaf(slices.Clone(t.piece[i:]))
	case i <= t.left.count:
		before, from = t.left.split(i)
		return before, concat(from, t.right)
	}
	before, from = t.right.split(i - t.left.count)
	return concat(t.left, before), from
}

// without returns t without the elements at sorted positions; base is the position of t's first
// element.
func (t *rope) without(base int, positions []int) *rope {
	if len(positions) == 0 {
		return t
	}
	if t.height == 0 {
		return leaf(keepOthers(slices.Clone(t.piece), base, positions))
	}
	cut, _ := slices.BinarySearch(positions, base+t.left.count)
	return join(t.left.without(base, positions[:cut]),
		t.right.without(base+t.left.count, positions[cut:]))
}

// keepOthers removes the elements at sorted positions from piece, whose first element is at
// position base.
func keepOthers(piece []element, base int, positions []int) []element {
	kept := piece[:0]
	for i, e := range piece {
		if len(positions) > 0 && positions[0] == base+i {
			positions = positions[1:]
			continue
		}
		kept = append(kept, e)
	}
	clear(piece[len(kept):]) // release what was removed
	return kept
}

// ascend calls f with the pieces from position i on until it returns false.
func (t *rope) ascend(i int, f func([]element) bool) bool {
	if t.height == 0 {
		return f(t.piece[i:])
	}
	if i < t.left.count {
		return t.left.ascend(i, f) && t.right.ascend(0, f)
	}
	return t.right.ascend(i-t.left.count, f)
}

// descend calls f with the pieces up to position i, the last first, until it returns false.
func (t *rope) descend(i int, f func([]element) bool) bool {
	if t.height == 0 {
		return f(t.piece[:i+1])
	}
	if i >= t.left.count {
		return t.right.descend(i-t.left.count, f) && t.left.descend(t.left.count-1, f)
	}
	return t.left.descend(i, f)
}
