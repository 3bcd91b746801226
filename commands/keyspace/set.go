package keyspace

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
)

// smallIntegers is the maximum size of a set of sorted integers, Redis's set-max-intset-entries.
// The form decides the order of SMEMBERS and the reply of OBJECT ENCODING.
const smallIntegers = 512

// Set is a set of strings. A small one of integers is a sorted slice of numbers. Any other is
// ordered by hash, and stays so.
type Set struct {
	integers []int64  // sorted
	names    *nameSet // nil: the members are integers
	sum      uint64
	weight
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{} }

// Kind returns KindSet.
func (s *Set) Kind() Kind { return KindSet }

// Len returns the number of members.
func (s *Set) Len() int {
	if s.names != nil {
		return s.names.len()
	}
	return len(s.integers)
}

// Sum returns a hash over the content.
func (s *Set) Sum() uint64 { return s.sum }

// Integers reports whether the set is a slice of sorted integers, which OBJECT ENCODING calls
// intset.
func (s *Set) Integers() bool { return s.names == nil }

// Clone returns a copy that can change while s is read.
func (s *Set) Clone() Collection {
	c := *s
	c.integers = slices.Clone(s.integers)
	if s.names != nil {
		c.names = s.names.clone()
	}
	return &c
}

// integer parses a member that is the canonical text of a number. The error of a failed parse takes
// longer than the rest of a lookup, so most other members are recognized by their ends.
func integer(member string) (n int64, ok bool) {
	if len(member) == 0 || len(member) > 20 || member[len(member)-1] > '9' ||
		member[0] > '9' || member[0] < '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(member, 10, 64)
	if err != nil {
		return 0, false
	}
	var buf [20]byte
	return n, view(strconv.AppendInt(buf[:0], n, 10)) == member
}

// setSum returns a member's part in Sum.
func setSum(hash uint64) uint64 { return pairSum(hash, uint64(KindSet)) }

// note adds a member that comes or goes to the sum, and its size to that of all.
func (s *Set) note(hash uint64, size int) {
	s.sum ^= setSum(hash)
	s.bytes += size
}

// Has reports whether the set has a member.
func (s *Set) Has(member []byte) bool {
	if s.names != nil {
		return s.names.has(setName{xxhash.Sum64(member), view(member)})
	}
	return s.hasInteger(view(member))
}

// hasInteger is Has for a set of integers.
func (s *Set) hasInteger(member string) bool {
	n, ok := integer(member)
	if ok {
		_, ok = slices.BinarySearch(s.integers, n)
	}
	return ok
}

// Add adds a member and reports whether it is new.
func (s *Set) Add(member []byte) bool {
	hash := xxhash.Sum64(member)
	if s.names == nil {
		n, ok := integer(view(member))
		if ok {
			i, exists := slices.BinarySearch(s.integers, n)
			if exists {
				return false
			}
			if len(s.integers) < smallIntegers {
				s.integers = slices.Insert(s.integers, i, n)
				s.note(hash, memberSize(len(member)))
				return true
			}
		}
		s.grow()
	}
	if s.names.has(setName{hash, view(member)}) {
		return false
	}
	s.names.add(setName{hash, string(member)})
	s.note(hash, memberSize(len(member)))
	return true
}

// grow converts the set to the form for any strings.
func (s *Set) grow() {
	s.names = &nameSet{}
	for _, n := range s.integers {
		name := strconv.FormatInt(n, 10)
		s.names.add(setName{hashOf(name), name})
	}
	s.integers = nil
}

// Remove removes a member and reports whether it existed.
func (s *Set) Remove(member []byte) bool {
	hash := xxhash.Sum64(member)
	if s.names != nil {
		if !s.names.remove(setName{hash, view(member)}) {
			return false
		}
		s.note(hash, -memberSize(len(member)))
		return true
	}
	n, ok := integer(view(member))
	if !ok {
		return false
	}
	i, ok := slices.BinarySearch(s.integers, n)
	if ok {
		s.integers = slices.Delete(s.integers, i, i+1)
		s.note(hash, -memberSize(len(member)))
	}
	return ok
}

// At returns the member at a position in the order, 0 to Len()-1.
func (s *Set) At(i int) string {
	if s.names != nil {
		return s.names.at(i).name
	}
	return strconv.FormatInt(s.integers[i], 10)
}

// Each calls f with every member until it returns false.
func (s *Set) Each(f func(member string) bool) {
	if s.names != nil {
		s.names.from(0, func(n setName) bool { return f(n.name) })
		return
	}
	for _, n := range s.integers {
		if !f(strconv.FormatInt(n, 10)) {
			return
		}
	}
}

// Scan is one step of SSCAN: see DB.Scan. Integers come all at once.
func (s *Set) Scan(cursor uint64, count int, f func(member string)) (next uint64) {
	if s.names == nil {
		s.Each(func(member string) bool {
			f(member)
			return true
		})
		return 0
	}
	sc := scan{count: count}
	s.names.from(cursorStart(cursor), func(n setName) bool {
		if !sc.covers(n.hash) {
			return false
		}
		f(n.name)
		return true
	})
	return sc.next
}

func (s *Set) appendTo(dst []byte) []byte {
	dst = append(dst, wire.BoolByte(s.names != nil))
	dst = binary.AppendUvarint(dst, uint64(s.Len()))
	s.Each(func(member string) bool {
		dst = wire.AppendBytes(dst, member)
		return true
	})
	return dst
}

func (s *Set) rests() bool { return s.names == nil || s.names.large == nil }

func wakeSet(b block) Collection {
	s := &Set{sum: b.sum}
	names, n := b.Byte() == 1, b.Uvarint()
	if !names {
		s.integers = make([]int64, n)
		for i := range s.integers {
			s.integers[i], _ = integer(b.text())
		}
		return s
	}
	s.names = &nameSet{small: make([]setName, n)}
	for i := range s.names.small {
		name := b.text()
		s.names.small[i] = setName{hashOf(name), name}
	}
	return s
}

func readSet(r *reader) *Set {
	s := NewSet()
	form := r.Byte()
	if form == 1 {
		s.grow()
	}
	for range r.Count(1) {
		if !s.Add(r.Bytes()) {
			r.Fail() // a duplicate
		}
	}
	if form != wire.BoolByte(s.names != nil) {
		r.Fail()
	}
	return s
}
