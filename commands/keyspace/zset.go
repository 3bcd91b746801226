package keyspace

import (
	"encoding/binary"
	"math"
	"slices"
	"sort"

	"github.com/cespare/xxhash/v2"
	"github.com/coordd/coordd/internal/wire"
	"github.com/tidwall/btree"
)

// ZSet is a sorted set: members ordered by (score, member). A small one is a sorted slice; a large
// one has two trees, by member and by score.
type ZSet struct {
	small   []Scored
	members *btree.BTreeG[Member]
	scores  *btree.BTreeG[Scored]
	sum     uint64
	weight
}

// Scored is a member with its score. The score is never NaN.
type Scored struct {
	Score  float64
	Member string
}

// Member is a member with its score and the hash of its name. Scans and combinations order members
// by that hash.
type Member struct {
	Hash  uint64
	Name  string
	Score float64
}

func memberLess(a, b Member) bool {
	if a.Hash != b.Hash {
		return a.Hash < b.Hash
	}
	return a.Name < b.Name
}

func scoredLess(a, b Scored) bool {
	if a.Score != b.Score {
		return a.Score < b.Score
	}
	return a.Member < b.Member
}

// NewZSet returns an empty sorted set.
func NewZSet() *ZSet { return &ZSet{} }

// Kind returns KindZSet.
func (z *ZSet) Kind() Kind { return KindZSet }

// Len returns the number of members.
func (z *ZSet) Len() int {
	if z.scores != nil {
		return z.scores.Len()
	}
	return len(z.small)
}

// Sum returns a hash over the content.
func (z *ZSet) Sum() uint64 { return z.sum }

// Compact reports whether the set still has its small form, which OBJECT ENCODING calls listpack.
func (z *ZSet) Compact() bool { return z.scores == nil }

// Clone returns a copy that can change while z is read.
func (z *ZSet) Clone() Collection {
	c := *z
	c.small = slices.Clone(z.small)
	if z.scores != nil {
		c.scores, c.members = z.scores.IsoCopy(), z.members.IsoCopy()
	}
	return &c
}

// Score returns a member's score.
func (z *ZSet) Score(name []byte) (score float64, ok bool) {
	if z.members != nil {
		m, ok := z.members.Get(Member{Hash: xxhash.Sum64(name), Name: view(name)})
		return m.Score, ok
	}
	for _, s := range z.small {
		if s.Member == view(name) {
			return s.Score, true
		}
	}
	return 0, false
}

func memberSum(name []byte, score float64) uint64 {
	return pairSum(xxhash.Sum64(name), math.Float64bits(score))
}

// Add sets the score of a member, which must not be NaN, and reports whether the member is new. As
// on Redis, 0 and -0 are the same score, and the small form stores 0 for either.
func (z *ZSet) Add(name []byte, score float64) (created bool) {
	old, exists := z.Score(name)
	if !exists || old != score {
		z.Put(name, score, old, exists)
	}
	return !exists
}

// Put is Add for a member of which Score has said that it exists, with another score old, or not.
func (z *ZSet) Put(name []byte, score, old float64, exists bool) {
	if z.scores == nil && !exists && (len(z.small) >= smallMembers || len(name) > smallBytes) {
		z.grow()
	}
	if z.scores == nil && score == 0 {
		score = 0 // not -0
	}
	s := Scored{score, string(name)}
	hash := hashOf(s.Member)
	if exists {
		z.sum ^= pairSum(hash, math.Float64bits(old))
	} else {
		z.bytes += scoredSize(s.Member)
	}
	z.sum ^= pairSum(hash, math.Float64bits(score))
	if z.scores != nil {
		if exists {
			z.scores.Delete(Scored{old, s.Member})
		}
		z.scores.Set(s)
		z.members.Set(Member{Hash: hash, Name: s.Member, Score: score})
		return
	}
	if exists {
		i := z.seek(Scored{old, s.Member})
		z.small = slices.Delete(z.small, i, i+1)
	}
	z.small = slices.Insert(z.small, z.seek(s), s)
}

// grow gives the set its large form.
func (z *ZSet) grow() {
	z.scores, z.members = newTree(scoredLess), newTree(memberLess)
	for _, s := range z.small {
		z.scores.Set(s)
		z.members.Set(Member{Hash: hashOf(s.Member), Name: s.Member, Score: s.Score})
	}
	z.small = nil
}

// Remove removes a member and reports whether it existed.
func (z *ZSet) Remove(name []byte) bool {
	score, ok := z.Score(name)
	if !ok {
		return false
	}
	z.sum ^= memberSum(name, score)
	s := Scored{score, view(name)}
	z.bytes -= scoredSize(s.Member)
	if z.scores != nil {
		z.scores.Delete(s)
		z.members.Delete(Member{Hash: hashOf(s.Member), Name: s.Member})
		return true
	}
	i := z.seek(s)
	z.small = slices.Delete(z.small, i, i+1)
	return true
}

// At returns the member of a rank, 0 to Len()-1, from the lowest score.
func (z *ZSet) At(rank int) Scored {
	if z.scores != nil {
		s, _ := z.scores.GetAt(rank)
		return s
	}
	return z.small[rank]
}

// Seek returns the rank of the first element for which atOrAfter holds, Len() if there is none.
// atOrAfter must hold for all elements after that one. It looks near the start first: a window ends
// where its few oldest members begin to count.
func (z *ZSet) Seek(atOrAfter func(Scored) bool) int {
	low, high := 0, z.Len()
	for near := 0; near < min(high, 8); near = 2*near + 1 {
		if atOrAfter(z.At(near)) {
			high = near
			break
		}
		low = near + 1
	}
	return low + sort.Search(high-low, func(i int) bool { return atOrAfter(z.At(low + i)) })
}

// seek returns the rank of s, or where to insert it.
func (z *ZSet) seek(s Scored) int {
	return z.Seek(func(o Scored) bool { return !scoredLess(o, s) })
}

// Rank returns a member's rank from the lowest score.
func (z *ZSet) Rank(name []byte) (rank int, ok bool) {
	score, ok := z.Score(name)
	if !ok {
		return 0, false
	}
	return z.seek(Scored{score, view(name)}), true
}

// Range calls f with the members of ranks first to last, inclusive, until it returns false; in
// reverse if first > last. The ranks must exist. f must not change the set.
func (z *ZSet) Range(first, last int, f func(Scored) bool) {
	step, n := 1, last-first+1
	if first > last {
		step, n = -1, first-last+1
	}
	if z.scores == nil {
		for i := range n {
			if !f(z.small[first+i*step]) {
				return
			}
		}
		return
	}
	walk := z.scores.Ascend
	if step < 0 {
		walk = z.scores.Descend
	}
	walk(z.At(first), func(s Scored) bool {
		n--
		return f(s) && n > 0
	})
}

// Scan is one step of ZSCAN: see DB.Scan. A small set comes whole, in order of score.
func (z *ZSet) Scan(cursor uint64, count int, f func(Scored)) (next uint64) {
	if z.members == nil {
		for _, s := range z.small {
			f(s)
		}
		return 0
	}
	sc := scan{count: count}
	z.members.Ascend(Member{Hash: cursorStart(cursor)}, func(m Member) bool {
		if !sc.covers(m.Hash) {
			return false
		}
		f(Scored{m.Score, m.Name})
		return true
	})
	return sc.next
}

func (z *ZSet) appendTo(dst []byte) []byte {
	dst = append(dst, wire.BoolByte(z.scores != nil))
	dst = binary.AppendUvarint(dst, uint64(z.Len()))
	if z.Len() > 0 {
		z.Range(0, z.Len()-1, func(s Scored) bool {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(s.Score))
			dst = wire.AppendBytes(dst, s.Member)
			return true
		})
	}
	return dst
}

func (z *ZSet) rests() bool { return z.scores == nil }

func wakeZSet(b block) Collection {
	b.Byte() // the small form
	z := &ZSet{sum: b.sum, small: make([]Scored, b.Uvarint())}
	for i := range z.small {
		z.small[i] = Scored{math.Float64frombits(b.Uint64()), b.text()}
	}
	return z
}

func readZSet(r *reader) *ZSet {
	z := NewZSet()
	if r.Byte() == 1 {
		z.grow()
	}
	for range r.Count(9) {
		score := math.Float64frombits(r.Uint64())
		name := r.Bytes()
		if math.IsNaN(score) {
			r.Fail()
			break
		}
		z.Add(name, score)
	}
	return z
}
