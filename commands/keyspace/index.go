package keyspace

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// index finds the entries of a database by key, and orders them by (hash, key). SCAN's cursors,
// snapshots and everything else that shows an order use this one: it looks random, as on Redis, yet
// is the same on every node.
//
// It is extendible hashing (Fagin, Nievergelt, Pippenger, Strong: ACM TODS 4(3), 1979) by the
// leading bits of the hash, which keeps the order. A directory leads to pages of up to pageSlots
// sorted slots. A full page is split in two, and the directory doubles when a page needs more bits
// than it has. A lookup is one step into the directory and one into a page, for any number of keys.
//
// It is copy-on-write: freeze copies the directory's outer level, and what belongs to an older
// generation is copied before it changes.
//
// It also finds the entry with the earliest deadline: a tree has the earliest one of each page.
type index struct {
	gen   uint64 // a frozen index may read what has an older generation
	depth int    // the directory has 1<<depth positions
	dir   []part
	sizes []int // entries in the pages that start in each 1<<groupBits parts
	size  int
	used  [maxDepth + 1]int // pages by depth
	due   minTree           // the earliest deadline of each page, at its first position
	gone  int               // entries removed since the directory was resized
}

const (
	// pageSlots is the maximum number of entries in a page, mergeSlots that of two halves that are
	// merged again.
	pageSlots  = 64
	mergeSlots = 24
	// slotStep is how many slots a page makes room for at a time.
	slotStep = 8
	// partBits is the binary logarithm of the positions in a part of the directory.
	partBits = 8
	// groupBits is that of the parts that are counted together.
	groupBits = 6
	maxDepth  = 48
	// Whoever knows the hash can choose keys that share many bits: they double the directory, whose
	// other pages then have many positions each. So that such keys cannot come and go again and
	// again at the price of a few, it halves after as many removals as a shrinkShare of its
	// positions, and pages of more than widest positions stay split.
	shrinkShare = 8
	widest      = 256
)

// part is a piece of the directory, with the number of entries in the pages that start in it, and a
// bit for each position at which a page with entries starts. Pages can stay empty, more than there
// are entries, so who walks the index skips them.
type part struct {
	*pageTable
	count int
	some  [1 << partBits / 64]uint64
}

// next returns the first position from at on where a page with entries starts, or false.
func (d *part) next(at int) (int, bool) {
	for i := at / 64; i < len(d.some); i++ {
		if rest := d.some[i] >> (at % 64); rest != 0 {
			return at + bits.TrailingZeros64(rest), true
		}
		at = (i + 1) * 64
	}
	return 0, false
}

type pageTable struct {
	gen   uint64
	pages [1 << partBits]*page
}

// page holds the entries whose hashes share their leading bits. If too many hashes share more bits
// than a directory should have, which takes an attacker, it becomes a tree.
type page struct {
	gen   uint64
	depth int // how many leading bits are shared
	slots []slot
	tree  *btree.BTreeG[slot]
	order *btree.BTreeG[deadline] // entries of tree that have a deadline
}

// slot holds an entry, with what a search compares: the entry itself is rarely in the processor's
// cache.
type slot struct {
	hash  uint64
	entry *Entry // nil: before every entry of that hash
	due   int64  // its deadline, or never
}

// never is the deadline of an entry without one.
const never = math.MaxInt64

func slotLess(a, b slot) bool { return slotCompare(a, b) < 0 }

func slotCompare(a, b slot) int {
	switch {
	case a.hash != b.hash:
		return cmp.Compare(a.hash, b.hash)
	case a.entry == b.entry:
		return 0
	case a.entry == nil:
		return -1
	case b.entry == nil:
		return 1
	}
	return strings.Compare(a.entry.Key(), b.entry.Key())
}

func newIndex(gen uint64) *index {
	x := &index{gen: gen, due: newMinTree(1)}
	x.dir, x.sizes = []part{{pageTable: &pageTable{gen: gen}}}, make([]int, 1)
	x.dir[0].pages[0] = x.newPage(0)
	return x
}

func (x *index) newPage(depth int) *page {
	x.used[depth]++
	return &page{gen: x.gen, depth: depth}
}

// freeze returns the index as it is now, for reading. Later changes of x have generation gen.
func (x *index) freeze(gen uint64) *index {
	f := *x
	f.dir, f.sizes = slices.Clone(x.dir), slices.Clone(x.sizes)
	f.due = minTree{} // it goes on changing
	x.gen = gen
	return &f
}

// position returns the directory position of a hash.
func (x *index) position(hash uint64) int { return int(hash >> 1 >> (63 - x.depth)) }

func (x *index) page(position int) *page {
	return x.dir[position>>partBits].pages[position&(1<<partBits-1)]
}

// first returns the first of the positions that lead to page p, to which position leads.
func (x *index) first(position int, p *page) int { return position &^ (1<<(x.depth-p.depth) - 1) }

// find returns the entry of a key, or nil.
func (x *index) find(hash uint64, key []byte) *Entry {
	p := x.page(x.position(hash))
	if p.tree != nil {
		s, _ := p.tree.Get(slot{hash: hash, entry: newText(key, nil)})
		return s.entry
	}
	for i := p.seek(hash); i < len(p.slots) && p.slots[i].hash == hash; i++ {
		if e := p.slots[i].entry; e.Key() == view(key) {
			return e
		}
	}
	return nil
}

// guess returns about where a hash is in a page: hashes are spread evenly over it.
func (p *page) guess(hash uint64) int {
	return int((hash << p.depth >> 48) * uint64(len(p.slots)) >> 16)
}

// seek returns the position of the first slot whose hash is not below hash.
func (p *page) seek(hash uint64) int {
	i := p.guess(hash)
	for i > 0 && p.slots[i-1].hash >= hash {
		i--
	}
	for i < len(p.slots) && p.slots[i].hash < hash {
		i++
	}
	return i
}

// search returns the position of the first slot that is not before s.
func (p *page) search(s slot) int {
	i := p.seek(s.hash)
	for i < len(p.slots) && slotLess(p.slots[i], s) {
		i++
	}
	return i
}

// writable returns the page at a position, or a copy of it if a frozen index may see it.
func (x *index) writable(position int) *page {
	p := x.page(position)
	if p.gen == x.gen {
		return p
	}
	c := &page{gen: x.gen, depth: p.depth}
	if p.tree != nil {
		c.tree, c.order = p.tree.IsoCopy(), p.order.IsoCopy()
	} else {
		c.slots = withRoom(p.slots, nil)
	}
	x.lead(x.first(position, p), c)
	return c
}

// lead makes all positions of p, from first on, lead to it.
func (x *index) lead(first int, p *page) {
	for i := range 1 << (x.depth - p.depth) {
		at := first + i
		d := &x.dir[at>>partBits]
		if d.gen != x.gen {
			d.pageTable = &pageTable{gen: x.gen, pages: d.pages}
		}
		d.pages[at&(1<<partBits-1)] = p
	}
}

// count adds n to the number of entries in a page, which has left of them now.
func (x *index) count(position int, p *page, n, left int) {
	first := x.first(position, p)
	x.size += n
	x.sizes[first>>partBits>>groupBits] += n
	x.dir[first>>partBits].count += n
	if left == 0 || left == n {
		x.mark(first, left > 0)
	}
}

// mark notes whether the page that starts at a position has entries.
func (x *index) mark(first int, some bool) {
	at := uint(first) % (1 << partBits)
	word := &x.dir[first>>partBits].some[at/64]
	if *word &^= 1 << (at % 64); some {
		*word |= 1 << (at % 64)
	}
}

// set stores an entry under its key, with that hash, in place of an older one with that key.
func (x *index) set(hash uint64, e *Entry) {
	position := x.position(hash)
	p := x.writable(position)
	s := newSlot(hash, e)
	if p.tree != nil {
		old, over := p.tree.Set(s)
		if !over {
			x.count(position, p, 1, p.len())
		}
		p.reorder(old, s)
		x.enterEarliest(position, p)
		return
	}
	i := p.search(s)
	if i < len(p.slots) && slotCompare(p.slots[i], s) == 0 {
		old := p.slots[i].due
		p.slots[i] = s
		x.replaced(position, p, old, s.due)
		return
	}
	if len(p.slots) == cap(p.slots) {
		p.slots = withRoom(p.slots, nil)
	}
	p.slots = slices.Insert(p.slots, i, s)
	x.count(position, p, 1, len(p.slots))
	if len(p.slots) >= pageSlots {
		x.split(position, p)
		return
	}
	x.replaced(position, p, never, s.due)
}

// replace stores an entry in place of an old one with the same key and deadline, unless that is not
// there any more.
func (x *index) replace(hash uint64, old, e *Entry) {
	position := x.position(hash)
	p := x.page(position)
	if p.tree != nil {
		if s, some := p.tree.Get(slot{hash: hash, entry: old}); some && s.entry == old {
			x.set(hash, e)
		}
		return
	}
	for i := p.seek(hash); i < len(p.slots) && p.slots[i].hash == hash; i++ {
		if p.slots[i].entry == old {
			x.writable(position).slots[i].entry = e
		}
	}
}

// withRoom returns the slots of a and b with room for at least one more.
func withRoom(a, b []slot) []slot {
	n := len(a) + len(b)
	return append(append(make([]slot, 0, n+slotStep-n%slotStep), a...), b...)
}

func newSlot(hash uint64, e *Entry) slot {
	s := slot{hash, e, never}
	if e.deadline != 0 {
		s.due = e.deadline
	}
	return s
}

// split halves a full page until a half has room.
func (x *index) split(position int, p *page) {
	// With evenly spread hashes no page needs more bits than this.
	if p.depth >= min(bits.Len(uint(x.size)), maxDepth) {
		p.tree, p.order = newTree(slotLess), newTree(deadlineLess)
		for _, s := range p.slots {
			p.tree.Set(s)
			p.reorder(slot{}, s)
		}
		p.slots = nil
		x.enterEarliest(position, p)
		return
	}
	if p.depth == x.depth {
		x.double()
		position *= 2
	}
	first := x.first(position, p)
	x.count(position, p, -len(p.slots), 0)
	x.used[p.depth]--
	half := first + 1<<(x.depth-p.depth-1)
	bit := uint64(1) << (63 - p.depth)
	cut := 0
	for cut < len(p.slots) && p.slots[cut].hash&bit == 0 {
		cut++
	}
	low, high := x.newPage(p.depth+1), x.newPage(p.depth+1)
	low.slots, high.slots = withRoom(p.slots[:cut], nil), withRoom(p.slots[cut:], nil)
	x.lead(first, low)
	x.lead(half, high)
	x.count(first, low, len(low.slots), len(low.slots))
	x.count(half, high, len(high.slots), len(high.slots))
	x.enterEarliest(first, low)
	x.enterEarliest(half, high)
	switch pageSlots {
	case len(low.slots):
		x.split(first, low)
	case len(high.slots):
		x.split(half, high)
	}
}

// double gives the directory one more bit.
func (x *index) double() { x.resize(x.depth + 1) }

// resize rebuilds the directory with depth bits, at least as many as any page has.
func (x *index) resize(depth int) {
	old := *x
	x.depth = depth
	x.dir = make([]part, max(1, 1<<depth>>partBits))
	for i := range x.dir {
		x.dir[i].pageTable = &pageTable{gen: x.gen}
	}
	x.sizes = make([]int, (len(x.dir)-1)>>groupBits+1)
	x.size, x.gone = 0, 0
	x.due = newMinTree(1 << depth)
	first := 0
	for position := 0; position < 1<<old.depth; {
		p := old.page(position)
		x.lead(first, p)
		x.count(first, p, p.len(), p.len())
		x.due.set(first, old.due.at(position))
		position += 1 << (old.depth - p.depth)
		first += 1 << (depth - p.depth)
	}
}

func (p *page) len() int {
	if p.tree != nil {
		return p.tree.Len()
	}
	return len(p.slots)
}

// remove removes an entry, whose key has that hash.
func (x *index) remove(hash uint64, e *Entry) {
	position := x.position(hash)
	s := slot{hash: hash, entry: e}
	p := x.writable(position)
	x.gone++
	if p.tree != nil {
		old, had := p.tree.Delete(s)
		if had {
			x.count(position, p, -1, p.tree.Len())
			p.reorder(old, slot{})
		}
		x.enterEarliest(position, p)
		if p.tree.Len() == 0 {
			p.tree, p.order = nil, nil
		}
	} else if i := p.search(s); i < len(p.slots) && slotCompare(p.slots[i], s) == 0 {
		old := p.slots[i].due
		p.slots = slices.Delete(p.slots, i, i+1)
		x.count(position, p, -1, len(p.slots))
		x.replaced(position, p, old, never)
	}
	if p.depth > 0 && p.len() < mergeSlots/2 {
		x.merge(position, p)
	}
}

// merge merges a page with the one that it was split from, if both have become small, and halves
// the directory if possible.
func (x *index) merge(position int, p *page) {
	first := x.first(position, p)
	width := 1 << (x.depth - p.depth)
	low, high := first&^width, first|width
	a, b := x.page(low), x.page(high)
	if a.depth != b.depth || a.tree != nil || b.tree != nil || width > widest ||
		len(a.slots)+len(b.slots) > mergeSlots {
		return
	}
	x.count(low, a, -len(a.slots), 0)
	x.count(high, b, -len(b.slots), 0)
	x.used[p.depth] -= 2
	m := x.newPage(p.depth - 1)
	m.slots = withRoom(a.slots, b.slots)
	x.lead(low, m)
	x.count(low, m, len(m.slots), len(m.slots))
	x.due.set(high, never)
	x.enterEarliest(low, m)
	if x.depth > 1 && x.used[x.depth] == 0 && x.used[x.depth-1] == 0 &&
		x.gone >= 1<<x.depth/shrinkShare {
		x.resize(x.depth - 1)
	}
}

// from calls f with every entry that is not before a hash, in order, until f returns false.
func (x *index) from(hash uint64, f func(slot) bool) {
	start := slot{hash: hash}
	for position, some := x.position(hash), true; some; {
		p := x.page(position)
		if p.tree != nil {
			more := true
			p.tree.Ascend(start, func(s slot) bool {
				more = f(s)
				return more
			})
			if !more {
				return
			}
		} else {
			for _, s := range p.slots[p.search(start):] {
				if !f(s) {
					return
				}
			}
		}
		position, some = x.next(x.first(position, p) + 1<<(x.depth-p.depth))
		start.hash = 0
	}
}

// next returns the first position from one on where a page with entries starts, or false.
func (x *index) next(position int) (int, bool) {
	at := position & (1<<partBits - 1)
	for i := position >> partBits; i < len(x.dir); i++ {
		if i&(1<<groupBits-1) == 0 && x.sizes[i>>groupBits] == 0 {
			i += 1<<groupBits - 1
		} else if n, some := x.dir[i].next(at); some {
			return i<<partBits + n, true
		}
		at = 0
	}
	return 0, false
}

// at returns the entry at a position in the order, from 0 to size-1.
func (x *index) at(n int) slot {
	group := 0
	for ; n >= x.sizes[group]; group++ {
		n -= x.sizes[group]
	}
	i := group << groupBits
	for ; n >= x.dir[i].count; i++ {
		n -= x.dir[i].count
	}
	position, _ := x.next(i << partBits)
	for p := x.page(position); ; p = x.page(position) {
		if n < p.len() {
			if p.tree != nil {
				s, _ := p.tree.GetAt(n)
				return s
			}
			return p.slots[n]
		}
		n -= p.len()
		position, _ = x.next(position + 1)
	}
}

// hashKey hashes a key. It must be the same on every node and in every release.
func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }
