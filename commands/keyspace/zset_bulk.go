// Operations on many members of a sorted set at once. They rebuild both trees from sorted members,
// in a tenth of the time of a search for each member.

package keyspace

import (
	"math"
	"slices"

	"github.com/coordd/coordd/commands/radix"
)

// NameBytes returns the size of all names.
func (z *ZSet) NameBytes() int { return z.bytes - z.Len()*scoredCost }

// ByHash calls f with every member in the order of (hash, name), until it returns false.
func (z *ZSet) ByHash(f func(Member) bool) {
	if z.members != nil {
		z.members.Scan(f)
		return
	}
	for _, m := range hashed(z.small) {
		if !f(m) {
			return
		}
	}
}

// MemberOf returns a member with its hash. It first tells hashed, if that is set, how many bytes
// are hashed.
func MemberOf(s Scored, hashed func(bytes int)) Member {
	if hashed != nil {
		hashed(len(s.Member))
	}
	return Member{Hash: hashOf(s.Member), Name: s.Member, Score: s.Score}
}

// hashed returns members in the order of (hash, name).
func hashed(all []Scored) []Member {
	members := make([]Member, len(all))
	for i, s := range all {
		members[i] = MemberOf(s, nil)
	}
	SortByHash(members, nil)
	return members
}

// SortByHash sorts members by (hash, name), stably. looked is passed to radix.Texts, for names with
// equal hashes.
func SortByHash(all []Member, looked func(names int)) {
	hash := func(m *Member) uint64 { return m.Hash }
	radix.Keys(all, hash)
	radix.Ties(all, hash, func(same []Member) {
		radix.Texts(same, func(m *Member) string { return m.Name }, false, looked)
	})
}

// sortByScore sorts members by (score, name). looked is passed to radix.Texts, for names with equal
// scores.
func sortByScore(all []Scored, looked func(names int)) {
	if slices.IsSortedFunc(all, scoredCompare) {
		return
	}
	score := func(s *Scored) uint64 { return radix.Float(s.Score) }
	radix.Keys(all, score)
	radix.Ties(all, score, func(same []Scored) {
		radix.Texts(same, func(s *Scored) string { return s.Member }, false, looked)
	})
}

func scoredCompare(a, b Scored) int {
	switch {
	case scoredLess(a, b):
		return -1
	case scoredLess(b, a):
		return 1
	}
	return 0
}

// Finder returns a function that looks up members, faster in the order of (hash, name). It is valid
// until the set changes.
func (z *ZSet) Finder() func(Member) (score float64, ok bool) {
	if z.members == nil {
		return func(m Member) (float64, bool) { return z.Score([]byte(m.Name)) }
	}
	find := finder(z.members)
	return func(m Member) (float64, bool) {
		found, ok := find(m)
		return found.Score, ok
	}
}

// Part is ZSetOf(all) for the members of ranks first to last of z, to be stored in db.
func (db *DB) Part(z *ZSet, first, last int, all []Scored) *ZSet {
	switch {
	case z.scores == nil || compact(all) || len(all) < z.Len()/4:
		return ZSetOf(all)
	case len(all) == z.Len():
		return db.share(z).(*ZSet)
	}
	members := make([]Member, 0, len(all))
	low, high := z.At(first), z.At(last)
	z.members.Scan(func(m Member) bool {
		if s := (Scored{m.Score, m.Name}); !scoredLess(s, low) && !scoredLess(high, s) {
			members = append(members, m)
		}
		return true
	})
	return largeZSet(all, members)
}

// RemoveRange removes the members of ranks first to last, inclusive, which must exist.
func (z *ZSet) RemoveRange(first, last int) {
	if z.scores == nil {
		for _, s := range z.small[first : last+1] {
			z.sum ^= pairSum(hashOf(s.Member), math.Float64bits(s.Score))
			z.bytes -= scoredSize(s.Member)
		}
		z.small = slices.Delete(z.small, first, last+1)
		return
	}
	if RebuildCheaper(last-first+1, z.Len()) {
		z.keepOthers(first, last)
		return
	}
	for range last - first + 1 {
		s, _ := z.scores.DeleteAt(first)
		hash := hashOf(s.Member)
		z.members.Delete(Member{Hash: hash, Name: s.Member})
		z.sum ^= pairSum(hash, math.Float64bits(s.Score))
		z.bytes -= scoredSize(s.Member)
	}
}

// keepOthers is RemoveRange that rebuilds the large form from the members that stay.
func (z *ZSet) keepOthers(first, last int) {
	scores, members := newTree(scoredLess), newTree(memberLess)
	low, high := z.At(first), z.At(last)
	rank := 0
	if last-first+1 < z.Len() {
		z.scores.Scan(func(s Scored) bool {
			if rank < first || rank > last {
				scores.Load(s)
			}
			rank++
			return true
		})
		sum, bytes := uint64(0), 0
		z.members.Scan(func(m Member) bool {
			if s := (Scored{m.Score, m.Name}); scoredLess(s, low) || scoredLess(high, s) {
				members.Load(m)
				sum ^= pairSum(m.Hash, math.Float64bits(m.Score))
				bytes += scoredSize(m.Name)
			}
			return true
		})
		z.sum, z.bytes = sum, bytes
	} else {
		z.sum, z.bytes = 0, 0
	}
	z.scores, z.members = scores, members
}

// ZSetOf returns a sorted set of distinct members in the set's order. It takes ownership of all.
// The form is the one that Redis gives a result.
func ZSetOf(all []Scored) *ZSet {
	if compact(all) {
		return smallZSet(all)
	}
	return largeZSet(all, hashed(all))
}

// ByScore returns members in the order of (score, name). looked is passed to radix.Texts, for names
// with equal scores.
func ByScore(members []Member, looked func(names int)) []Scored {
	all := make([]Scored, len(members))
	for i, m := range members {
		all[i] = Scored{m.Score, m.Name}
	}
	sortByScore(all, looked)
	return all
}

// ZSetOfMembers is ZSetOf for members in the order of (hash, name). looked is that of ByScore.
func ZSetOfMembers(members []Member, looked func(names int)) *ZSet {
	all := ByScore(members, looked)
	if compact(all) {
		return smallZSet(all)
	}
	return largeZSet(all, members)
}

func compact(all []Scored) bool {
	return len(all) <= smallMembers && !slices.ContainsFunc(all, func(s Scored) bool {
		return len(s.Member) > smallBytes
	})
}

// FitsSmall reports whether n members, one of which has a name of that many bytes, may have the
// small form.
func FitsSmall(n, bytes int) bool { return n <= smallMembers && bytes <= smallBytes }

func smallZSet(all []Scored) *ZSet {
	z := &ZSet{small: all}
	for i := range all {
		if all[i].Score == 0 {
			all[i].Score = 0 // not -0: see Add
		}
		z.sum ^= pairSum(hashOf(all[i].Member), math.Float64bits(all[i].Score))
		z.bytes += scoredSize(all[i].Member)
	}
	return z
}

// largeZSet returns a set of its members in both orders.
func largeZSet(all []Scored, members []Member) *ZSet {
	z := NewZSet()
	z.grow()
	for _, s := range all {
		z.scores.Load(s)
	}
	for _, m := range members {
		z.members.Load(m)
		z.sum ^= pairSum(m.Hash, math.Float64bits(m.Score))
		z.bytes += scoredSize(m.Name)
	}
	return z
}
