package keyspace

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
	"github.com/tidwall/btree"
)

// A small hash or sorted set is a slice. Past these bounds it becomes a tree and stays one. The
// bounds are Redis's (hash-max-listpack-entries, zset-max-listpack-entries, …-value), since the
// form decides the order of HGETALL.
const (
	smallFields  = 512
	smallMembers = 128
	smallBytes   = 64
)

// Hash is a map from fields to values. A small one keeps the order of insertion, as Redis does; a
// large one is ordered by the fields' hashes.
type Hash struct {
	small []field
	large *btree.BTreeG[hashField]
	sum   uint64
	weight
	*ttls // deadlines of the fields
}

type field struct {
	name     string
	value    []byte
	deadline int64 // ms of the cluster clock; 0 means none
}

type hashField struct {
	hash uint64
	field
}

func hashFieldLess(a, b hashField) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.name < b.name
}

// NewHash returns an empty hash.
func NewHash() *Hash { return &Hash{} }

// Kind returns KindHash.
func (h *Hash) Kind() Kind { return KindHash }

// Len returns the number of existing fields.
func (h *Hash) Len() int { return h.size() - h.Dead() }

// size returns the number of fields, including expired ones that are not swept yet.
func (h *Hash) size() int {
	if h.large != nil {
		return h.large.Len()
	}
	return len(h.small)
}

// Sum returns a hash over the content.
func (h *Hash) Sum() uint64 { return h.sum }

// Compact reports whether the hash still has its small form, which OBJECT ENCODING calls listpack.
func (h *Hash) Compact() bool { return h.large == nil }

// Clone returns a copy that can change while h is read.
func (h *Hash) Clone() Collection {
	c := *h
	c.small = slices.Clone(h.small)
	if h.large != nil {
		c.large = h.large.IsoCopy()
	}
	c.ttls = h.ttls.clone()
	return &c
}

// find returns the position of a field in the small form, or -1.
func (h *Hash) find(name []byte) int {
	for i := range h.small { // slices.IndexFunc would copy each field
		if h.small[i].name == view(name) {
			return i
		}
	}
	return -1
}

// Get returns the value of an existing field, for reading only.
func (h *Hash) Get(name []byte) (value []byte, ok bool) {
	f, ok := h.get(name)
	return f.value, ok
}

// get returns an existing field.
func (h *Hash) get(name []byte) (field, bool) {
	f, _, ok := h.lookup(name)
	if !ok || h.dead(f) {
		return field{}, false
	}
	return f, true
}

// lookup returns a field, expired or not, and its position in the small form.
func (h *Hash) lookup(name []byte) (f field, position int, ok bool) {
	if h.large != nil {
		f, ok := h.large.Get(hashField{hash: xxhash.Sum64(name), field: field{name: view(name)}})
		return f.field, -1, ok
	}
	if i := h.find(name); i >= 0 {
		return h.small[i], i, true
	}
	return field{}, -1, false
}

// fieldSum returns a field's part in Sum.
func fieldSum(f field) uint64 {
	hash := hashOf(f.name)
	return pairSum(hash, xxhash.Sum64(f.value)) ^ deadlineSum(hash, f.deadline)
}

// pairSum combines the hashes of an element's two halves, so that swapping or cancelling them
// shows.
func pairSum(a, b uint64) uint64 {
	x := (a ^ 0x9e3779b97f4a7c15) * (b | 1)
	return x ^ x>>29 ^ b
}

// Set sets a field to a copy of value, removes its deadline, and reports whether the field is new.
func (h *Hash) Set(name, value []byte) (created bool) { return h.set(name, value, 0) }

// Update is Set for a field that keeps its deadline.
func (h *Hash) Update(name, value []byte) (created bool) {
	f, _ := h.get(name)
	return h.set(name, value, f.deadline)
}

// set sets a field to a copy of value. deadline is the current one or 0: only SetDeadline sets new
// ones.
func (h *Hash) set(name, value []byte, deadline int64) (created bool) {
	old, position, exists := h.lookup(name)
	if exists && h.dead(old) { // it expired first: the new one comes at the end
		h.remove(old, position)
		exists = false
	}
	f := field{name: old.name, value: bytes.Clone(value), deadline: deadline}
	if !exists {
		f.name = string(name)
	}
	if f.value == nil {
		f.value = []byte{}
	}
	if exists {
		h.sum ^= fieldSum(old)
		h.bytes -= fieldSize(old)
		if old.deadline != deadline {
			h.forget(old.deadline, old.name)
		}
	}
	h.sum ^= fieldSum(f)
	h.bytes += fieldSize(f)
	h.put(f, position, exists)
	return !exists
}

// put stores a field in place of the existing one, at that position of the small form, or as a new
// one.
func (h *Hash) put(f field, position int, exists bool) {
	if h.large == nil {
		if exists && len(f.value) <= smallBytes {
			h.small[position] = f
			return
		}
		if !exists && len(h.small) < smallFields && len(f.name) <= smallBytes &&
			len(f.value) <= smallBytes {
			h.small = append(h.small, f)
			return
		}
		h.grow()
	}
	h.large.Set(hashField{hash: hashOf(f.name), field: f})
}

// grow gives the hash its large form.
func (h *Hash) grow() {
	h.large = btree.NewBTreeGOptions(hashFieldLess, btree.Options{NoLocks: true})
	for _, f := range h.small {
		h.large.Set(hashField{hash: hashOf(f.name), field: f})
	}
	h.small = nil
}

// Delete removes a field and reports whether it existed.
func (h *Hash) Delete(name []byte) bool {
	f, position, ok := h.lookup(name)
	if !ok || h.dead(f) {
		return false
	}
	h.remove(f, position)
	return true
}

// remove removes an existing field, at that position of the small form.
func (h *Hash) remove(f field, position int) {
	h.sum ^= fieldSum(f)
	h.bytes -= fieldSize(f)
	h.forget(f.deadline, f.name)
	if h.large != nil {
		h.large.Delete(hashField{hash: hashOf(f.name), field: f})
		return
	}
	h.small = slices.Delete(h.small, position, position+1)
}

// Each calls f with every existing field until it returns false.
func (h *Hash) Each(f func(name string, value []byte) bool) {
	h.all(func(sf field) bool { return h.dead(sf) || f(sf.name, sf.value) })
}

// all calls f with every field, including expired ones, until it returns false.
func (h *Hash) all(f func(field) bool) {
	if h.large != nil {
		h.large.Scan(func(hf hashField) bool { return f(hf.field) })
		return
	}
	for _, sf := range h.small {
		if !f(sf) {
			return
		}
	}
}

// Scan is one step of HSCAN: see DB.Scan. A small hash comes whole.
func (h *Hash) Scan(cursor uint64, count int, f func(name string, value []byte)) (next uint64) {
	if h.large == nil {
		h.Each(func(name string, value []byte) bool {
			f(name, value)
			return true
		})
		return 0
	}
	s := scan{count: count}
	h.large.Ascend(hashField{hash: cursorStart(cursor)}, func(hf hashField) bool {
		if !s.covers(hf.hash) {
			return false
		}
		if !h.dead(hf.field) {
			f(hf.name, hf.value)
		}
		return true
	})
	return s.next
}

// Bits of the form of a hash in a snapshot record. A hash without deadlines is encoded as it was
// before there were any.
const (
	largeRecord = 1 << iota
	ttlRecord   // each field is followed by its deadline
)

// appendTo encodes every field. Whether one is expired is for the reader to decide, whose clock may
// differ.
func (h *Hash) appendTo(dst []byte) []byte {
	form := wire.BoolByte(h.large != nil) * largeRecord
	if h.Volatile() > 0 {
		form |= ttlRecord
	}
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(h.size()))
	h.all(func(f field) bool {
		dst = wire.AppendBytes(dst, f.name)
		dst = wire.AppendBytes(dst, f.value)
		if form&ttlRecord != 0 {
			dst = binary.AppendUvarint(dst, uint64(f.deadline))
		}
		return true
	})
	return dst
}

func (h *Hash) rests() bool { return h.large == nil && h.ttls == nil }

func wakeHash(b block) Collection {
	b.Byte() // a small form without deadlines
	h := &Hash{sum: b.sum, small: make([]field, b.Uvarint())}
	for i := range h.small {
		h.small[i] = field{name: b.text(), value: b.Bytes()}
	}
	return h
}

func readHash(r *reader) *Hash {
	h := NewHash()
	form := r.Byte()
	if form > largeRecord|ttlRecord {
		r.Fail()
	}
	if form&largeRecord != 0 {
		h.grow()
	}
	for range r.Count(2) {
		name, value := r.Bytes(), r.Bytes()
		h.Set(name, value)
		if form&ttlRecord == 0 {
			continue
		}
		deadline := int64(r.Uvarint())
		if deadline < 0 {
			r.Fail()
		}
		h.SetDeadline(r.keyspace, name, deadline)
	}
	if form&ttlRecord != 0 && h.Volatile() == 0 {
		r.Fail()
	}
	return h
}
