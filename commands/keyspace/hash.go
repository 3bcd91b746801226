package keyspace

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
	"github.com/tidwall/btree"
)

// A small hash or sorted set is a slice; past these bounds it becomes a tree and stays one, at
// Redis's own limits (hash-max-listpack-entries, zset-max-listpack-entries, …-value), since the
// form decides the order of HGETALL.
const (
	smallFields  = 512
	smallMembers = 128
	smallBytes   = 64
)

// Hash is a map of fields to values. While small it keeps the order of insertion, as Redis does;
// when large its order is that of the fields' hashes.
type Hash struct {
	small []field
	large *btree.BTreeG[hashField]
	sum   uint64
	ttls  *fieldTTLs // nil: no field has a deadline
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

// Kind is KindHash.
func (h *Hash) Kind() Kind { return KindHash }

// Len counts the fields that exist.
func (h *Hash) Len() int { return h.size() - h.Dead() }

// size counts the fields, those included that are past their deadline and not swept yet.
func (h *Hash) size() int {
	if h.large != nil {
		return h.large.Len()
	}
	return len(h.small)
}

// Sum is a hash over the content.
func (h *Hash) Sum() uint64 { return h.sum }

// Compact reports whether the hash still has its small form, which OBJECT ENCODING calls listpack.
func (h *Hash) Compact() bool { return h.large == nil }

// Clone returns a copy that can be changed while h is read.
func (h *Hash) Clone() Collection {
	c := *h
	c.small = slices.Clone(h.small)
	if h.large != nil {
		c.large = h.large.IsoCopy()
	}
	c.ttls = h.ttls.clone()
	return &c
}

// find is the position of a field in the small form, or -1.
func (h *Hash) find(name []byte) int {
	for i := range h.small { // slices.IndexFunc would copy each field
		if h.small[i].name == view(name) {
			return i
		}
	}
	return -1
}

// Get returns the value of a field that exists, for reading only.
func (h *Hash) Get(name []byte) (value []byte, ok bool) {
	f, ok := h.get(name)
	return f.value, ok
}

// get returns a field that exists.
func (h *Hash) get(name []byte) (field, bool) {
	f, _, ok := h.lookup(name)
	if !ok || h.dead(f) {
		return field{}, false
	}
	return f, true
}

// lookup returns a field, be it past its deadline or not, and its position in the small form.
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

// fieldSum is a field's part in Sum.
func fieldSum(f field) uint64 {
	hash := hashOf(f.name)
	sum := pairSum(hash, xxhash.Sum64(f.value))
	if f.deadline != 0 {
		sum ^= pairSum(^hash, uint64(f.deadline))
	}
	return sum
}

// pairSum joins the hashes of an element's two halves so that swapping or cancelling them shows.
func pairSum(a, b uint64) uint64 {
	x := (a ^ 0x9e3779b97f4a7c15) * (b | 1)
	return x ^ x>>29 ^ b
}

// Set sets a field to a copy of value and reports whether the field is new. A deadline that it had
// goes.
func (h *Hash) Set(name, value []byte) (created bool) { return h.set(name, value, 0) }

// Update is Set for a field that keeps its deadline.
func (h *Hash) Update(name, value []byte) (created bool) {
	f, _ := h.get(name)
	return h.set(name, value, f.deadline)
}

// set sets a field to a copy of value. deadline is the one that the field has, or 0: only
// SetDeadline gives new ones.
func (h *Hash) set(name, value []byte, deadline int64) (created bool) {
	old, position, exists := h.lookup(name)
	if exists && h.dead(old) { // it went before this one comes, at the end of a small hash
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
		if old.deadline != deadline {
			h.forget(old)
		}
	}
	h.sum ^= fieldSum(f)
	h.put(f, position, exists)
	return !exists
}

// put stores a field, over the one with its name, which is at that position of the small form, or
// as a new one.
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

// remove takes out a field that is there, at that position of the small form.
func (h *Hash) remove(f field, position int) {
	h.sum ^= fieldSum(f)
	h.forget(f)
	if h.large != nil {
		h.large.Delete(hashField{hash: hashOf(f.name), field: f})
		return
	}
	h.small = slices.Delete(h.small, position, position+1)
}

// Each calls f with every field that exists until it answers false.
func (h *Hash) Each(f func(name string, value []byte) bool) {
	h.all(func(sf field) bool { return h.dead(sf) || f(sf.name, sf.value) })
}

// all calls f with every field, those included that are past their deadline, until it answers
// false.
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

// Scan is one step of HSCAN: see DB.Scan. A small hash is given whole.
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
		if !s.take(hf.hash) {
			return false
		}
		if !h.dead(hf.field) {
			f(hf.name, hf.value)
		}
		return true
	})
	return s.next
}

// The forms of a hash in a snapshot record, added up. A hash without deadlines is written as it was
// before there were any.
const (
	largeRecord = 1 << iota
	ttlRecord   // each field is followed by its deadline
)

// appendTo writes every field: which of them are past their deadline is the reader's business, and
// no clock may be asked here.
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
