// Operations on many members of a set at once.

package keyspace

import (
	"cmp"
	"slices"
	"strconv"
)

// All returns the existing members in the order of the set, each with its hash and the score 0.
func (s *Set) All() []Member {
	all := make([]Member, 0, s.Len())
	if s.names != nil {
		s.from(0, func(n setName) bool {
			all = append(all, Member{Hash: n.hash, Name: n.name})
			return true
		})
		return all
	}
	for _, n := range s.integers {
		name := strconv.FormatInt(n, 10)
		all = append(all, Member{Hash: hashOf(name), Name: name})
	}
	return all
}

// ByHash calls f with every existing member, with the score 0, in the order of (hash, name), until
// it returns false.
func (s *Set) ByHash(f func(Member) bool) {
	if s.names != nil {
		s.from(0, func(n setName) bool { return f(Member{Hash: n.hash, Name: n.name}) })
		return
	}
	all := s.All()
	SortByHash(all, nil)
	for _, m := range all {
		if !f(m) {
			return
		}
	}
}

// Finder returns a function that reports whether the set has a member, faster in the order of
// (hash, name). It is valid until the set changes.
func (s *Set) Finder() func(Member) bool {
	switch {
	case s.names == nil:
		return func(m Member) bool { return s.hasInteger(m.Name) }
	case s.names.large == nil:
		return func(m Member) bool { return s.hasName(setName{hash: m.Hash, name: m.Name}) }
	}
	find := finder(s.names.large)
	if s.Dead() == 0 {
		return func(m Member) bool {
			_, ok := find(largeName{m.Hash, m.Name})
			return ok
		}
	}
	dated := finder(s.names.dated)
	return func(m Member) bool {
		_, ok := find(largeName{m.Hash, m.Name})
		n, _ := dated(setName{hash: m.Hash, name: m.Name})
		return ok && !s.passed(n.deadline)
	}
}

// IntegersOnly reports whether a set to which these members are added one by one has the form of
// integers. The members are distinct.
func IntegersOnly(members []Member) bool {
	return len(members) <= smallIntegers && !slices.ContainsFunc(members, func(m Member) bool {
		_, ok := integer(m.Name)
		return !ok
	})
}

// SetOf returns a set of distinct members. It has the form of integers if possible, unless names is
// set. compared learns how many bytes of names are compared since their hashes are equal.
func SetOf(members []Member, names bool, compared func(bytes int)) *Set {
	s := NewSet()
	if !names && IntegersOnly(members) {
		for _, m := range members {
			n, _ := integer(m.Name)
			s.integers = append(s.integers, n)
			named := setName{hash: m.Hash, name: m.Name}
			s.note(named, memberSize(named))
		}
		slices.Sort(s.integers)
		return s
	}
	for i := 1; i < len(members); i++ {
		if members[i].Hash == members[i-1].Hash {
			compared(2 * len(members[i].Name))
		}
	}
	if !slices.IsSortedFunc(members, memberCompare) {
		SortByHash(members, nil)
	}
	s.names = &nameSet{}
	if len(members) > smallNames {
		s.names.large = newTree(largeNameLess)
	}
	for _, m := range members {
		n := setName{hash: m.Hash, name: m.Name}
		if s.names.large != nil {
			s.names.large.Load(largeName{m.Hash, m.Name})
		} else {
			s.names.small = append(s.names.small, n)
		}
		s.note(n, memberSize(n))
	}
	return s
}

func memberCompare(a, b Member) int {
	if c := cmp.Compare(a.Hash, b.Hash); c != 0 {
		return c
	}
	return cmp.Compare(a.Name, b.Name)
}

// RemoveAt removes the existing members at distinct positions in the order of the set. The set
// keeps its form, and the other members their deadlines. compared is that of SetOf.
func (s *Set) RemoveAt(positions []int, compared func(bytes int)) {
	if s.names == nil || s.Volatile() > 0 || !RebuildCheaper(len(positions), s.Len()) {
		gone, at := make([]string, len(positions)), s.Pick()
		for i, position := range positions {
			gone[i] = at(position)
		}
		for _, member := range gone {
			s.Delete([]byte(member))
		}
		return
	}
	gone := make([]bool, s.Len())
	for _, position := range positions {
		gone[position] = true
	}
	position := -1
	rest := slices.DeleteFunc(s.All(), func(Member) bool {
		position++
		return gone[position]
	})
	counted, ttls := s.counted, s.ttls
	*s = *SetOf(rest, true, compared)
	s.counted, s.ttls = counted, ttls
}
