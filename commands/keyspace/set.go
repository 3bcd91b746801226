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

// Set is a set of strings. A small one of integers without deadlines is a sorted slice of numbers.
// Any other is ordered by hash, and stays so.
type Set struct {
	integers []int64  // sorted
	names    *nameSet // nil: the members are integers
	sum      uint64
	weight
	*ttls // deadlines of the members
}

// NewSet returns an empty set.
func NewSet() *Set { return &Set{} }

// Kind returns KindSet.
func (s *Set) Kind() Kind { return KindSet }

// Len returns the number of existing members.
func (s *Set) Len() int { return s.size() - s.Dead() }

func (s *Set) size() int {
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
	c.ttls = s.ttls.clone()
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

// nameOf returns a member as a name without a deadline, valid as long as the bytes.
func nameOf(member []byte) setName {
	return setName{hash: xxhash.Sum64(member), name: view(member)}
}

// setSum returns a member's part in Sum.
func setSum(hash uint64) uint64 { return pairSum(hash, uint64(KindSet)) }

// note adds a member that comes or goes, with its deadline, to the sum, and size to that of all.
func (s *Set) note(n setName, size int) {
	s.sum ^= setSum(n.hash) ^ deadlineSum(n.hash, n.deadline)
	s.bytes += size
}

// lookup returns a member, expired or not.
func (s *Set) lookup(member []byte) (setName, bool) {
	n := nameOf(member)
	if s.names != nil {
		return s.names.get(n)
	}
	return n, s.hasInteger(n.name)
}

// Has reports whether the set has a member.
func (s *Set) Has(member []byte) bool {
	if s.names != nil {
		return s.hasName(nameOf(member))
	}
	return s.hasInteger(view(member))
}

// hasName is Has for a set of any strings.
func (s *Set) hasName(n setName) bool {
	n, ok := s.names.get(n)
	return ok && !s.passed(n.deadline)
}

// hasInteger is Has for a set of integers.
func (s *Set) hasInteger(member string) bool {
	n, ok := integer(member)
	if ok {
		_, ok = slices.BinarySearch(s.integers, n)
	}
	return ok
}

// Add adds a member and reports whether it is new. One that exists keeps its deadline.
func (s *Set) Add(member []byte) bool {
	n := nameOf(member)
	if s.names == nil {
		number, ok := integer(n.name)
		if ok {
			i, exists := slices.BinarySearch(s.integers, number)
			if exists {
				return false
			}
			if len(s.integers) < smallIntegers {
				s.integers = slices.Insert(s.integers, i, number)
				s.note(n, memberSize(n))
				return true
			}
		}
		s.grow()
	}
	if old, exists := s.names.get(n); exists {
		if !s.passed(old.deadline) {
			return false
		}
		s.removeName(old) // it expired first
	}
	n.name = string(member)
	s.names.add(n)
	s.note(n, memberSize(n))
	return true
}

// grow converts the set to the form for any strings.
func (s *Set) grow() {
	s.names = &nameSet{}
	for _, n := range s.integers {
		name := strconv.FormatInt(n, 10)
		s.names.add(setName{hash: hashOf(name), name: name})
	}
	s.integers = nil
}

// Delete removes a member and reports whether it existed.
func (s *Set) Delete(member []byte) bool {
	if s.names != nil {
		n, ok := s.names.get(nameOf(member))
		if !ok || s.passed(n.deadline) {
			return false
		}
		s.removeName(n)
		return true
	}
	number, ok := integer(view(member))
	if !ok {
		return false
	}
	i, ok := slices.BinarySearch(s.integers, number)
	if ok {
		s.integers = slices.Delete(s.integers, i, i+1)
		n := nameOf(member)
		s.note(n, -memberSize(n))
	}
	return ok
}

// removeName removes a member of a set of any strings.
func (s *Set) removeName(n setName) {
	s.names.remove(n)
	s.note(n, -memberSize(n))
	s.forget(n.deadline, n.name)
}

func (s *Set) bury(name string) {
	n, _ := s.names.get(setName{hash: hashOf(name), name: name})
	s.removeName(n)
}

func (s *Set) dropTTLs() { s.ttls = nil }

// Deadline returns when a member expires, ms of the cluster clock, 0 for never, and whether it
// exists.
func (s *Set) Deadline(member []byte) (atMs int64, exists bool) {
	n, ok := s.lookup(member)
	if !ok || s.passed(n.deadline) {
		return 0, false
	}
	return n.deadline, true
}

// SetDeadline sets when an existing member expires, ms of the clock of ks, to which the set
// belongs; 0 for never.
func (s *Set) SetDeadline(ks *Keyspace, member []byte, atMs int64) {
	n, ok := s.lookup(member)
	if !ok || n.deadline == atMs {
		return
	}
	if s.names == nil {
		s.grow()
		n, _ = s.names.get(n) // which owns its name
	}
	s.note(n, -memberSize(n))
	s.forget(n.deadline, n.name)
	n.deadline = atMs
	s.note(n, memberSize(n))
	s.ttls = s.plan(ks, atMs, n.name)
	s.names.replace(n)
}

// Deadlines calls f with every existing member that has a deadline, the earliest first.
func (s *Set) Deadlines(f func(member string, atMs int64)) {
	if s.Volatile() == 0 {
		return
	}
	s.order.Ascend(elementDeadline{atMs: s.ks.now}, func(d elementDeadline) bool {
		f(d.name, d.atMs)
		return true
	})
}

// from calls f with every existing member of a set of any strings that is not before a hash, in
// order, until f returns false.
func (s *Set) from(hash uint64, f func(setName) bool) {
	if s.Dead() == 0 {
		s.names.from(hash, false, f)
		return
	}
	s.names.from(hash, true, func(n setName) bool { return s.passed(n.deadline) || f(n) })
}

// Pick returns a function that returns existing members by position, 0 to Len-1, in the order of
// Each. It is valid until the set changes. It does work proportional to the number of members only
// if some have expired.
func (s *Set) Pick() func(i int) string {
	if s.Dead() > 0 {
		all := s.All()
		return func(i int) string { return all[i].Name }
	}
	return func(i int) string {
		if s.names != nil {
			return s.names.at(i)
		}
		return strconv.FormatInt(s.integers[i], 10)
	}
}

// Each calls f with every existing member until it returns false.
func (s *Set) Each(f func(member string) bool) {
	if s.names != nil {
		s.from(0, func(n setName) bool { return f(n.name) })
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
	s.names.from(cursorStart(cursor), s.Dead() > 0, func(n setName) bool {
		if !sc.covers(n.hash) {
			return false
		}
		if !s.passed(n.deadline) {
			f(n.name)
		}
		return true
	})
	return sc.next
}

// Bits of the form of a set in a snapshot record. A set without deadlines is encoded as it was
// before there were any.
const (
	namesRecord       = 1 << iota
	mortalNamesRecord // each member is followed by its deadline
)

// appendTo encodes every member. Whether one is expired is for the reader to decide, whose clock
// may differ.
func (s *Set) appendTo(dst []byte) []byte {
	if s.names == nil {
		dst = binary.AppendUvarint(append(dst, 0), uint64(len(s.integers)))
		for _, n := range s.integers {
			dst = wire.AppendBytes(dst, strconv.FormatInt(n, 10))
		}
		return dst
	}
	form := byte(namesRecord)
	if s.Volatile() > 0 {
		form |= mortalNamesRecord
	}
	dst = binary.AppendUvarint(append(dst, form), uint64(s.size()))
	s.names.from(0, true, func(n setName) bool {
		dst = wire.AppendBytes(dst, n.name)
		if form&mortalNamesRecord != 0 {
			dst = binary.AppendUvarint(dst, uint64(n.deadline))
		}
		return true
	})
	return dst
}

func (s *Set) rests() bool { return (s.names == nil || s.names.large == nil) && s.ttls == nil }

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
		s.names.small[i] = setName{hash: hashOf(name), name: name}
	}
	return s
}

func readSet(r *reader) *Set {
	s := NewSet()
	form := r.Byte()
	if form&namesRecord != 0 {
		s.grow()
	}
	n := r.Count(1)
	for range n {
		member := r.Bytes()
		s.Add(member)
		if form&mortalNamesRecord == 0 {
			continue
		}
		deadline := int64(r.Uvarint())
		if deadline < 0 {
			r.Fail()
		}
		s.SetDeadline(r.keyspace, member, deadline)
	}
	if s.size() != n { // a duplicate
		r.Fail()
	}
	if want := wire.BoolByte(s.names != nil)*namesRecord |
		wire.BoolByte(s.Volatile() > 0)*mortalNamesRecord; form != want {
		r.Fail()
	}
	return s
}
