// Sorted sets: random changes against a model, across the change from the small form to the large
// one.

package keyspace

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// zsetModel is a sorted set as a map.
type zsetModel map[string]float64

// sorted lists the members by score and name.
func (m zsetModel) sorted() []Scored {
	list := []Scored{}
	for name, score := range m {
		list = append(list, Scored{score, name})
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		return a.Score < b.Score || (a.Score == b.Score && a.Member < b.Member)
	})
	return list
}

func (m zsetModel) add(name string, score float64) (created bool) {
	_, exists := m[name]
	m[name] = score
	return !exists
}

func (m zsetModel) remove(name string) bool {
	_, exists := m[name]
	delete(m, name)
	return exists
}

// check compares everything that z shows with the model.
func (m zsetModel) check(t *testing.T, z *ZSet) {
	t.Helper()
	want := m.sorted()
	if z.Len() != len(want) {
		t.Fatalf("Len is %d, want %d", z.Len(), len(want))
	}
	rebuilt := NewZSet()
	for i, s := range want {
		name := []byte(s.Member)
		if got := z.At(i); got != s {
			t.Fatalf("At(%d) is %v, want %v", i, got, s)
		}
		if rank, ok := z.Rank(name); !ok || rank != i {
			t.Fatalf("Rank(%q) is %d, %v, want %d", s.Member, rank, ok, i)
		}
		if score, ok := z.Score(name); !ok || score != s.Score {
			t.Fatalf("Score(%q) is %v, %v, want %v", s.Member, score, ok, s.Score)
		}
		rebuilt.Add(name, s.Score+1)
		rebuilt.Add(name, s.Score)
	}
	countsRight(t, z)
	if z.Sum() != rebuilt.Sum() {
		t.Fatalf("Sum is %x, that of the same content built again %x", z.Sum(), rebuilt.Sum())
	}
	for _, absent := range []string{"", "absent"} {
		if _, ok := z.Rank([]byte(absent)); ok {
			t.Fatalf("Rank finds %q", absent)
		}
	}
}

func TestZSetAgainstModel(t *testing.T) {
	r := dbRand(t)
	for round := range 8 {
		z, m := NewZSet(), zsetModel{}
		large := false
		var clones []*ZSet
		var models []zsetModel
		names := []int{20, smallMembers, smallMembers + 1, 5 * smallMembers}[round%4]
		for step := range 3000 {
			name := "m" + strconv.Itoa(r.IntN(names))
			if round >= 4 && r.IntN(500) == 0 {
				name = strings.Repeat("n", smallBytes+r.IntN(2))
			}
			switch r.IntN(40) {
			case 0, 1, 2, 3, 4, 5, 6, 7:
				if got, want := z.Remove([]byte(name)), m.remove(name); got != want {
					t.Fatalf("Remove(%q) is %v, want %v", name, got, want)
				}
			case 8:
				if z.Len() > 0 {
					first := r.IntN(z.Len())
					last := min(first+r.IntN(8), z.Len()-1)
					for _, s := range m.sorted()[first : last+1] {
						m.remove(s.Member)
					}
					z.RemoveRange(first, last)
				}
			default:
				score := float64(r.IntN(10)) / 2
				if r.IntN(50) == 0 {
					score = math.Inf(r.IntN(2)*2 - 1)
				}
				if got, want := z.Add([]byte(name), score), m.add(name, score); got != want {
					t.Fatalf("Add(%q) is %v, want %v", name, got, want)
				}
				large = large || len(m) > smallMembers || len(name) > smallBytes
			}
			if z.Compact() == large {
				t.Fatalf("with %d members Compact is %v", z.Len(), z.Compact())
			}
			if step%300 == 0 {
				m.check(t, z)
				clones, models = append(clones, z.Clone().(*ZSet)), append(models, maps.Clone(m))
			}
		}
		for i, c := range clones {
			models[i].check(t, c)
			c.Add([]byte("only in the clone"), 1)
			c.RemoveRange(0, c.Len()/2)
		}
		m.check(t, z)
	}
}

func TestZSetRangeAndSeek(t *testing.T) {
	for _, n := range []int{1, 5, smallMembers, 10 * smallMembers} {
		z := NewZSet()
		for i := range n {
			z.Add(fmt.Appendf(nil, "m%05d", i), float64(i/3))
		}
		for _, c := range [][2]int{{0, n - 1}, {n - 1, 0}, {0, 0}, {n - 1, n - 1}, {n / 3, n / 2},
			{n / 2, n / 3}} {
			var want, got []string
			for i := c[0]; ; {
				want = append(want, fmt.Sprintf("m%05d", i))
				if i == c[1] {
					break
				}
				if c[0] < c[1] {
					i++
				} else {
					i--
				}
			}
			z.Range(c[0], c[1], func(s Scored) bool {
				got = append(got, s.Member)
				return true
			})
			if !slices.Equal(got, want) {
				t.Fatalf("Range%v of %d members is %v, want %v", c, n, got, want)
			}
			calls := 0
			z.Range(c[0], c[1], func(Scored) bool {
				calls++
				return calls < 2
			})
			if calls != min(2, len(want)) {
				t.Fatalf("Range%v of %d members went on after it was stopped: %d calls", c, n,
					calls)
			}
		}
		for score := -1; score <= n/3+1; score++ {
			want := min(max(3*score, 0), n)
			if got := z.Seek(func(s Scored) bool {
				return s.Score >= float64(score)
			}); got != want {
				t.Fatalf("Seek(≥ %d) of %d members is %d, want %d", score, n, got, want)
			}
		}
	}
}

// 0 and -0 are one score: neither replaces the other. The small form keeps 0 alone, as Redis's
// listpack does.
func TestZSetNegativeZero(t *testing.T) {
	negative := math.Copysign(0, -1)
	z, other := NewZSet(), NewZSet()
	z.Add([]byte("a"), negative)
	other.Add([]byte("a"), 0)
	if score, _ := z.Score([]byte("a")); math.Signbit(score) || z.Sum() != other.Sum() {
		t.Errorf("a small set keeps -0 as %v", score)
	}
	z.grow()
	z.Add([]byte("b"), negative)
	z.Add([]byte("b"), 0)
	z.Add([]byte("a"), negative)
	a, _ := z.Score([]byte("a"))
	b, _ := z.Score([]byte("b"))
	if math.Signbit(a) || !math.Signbit(b) {
		t.Errorf("a large set has a = %v, b = %v, want 0 and -0", a, b)
	}
	z.Remove([]byte("b"))
	z.Remove([]byte("a"))
	if z.Len() != 0 || z.scores.Len() != 0 || z.members.Len() != 0 || z.Sum() != 0 {
		t.Errorf("%d members, Sum %x are left", z.Len(), z.Sum())
	}
}

func TestZSetKeepsCopies(t *testing.T) {
	for _, n := range []int{1, smallMembers + 1} {
		z := NewZSet()
		for i := range n {
			z.Add(fmt.Appendf(nil, "other%d", i), 0)
		}
		name := []byte("name")
		z.Add(name, 1)
		copy(name, "xxxx")
		if score, ok := z.Score([]byte("name")); !ok || score != 1 || z.At(n).Member != "name" {
			t.Errorf("after the argument was overwritten the member is %q with %v, %v",
				z.At(n).Member, score, ok)
		}
	}
}

func TestZSetScan(t *testing.T) {
	for _, n := range []int{0, 5, smallMembers, 20 * smallMembers} {
		z := NewZSet()
		for i := range n {
			z.Add(fmt.Appendf(nil, "m%d", i), float64(i))
		}
		for _, count := range []int{1, 7, 100, 30 * smallMembers} {
			seen := map[string]bool{}
			cursor, left := uint64(0), n
			for {
				step := 0
				cursor = z.Scan(cursor, count, func(s Scored) {
					if s.Member != fmt.Sprintf("m%v", s.Score) {
						t.Fatalf("%s has the score %v", s.Member, s.Score)
					}
					seen[s.Member] = true
					step++
				})
				if step < min(count, left) {
					t.Fatalf("a step of %d gave %d of %d", count, step, left)
				}
				left -= step
				if cursor == 0 {
					break
				}
			}
			if left != 0 || len(seen) != n {
				t.Errorf("steps of %d gave %d different of %d members, %d missing", count,
					len(seen), n, left)
			}
		}
	}
}
