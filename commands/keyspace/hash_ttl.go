// Deadlines of hash fields. A field expires as a key does: from the first entry whose stamp is past
// its deadline it does not exist, swept or not. So what a Hash shows depends on the keyspace's
// clock.

package keyspace

import (
	"sort"

	"github.com/tidwall/btree"
)

// fieldTTLs has the deadlines of a hash's fields. A hash has it from the first deadline on.
type fieldTTLs struct {
	ks    *Keyspace // has the clock
	order *btree.BTreeG[fieldDeadline]
	due   int64 // position in the database's order of such hashes; 0: none
}

// fieldDeadline is a field's position in the order of deadlines.
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

// clone returns a copy that can change while l is read, for the same entry.
func (l *fieldTTLs) clone() *fieldTTLs {
	if l == nil {
		return nil
	}
	return &fieldTTLs{ks: l.ks, order: l.order.IsoCopy(), due: l.due}
}

// dead reports whether a field has expired.
func (h *Hash) dead(f field) bool { return f.deadline != 0 && f.deadline < h.ttls.ks.now }

// Dead returns the number of expired fields that are not swept yet, in few steps.
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

// Volatile returns the number of fields with a deadline, including expired ones that are not swept
// yet.
func (h *Hash) Volatile() int {
	if h.ttls == nil {
		return 0
	}
	return h.ttls.order.Len()
}

// Deadline returns when a field expires, ms of the cluster clock, 0 for never, and whether it
// exists.
func (h *Hash) Deadline(name []byte) (atMs int64, exists bool) {
	f, ok := h.get(name)
	return f.deadline, ok
}

// SetDeadline sets when an existing field expires, ms of the clock of ks, to which the hash
// belongs; 0 for never.
func (h *Hash) SetDeadline(ks *Keyspace, name []byte, atMs int64) {
	f, position, ok := h.lookup(name)
	if !ok || f.deadline == atMs {
		return
	}
	h.sum ^= fieldSum(f)
	h.bytes -= fieldSize(f)
	h.forget(f)
	f.deadline = atMs
	h.sum ^= fieldSum(f)
	h.bytes += fieldSize(f)
	if atMs != 0 {
		if h.ttls == nil {
			h.ttls = &fieldTTLs{ks: ks, order: btree.NewBTreeGOptions(fieldDeadlineLess,
				btree.Options{NoLocks: true})}
		}
		h.ttls.order.Set(fieldDeadline{atMs, f.name})
	}
	h.put(f, position, true)
}

// forget removes a field's deadline from the order. The caller changes or removes the field.
func (h *Hash) forget(f field) {
	if f.deadline == 0 {
		return
	}
	h.ttls.order.Delete(fieldDeadline{f.deadline, f.name})
}

// over reports whether there are fields and all have expired.
func (h *Hash) over() bool {
	if h.Volatile() == 0 || h.Volatile() < h.size() {
		return false
	}
	l, _ := h.ttls.order.Max()
	return l.atMs < h.ttls.ks.now
}

// sweep removes up to most expired fields, the earliest first, and returns how many.
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

// Pick returns a function that returns existing fields by position, 0 to Len-1, in the order of
// Each. It is valid until the hash changes. It does work proportional to the number of fields only
// if some have expired.
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
