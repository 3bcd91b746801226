// The form of a set whose members are any strings.

package keyspace

import (
	"slices"

	"github.com/tidwall/btree"
)

// smallNames is the maximum size of the slice; a larger set is a tree. The difference is not
// visible.
const smallNames = 128

// nameSet is a set of strings in the order of (hash, name), each with its deadline. The names of a
// large one have their deadlines beside them, so that it takes no more if there are none.
type nameSet struct {
	small []setName
	large *btree.BTreeG[largeName]
	dated *btree.BTreeG[setName] // those of large that have a deadline; nil: none
}

type setName struct {
	hash     uint64
	name     string
	deadline int64 // ms of the cluster clock; 0 means none
}

// largeName is a name in a tree.
type largeName struct {
	hash uint64
	name string
}

func largeNameLess(a, b largeName) bool {
	if a.hash != b.hash {
		return a.hash < b.hash
	}
	return a.name < b.name
}

func setNameLess(a, b setName) bool {
	return largeNameLess(largeName{a.hash, a.name}, largeName{b.hash, b.name})
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
	if s.dated != nil {
		c.dated = s.dated.IsoCopy()
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
		l, ok := s.large.Get(largeName{n.hash, n.name})
		n = setName{hash: l.hash, name: l.name}
		if ok && s.dated != nil {
			d, _ := s.dated.Get(n)
			n.deadline = d.deadline
		}
		return n, ok
	}
	position, ok := s.seek(n)
	if !ok {
		return setName{}, false
	}
	return s.small[position], true
}

// replace stores n, which has another deadline, in place of the same name.
func (s *nameSet) replace(n setName) {
	if s.large != nil {
		s.date(n)
		return
	}
	position, _ := s.seek(n)
	s.small[position] = n
}

// date enters the deadline of a name of the tree, or removes it if it is 0.
func (s *nameSet) date(n setName) {
	switch {
	case n.deadline != 0:
		if s.dated == nil {
			s.dated = newTree(setNameLess)
		}
		s.dated.Set(n)
	case s.dated != nil:
		if s.dated.Delete(n); s.dated.Len() == 0 {
			s.dated = nil
		}
	}
}

// add adds a name without a deadline that is not in the set.
func (s *nameSet) add(n setName) {
	if s.large == nil && len(s.small) == smallNames {
		s.large = newTree(largeNameLess)
		for _, old := range s.small {
			s.large.Set(largeName{old.hash, old.name})
			s.date(old)
		}
		s.small = nil
	}
	if s.large != nil {
		s.large.Set(largeName{n.hash, n.name})
		return
	}
	position, _ := s.seek(n)
	s.small = slices.Insert(s.small, position, n)
}

// remove removes a name that is in the set.
func (s *nameSet) remove(n setName) {
	if s.large != nil {
		s.large.Delete(largeName{n.hash, n.name})
		n.deadline = 0
		s.date(n)
		return
	}
	position, _ := s.seek(n)
	s.small = slices.Delete(s.small, position, position+1)
}

// at returns the name at a position.
func (s *nameSet) at(i int) string {
	if s.large != nil {
		n, _ := s.large.GetAt(i)
		return n.name
	}
	return s.small[i].name
}

// from calls f with every name that is not before a hash, in order, until f returns false. The
// deadlines are there only with dated: to look them up takes about as long as to walk.
func (s *nameSet) from(hash uint64, dated bool, f func(setName) bool) {
	if s.large != nil {
		deadline := func(setName) int64 { return 0 }
		if dated && s.dated != nil {
			find := finder(s.dated)
			deadline = func(n setName) int64 {
				n, _ = find(n)
				return n.deadline
			}
		}
		s.large.Ascend(largeName{hash: hash}, func(l largeName) bool {
			n := setName{hash: l.hash, name: l.name}
			n.deadline = deadline(n)
			return f(n)
		})
		return
	}
	first, _ := s.seek(setName{hash: hash})
	for _, n := range s.small[first:] {
		if !f(n) {
			return
		}
	}
}
