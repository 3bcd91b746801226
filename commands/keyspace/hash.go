package keyspace

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/tidwall/btree"
)

// A small hash or sorted set is a slice; past these bounds it becomes a tree and stays one, at Redis's own limits
// (hash-max-listpack-entries, zset-max-listpack-entries, …-value), since the form decides the order of HGETALL.
const (
	smallFields  = 512
	smallMembers = 128
	smallBytes   = 64
)

// Hash is a map of fields to values. While small it keeps the order of insertion, as Redis does; when large its order is
// that of the fields' hashes.
type Hash struct {
	small []field
	large *btree.BTreeG[hashField]
	sum   uint64
}

type field struct {
	name  string
	value []byte
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

// Len counts the fields.
func (h *Hash) Len() int {
	if h.large != nil {
		return h.large.Len()
	}
	return len(h.small)
}

// Sum is a hash over the content.
func (h *Hash) Sum() uint64 { return h.sum }

// Compact says whether the hash still has its small form, which OBJECT ENCODING calls listpack.
func (h *Hash) Compact() bool { return h.large == nil }

// Clone returns a copy that can be changed while h is read.
func (h *Hash) Clone() Collection {
	c := *h
	c.small = slices.Clone(h.small)
	if h.large != nil {
		c.large = h.large.IsoCopy()
	}
	return &c
}

// find is the place of a field in the small form, or -1.
func (h *Hash) find(name []byte) int {
	for i := range h.small { // slices.IndexFunc would copy each field
		if h.small[i].name == view(name) {
			return i
		}
	}
	return -1
}

// Get returns a field's value, for reading only.
func (h *Hash) Get(name []byte) (value []byte, ok bool) {
	if h.large != nil {
		f, ok := h.large.Get(hashField{hash: xxhash.Sum64(name), field: field{name: view(name)}})
		return f.value, ok
	}
	if i := h.find(name); i >= 0 {
		return h.small[i].value, true
	}
	return nil, false
}

// fieldSum is a field's part in Sum.
func fieldSum(name, value []byte) uint64 {
	return pairSum(xxhash.Sum64(name), xxhash.Sum64(value))
}

// pairSum joins the hashes of an element's two halves so that swapping or cancelling them shows.
func pairSum(a, b uint64) uint64 {
	x := (a ^ 0x9e3779b97f4a7c15) * (b | 1)
	return x ^ x>>29 ^ b
}

// Set sets a field to a copy of value and says whether the field is new.
func (h *Hash) Set(name, value []byte) (created bool) {
	value = bytes.Clone(value)
	if value == nil {
		value = []byte{}
	}
	i, exists := -1, false
	var old []byte
	if h.large != nil {
		old, exists = h.Get(name)
	} else if i = h.find(name); i >= 0 {
		old, exists = h.small[i].value, true
	}
	if exists {
		h.sum ^= fieldSum(name, old)
	}
	h.sum ^= fieldSum(name, value)
	if h.large == nil {
		if exists && len(value) <= smallBytes {
			h.small[i].value = value
			return false
		}
		if !exists && len(h.small) < smallFields && len(name) <= smallBytes && len(value) <= smallBytes {
			h.small = append(h.small, field{string(name), value})
			return true
		}
		h.grow()
	}
	h.large.Set(hashField{hash: xxhash.Sum64(name), field: field{string(name), value}})
	return !exists
}

// grow gives the hash its large form.
func (h *Hash) grow() {
	h.large = btree.NewBTreeGOptions(hashFieldLess, btree.Options{NoLocks: true})
	for _, f := range h.small {
		h.large.Set(hashField{hash: hashOf(f.name), field: f})
	}
	h.small = nil
}

// Delete removes a field and says whether it existed.
func (h *Hash) Delete(name []byte) bool {
	if h.large != nil {
		f, ok := h.large.Delete(hashField{hash: xxhash.Sum64(name), field: field{name: view(name)}})
		if ok {
			h.sum ^= fieldSum(name, f.value)
		}
		return ok
	}
	i := h.find(name)
	if i < 0 {
		return false
	}
	h.sum ^= fieldSum(name, h.small[i].value)
	h.small = slices.Delete(h.small, i, i+1)
	return true
}

// Each calls f with every field until it answers false.
func (h *Hash) Each(f func(name string, value []byte) bool) {
	if h.large != nil {
		h.large.Scan(func(hf hashField) bool { return f(hf.name, hf.value) })
		return
	}
	for _, sf := range h.small {
		if !f(sf.name, sf.value) {
			return
		}
	}
}

// Scan is one step of HSCAN: see DB.Scan. A small hash is given whole.
func (h *Hash) Scan(cursor uint64, count int, f func(name string, value []byte)) (next uint64) {
	if h.large == nil {
		for _, sf := range h.small {
			f(sf.name, sf.value)
		}
		return 0
	}
	s := scan{count: count}
	h.large.Ascend(hashField{hash: cursorStart(cursor)}, func(hf hashField) bool {
		if !s.take(hf.hash) {
			return false
		}
		f(hf.name, hf.value)
		return true
	})
	return s.next
}

func (h *Hash) appendTo(dst []byte) []byte {
	dst = append(dst, boolByte(h.large != nil))
	dst = binary.AppendUvarint(dst, uint64(h.Len()))
	h.Each(func(name string, value []byte) bool {
		dst = appendBytes(dst, name)
		dst = appendBytes(dst, value)
		return true
	})
	return dst
}

func readHash(r *reader) *Hash {
	h := NewHash()
	if r.byte() == 1 {
		h.grow()
	}
	for range r.count(2) {
		name, value := r.bytes(), r.bytes()
		h.Set(name, value)
	}
	return h
}
