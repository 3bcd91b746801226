// This file contains the deadlines of a hash's fields. A field whose deadline has passed does not
// exist, on the same terms as a key: from the first entry on whose stamp is past it, whether it was
// swept or not. So what a Hash shows depends on the keyspace's clock.

package keyspace

import (
	"sort"

	"github.com/tidwall/btree"
)

// fieldTTLs is what a hash with fields that have a deadline, or had one, knows of them.
type fieldTTLs struct {
	ks    *Keyspace // whose clock counts
	order *btree.BTreeG[fieldDeadline]
	due   int64 // the position in the database's order of such hashes; 0 means none
}

// fieldDeadline is one field's position in the order of deadlines.
type fieldDeadline struct {
	atMs int64
	name string
}

func fieldDeadlineLess(a, b fieldDeadline) bool {
	if a.atMs != b.atMs {
		return a.atMs < b.atMs
	}
	return a.name < b.name
}

// clone returns a copy that can be changed while l is read, for the same entry.
func (l *fieldTTLs) clone() *fieldTTLs {
	if l == nil {
		return nil
	}
	return &fieldTTLs{ks: l.ks, order: l.order.IsoCopy(), due: l.due}
}

// dead reports whether the deadline of one of the hash's fields has passed.
func (h *Hash) dead(f field) bool { return f.deadline != 0 && f.deadline < h.ttls.ks.now }

// Dead counts the fields that are past their deadline and not swept yet. It takes few steps,
// however many there are.
func (h *Hash) Dead() int {
	if h.Volatile() == 0 {
		return 0
	}
	order, now := h.ttls.order, h.ttls.ks.now
	if first, _ := order.Min(); first.atMs >= now {
		return 0
	}
	return sort.Search(order.Len(), func(i int) bool {
		l, _ := order.GetAt(i)
		return l.atMs >= now
	})
}

// Volatile counts the fields that have a deadline, those included that are past it and not swept
// yet.
func (h *Hash) Volatile() int {
	if h.ttls == nil {
		return 0
	}
	return h.ttls.order.Len()
}

// Deadline is when a field expires, ms of the cluster clock, 0 for never; exists is false where
// there is no such field.
func (h *Hash) Deadline(name []byte) (atMs int64, exists bool) {
	f, ok := h.get(name)
	return f.deadline, ok
}

// SetDeadline sets when a field that exists expires, ms of the clock of ks, whose the hash is; 0
// makes it stay.
func (h *Hash) SetDeadline(ks *Keyspace, name []byte, atMs int64) {
	f, position, ok := h.lookup(name)
	if !ok || f.deadline == atMs {
		return
	}
	h.sum ^= fieldSum(f)
	h.forget(f)
	f.deadline = atMs
	h.sum ^= fieldSum(f)
	if atMs != 0 {
		if h.ttls == nil {
			h.ttls = &fieldTTLs{ks: ks, order: btree.NewBTreeGOptions(fieldDeadlineLess,
				btree.Options{NoLocks: true})}
		}
		h.ttls.order.Set(fieldDeadline{atMs, f.name})
	}
	h.put(f, position, true)
}

// forget takes a field's deadline out of the order. The field itself is changed or removed by the
// caller.
func (h *Hash) forget(f field) {
	if f.deadline == 0 {
		return
	}
	h.ttls.order.Delete(fieldDeadline{f.deadline, f.name})
}

// over reports whether there are fields and the deadlines of all have passed.
func (h *Hash) over() bool {
	if h.Volatile() == 0 || h.Volatile() < h.size() {
		return false
	}
	l, _ := h.ttls.order.Max()
	return l.atMs < h.ttls.ks.now
}

// sweep removes up to most fields whose deadline has passed, the earliest first, and counts them.
func (h *Hash) sweep(most int) (removed int) {
	for removed < most && h.Volatile() > 0 {
		l, _ := h.ttls.order.Min()
		if l.atMs >= h.ttls.ks.now {
			break
		}
		f, position, _ := h.lookup([]byte(l.name))
		h.remove(f, position)
		removed++
	}
	return removed
}

// Pick returns a function that gives the fields that exist by their position, 0 to Len-1, in the
// order of Each. It is valid until the hash is changed. Work is done in proportion to the number of
// fields only where some are dead.
func (h *Hash) Pick() func(i int) (name string, value []byte) {
	if h.Dead() == 0 && h.large != nil {
		return func(i int) (string, []byte) {
			f, _ := h.large.GetAt(i)
			return f.name, f.value
		}
	}
	alive := h.small
	if h.Dead() > 0 {
		alive = nil
		h.all(func(f field) bool {
			if !h.dead(f) {
				alive = append(alive, f)
			}
			return true
		})
	}
	return func(i int) (string, []byte) { return alive[i].name, alive[i].value }
}
