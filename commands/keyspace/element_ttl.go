// Deadlines of elements: fields of a hash and members of a set. An element expires as a key does:
// from the first entry whose stamp is past its deadline it does not exist, swept or not. So what a
// collection shows depends on the keyspace's clock.

package keyspace

import (
	"sort"
	"sync/atomic"

	"github.com/tidwall/btree"
)

// ttls has the deadlines of a collection's elements, which has it from the first deadline on: nil
// has none.
type ttls struct {
	ks    *Keyspace // has the clock
	order *btree.BTreeG[elementDeadline]
	due   int64 // position in the database's order of such collections; 0: none
	gone  goneCount
}

// goneCount is how many elements have expired and are not swept yet, once somebody has asked: a
// command may ask for each of its keys, and again for each step of sorting them. Reads ask at the
// same time, and all find the same.
type goneCount struct {
	n    atomic.Int64
	atMs atomic.Int64 // the time that n is for; 0: nobody has asked since that changed
}

// get returns the count at a time, and whether somebody has asked.
func (g *goneCount) get(nowMs int64) (n int, known bool) {
	known = g.atMs.Load() == nowMs
	return int(g.n.Load()), known
}

func (g *goneCount) set(nowMs int64, n int) {
	g.n.Store(int64(n)) // first: who sees the time sees the count
	g.atMs.Store(nowMs)
}

func (g *goneCount) forget() { g.atMs.Store(0) }

// mortal is a collection whose elements may have deadlines.
type mortal interface {
	Collection
	// size returns the number of elements, including expired ones that are not swept yet.
	size() int
	// bury removes an element, expired or not.
	bury(name string)
	// dropTTLs frees what deadlines take when there are none.
	dropTTLs()
}

// elementDeadline is an element's position in the order of deadlines.
type elementDeadline struct {
	atMs int64
	name string
}

func elementDeadlineLess(a, b elementDeadline) bool {
	if a.atMs != b.atMs {
		return a.atMs < b.atMs
	}
	return a.name < b.name
}

// deadlineSum returns a deadline's part in the Sum of a collection. hash is that of the element.
func deadlineSum(hash uint64, atMs int64) uint64 {
	if atMs == 0 {
		return 0
	}
	return pairSum(^hash, uint64(atMs))
}

// clone returns a copy that can change while t is read, for the same entry.
func (t *ttls) clone() *ttls {
	if t == nil {
		return nil
	}
	return &ttls{ks: t.ks, order: t.order.IsoCopy(), due: t.due}
}

// passed reports whether an element with this deadline has expired.
func (t *ttls) passed(atMs int64) bool { return atMs != 0 && atMs < t.ks.now }

// Dead returns the number of expired elements that are not swept yet, in few steps once for each
// moment of the clock.
func (t *ttls) Dead() int {
	if t.Volatile() == 0 {
		return 0
	}
	if first, _ := t.order.Min(); first.atMs >= t.ks.now {
		return 0
	}
	if n, known := t.gone.get(t.ks.now); known {
		return n
	}
	n := sort.Search(t.order.Len(), func(i int) bool {
		d, _ := t.order.GetAt(i)
		return d.atMs >= t.ks.now
	})
	t.gone.set(t.ks.now, n)
	return n
}

// Volatile returns the number of elements with a deadline, including expired ones that are not
// swept yet.
func (t *ttls) Volatile() int {
	if t == nil {
		return 0
	}
	return t.order.Len()
}

// Lasting reports whether an element that has not expired has a deadline.
func (t *ttls) Lasting() bool { return t.Volatile() > t.Dead() }

// plan enters a deadline, 0 for none, by the clock of ks. It returns the deadlines, which are new
// if there were none.
func (t *ttls) plan(ks *Keyspace, atMs int64, name string) *ttls {
	if atMs == 0 {
		return t
	}
	if t == nil {
		t = &ttls{ks: ks, order: newTree(elementDeadlineLess)}
	}
	t.order.Set(elementDeadline{atMs, name})
	if t.passed(atMs) {
		t.gone.forget()
	}
	return t
}

// forget removes an element's deadline, 0 for none. The caller changes or removes the element.
func (t *ttls) forget(atMs int64, name string) {
	if atMs != 0 {
		t.order.Delete(elementDeadline{atMs, name})
		if t.passed(atMs) {
			t.gone.forget()
		}
	}
}

// over reports whether there are elements, size in number, and all have expired.
func (t *ttls) over(size int) bool {
	if t.Volatile() == 0 || t.Volatile() < size {
		return false
	}
	last, _ := t.order.Max()
	return last.atMs < t.ks.now
}

// sweep removes up to most expired elements of m, which has these deadlines, the earliest first,
// and returns how many.
func (t *ttls) sweep(m mortal, most int) (removed int) {
	for removed < most && t.Volatile() > 0 {
		d, _ := t.order.Min()
		if d.atMs >= t.ks.now {
			break
		}
		m.bury(d.name)
		removed++
	}
	return removed
}
