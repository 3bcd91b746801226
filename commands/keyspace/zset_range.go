package keyspace

import (
	"math"
	"slices"
)

// This file holds what works on a whole range of a sorted set.

// RemoveRange removes the members of ranks first to last, both included, which must exist.
func (z *ZSet) RemoveRange(first, last int) {
	if z.scores == nil {
		for _, s := range z.small[first : last+1] {
			z.sum ^= pairSum(hashOf(s.Member), math.Float64bits(s.Score))
		}
		z.small = slices.Delete(z.small, first, last+1)
		return
	}
	for range last - first + 1 {
		s, _ := z.scores.DeleteAt(first)
		hash := hashOf(s.Member)
		z.members.Delete(member{hash: hash, name: s.Member})
		z.sum ^= pairSum(hash, math.Float64bits(s.Score))
	}
}

// ZSetOf makes a sorted set of members that are different and in the set's order. It keeps all, of which the memory is its own from
// then on. The form is the one that Redis gives a result.
func ZSetOf(all []Scored) *ZSet {
	compact := len(all) <= smallMembers
	for i := range all {
		compact = compact && len(all[i].Member) <= smallBytes
	}
	z := &ZSet{small: all}
	for i := range all {
		if compact && all[i].Score == 0 {
			all[i].Score = 0 // not -0: see Add
		}
		z.sum ^= pairSum(hashOf(all[i].Member), math.Float64bits(all[i].Score))
	}
	if !compact {
		z.grow()
	}
	return z
}
