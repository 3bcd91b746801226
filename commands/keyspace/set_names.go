// The form of a set whose members are any strings.

package keyspace

import (
	"slices"

	"github.com/tidwall/btree"
)

// smallNames is the maximum size of the slice; a larger set is a tree. The difference is not
// visible.
const smallNames = 128

// nameSet is a set of strings in the order of (hash, name), each with its deadline.
type nameSet struct {
	small []setName
	large *btree.BTreeG[setName]
}

type setName struct {
	hash     uint64
	name     string
	deadline int64 // ms of the cluster clock; 0 means none
}

func setNameLess(a, b setName) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.name < b.name
}

func (s *nameSet) len() int {
	if s.large != nil {
		return s.large.Len()
	}
	return len(s.small)
}

func (s *nameSet) clone() *nameSet {
	c := &nameSet{small: slices.Clone(s.small)}
	if s.large != nil {
		c.large = s.large.IsoCopy()
	}
	return c
}

// seek returns the position of n in the slice, or where to insert it.
func (s *nameSet) seek(n setName) (position int, exists bool) {
	return slices.BinarySearchFunc(s.small, n, func(a, b setName) int {
		switch {
		case setNameLess(a, b):
			return -1
		case setNameLess(b, a):
			return 1
		}
		return 0
	})
}

// get returns a name as it is in the set.
func (s *nameSet) get(n setName) (setName, bool) {
	if s.large != nil {
		return s.large.Get(n)
	}
	position, ok := s.seek(n)
	if !ok {
		return setName{}, false
	}
	return s.small[position], true
}

// replace stores n in place of the same name.
func (s *nameSet) replace(n setName) {
	if s.large != nil {
		s.large.Set(n)
		return
	}
	position, _ := s.seek(n)
	s.small[position] = n
}

// add adds a name that is not in the set.
func (s *nameSet) add(n setName) {
	if s.large == nil && len(s.small) == smallNames {
		s.large = btree.NewBTreeGOptions(setNameLess, btree.Options{NoLocks: true})
		for _, old := range s.small {
			s.large.Set(old)
		}
		s.small = nil
	}
	if s.large != nil {
		s.large.Set(n)
		return
	}
	position, _ := s.seek(n)
	s.small = slices.Insert(s.small, position, n)
}

// remove removes a name that is in the set.
func (s *nameSet) remove(n setName) {
	if s.large != nil {
		s.large.Delete(n)
		return
	}
	position, _ := s.seek(n)
	s.small = slices.Delete(s.small, position, position+1)
}

func (s *nameSet) at(i int) setName {
	if s.large != nil {
		n, _ := s.large.GetAt(i)
		return n
	}
	return s.small[i]
}

// from calls f with every name that is not before a hash, in order, until f returns false.
func (s *nameSet) from(hash uint64, f func(setName) bool) {
	if s.large != nil {
		s.large.Ascend(setName{hash: hash}, f)
		return
	}
	first, _ := s.seek(setName{hash: hash})
	for _, n := range s.small[first:] {
		if !f(n) {
			return
		}
	}
}
