// Bulk operations compared with the same changes one by one, and the cost of the first change after
// a snapshot.

package keyspace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// bulkMembers returns n distinct members: with scores that are often equal, zeros of both signs,
// and some long names.
func bulkMembers(r *rand.Rand, n int) []Scored {
	all := make([]Scored, n)
	for i, position := range r.Perm(n) {
		name, score := "m"+strconv.Itoa(position), float64(r.IntN(n/3+2)-n/6)
		if n > 20 && r.IntN(300) == 0 {
			name += strings.Repeat("x", smallBytes)
		}
		if score == 0 && r.IntN(2) == 0 {
			score = math.Copysign(0, -1)
		}
		all[i] = Scored{score, name}
	}
	return all
}

func zsetOneByOne(all []Scored, large bool) *ZSet {
	z := NewZSet()
	if large {
		z.grow()
	}
	for _, s := range all {
		z.Add([]byte(s.Member), s.Score)
	}
	return z
}

// sameZSet compares two sets with different histories.
func sameZSet(t *testing.T, what string, got, want *ZSet) {
	t.Helper()
	countsRight(t, got)
	if got.Sum() != want.Sum() || string(got.appendTo(nil)) != string(want.appendTo(nil)) ||
		got.Compact() != want.Compact() {
		t.Fatalf("%s: %d members and sum %x, want %d and %x", what, got.Len(), got.Sum(),
			want.Len(), want.Sum())
	}
	var hashes, wanted []Member
	gather := func(to *[]Member) func(Member) bool {
		return func(m Member) bool {
			*to = append(*to, m)
			return true
		}
	}
	got.ByHash(gather(&hashes))
	want.ByHash(gather(&wanted))
	if !slices.Equal(hashes, wanted) || !slices.IsSortedFunc(hashes, memberCompare) {
		t.Fatalf("%s: by hash %v, want %v", what, hashes, wanted)
	}
	find := got.Finder()
	for i, m := range hashes {
		if score, ok := find(m); !ok || score != m.Score {
			t.Fatalf("%s: the finder finds %v, %v of %v", what, score, ok, m)
		}
		if _, ok := find(Member{Hash: m.Hash, Name: m.Name + "no"}); ok {
			t.Fatalf("%s: the finder finds what is not there, behind %d others", what, i)
		}
	}
}

func TestZSetInBulk(t *testing.T) {
	r := dbRand(t)
	for _, n := range []int{0, 1, 5, smallMembers, smallMembers + 1, 700, 5000} {
		for range 4 {
			all := bulkMembers(r, n)
			large := n > smallMembers || slices.ContainsFunc(all, func(s Scored) bool {
				return len(s.Member) > smallBytes
			})
			want := zsetOneByOne(all, large)
			members := hashed(all)
			sameZSet(t, "by hash", ZSetOfMembers(slices.Clone(members), nil), want)
			z := ZSetOf(ByScore(members, nil))
			sameZSet(t, "by score", z, want)
			if n == 0 {
				continue
			}
			frozen := z.Clone().(*ZSet)
			first := r.IntN(n)
			last := first + r.IntN(n-first)
			var part, rest []Scored
			for rank := range n {
				if rank >= first && rank <= last {
					part = append(part, z.At(rank))
				} else {
					rest = append(rest, z.At(rank))
				}
			}
			sameZSet(t, fmt.Sprintf("%d to %d of %d", first, last, n),
				writable(1, 1).DB(0).Part(z, first, last, slices.Clone(part)),
				ZSetOf(slices.Clone(part)))
			z.RemoveRange(first, last)
			sameZSet(t, fmt.Sprintf("without %d to %d of %d", first, last, n), z,
				zsetOneByOne(rest, large))
			for _, s := range part { // it continues as one that was never rebuilt
				z.Add([]byte(s.Member), s.Score)
			}
			sameZSet(t, "made whole again", z, want)
			sameZSet(t, "the copy", frozen, want)
		}
	}
}

func TestSetInBulk(t *testing.T) {
	r := dbRand(t)
	for _, n := range []int{0, 1, 5, smallNames, smallNames + 1, smallIntegers, smallIntegers + 1,
		3000} {
		for round := range 4 {
			want := NewSet()
			var members []Member
			for _, position := range r.Perm(n) {
				name := strconv.Itoa(position)
				if round%2 == 1 {
					name = "m" + name
				}
				want.Add([]byte(name))
				members = append(members, Member{Hash: hashOf(name), Name: name})
			}
			s := SetOf(members, false, nil)
			same := func(what string, got, want *Set) {
				t.Helper()
				countsRight(t, got)
				if got.Sum() != want.Sum() ||
					string(got.appendTo(nil)) != string(want.appendTo(nil)) ||
					got.Integers() != want.Integers() {
					t.Fatalf("%s: %d members and sum %x, want %d and %x", what, got.Len(),
						got.Sum(), want.Len(), want.Sum())
				}
				find, position := got.Finder(), 0
				for i, m := range got.All() {
					if !find(m) || find(Member{Hash: m.Hash, Name: m.Name + "no"}) ||
						want.Pick()(i) != m.Name || hashOf(m.Name) != m.Hash {
						t.Fatalf("%s: position %d has %v, want %q", what, i, m, want.Pick()(i))
					}
				}
				last := Member{}
				got.ByHash(func(m Member) bool {
					if position++; memberCompare(last, m) > 0 {
						t.Fatalf("%s: %v comes before %v", what, last, m)
					}
					last = m
					return true
				})
				if position != want.Len() {
					t.Fatalf("%s: %d members by hash, want %d", what, position, want.Len())
				}
			}
			same("all", s, want)
			frozen, before := s.Clone().(*Set), want.Clone().(*Set)
			positions := r.Perm(n)[:r.IntN(n+1)]
			gone := make([]string, len(positions))
			for i, position := range positions {
				gone[i] = s.Pick()(position)
			}
			s.RemoveAt(positions, nil)
			for _, name := range gone {
				want.Delete([]byte(name))
			}
			same(fmt.Sprintf("without %d of %d", len(gone), n), s, want)
			for _, name := range gone {
				s.Add([]byte(name))
				want.Add([]byte(name))
			}
			same("made whole again", s, want)
			same("the copy", frozen, before)
		}
	}
}

// A consumer goes with its entries, few or most of the group's.
func TestRemoveConsumerInBulk(t *testing.T) {
	r := dbRand(t)
	for _, share := range []int{1, 2, 50, 99, 100} {
		s, one := NewStream(), NewStream()
		var wanted []Pending
		for _, to := range []*Stream{s, one} {
			g := to.CreateGroup([]byte("g"), StreamID{}, 0)
			g.See([]byte("goes"), 1, true)
			g.See([]byte("stays"), 1, true)
		}
		for i := range 2000 {
			p := Pending{StreamID{1, uint64(i)}, "stays", 1, 1}
			if r.IntN(100) < share {
				p.Consumer = "goes"
			} else {
				wanted = append(wanted, p)
			}
			s.EditGroup([]byte("g")).SetPending(p)
			one.EditGroup([]byte("g")).SetPending(p)
		}
		frozen := s.Clone().(*Stream)
		before := string(frozen.appendTo(nil))
		s.EditGroup([]byte("g")).RemoveConsumer([]byte("goes"))
		g := one.EditGroup([]byte("g"))
		for p, ok := g.NextPendingOf([]byte("goes"), StreamID{}); ok; p,
			ok = g.NextPendingOf([]byte("goes"), StreamID{}) {
			g.Acknowledge(p.ID)
		}
		g.RemoveConsumer([]byte("goes"))
		countsRight(t, s)
		if s.Sum() != one.Sum() || string(s.appendTo(nil)) != string(one.appendTo(nil)) {
			t.Fatalf("%d %%: the streams differ", share)
		}
		if string(frozen.appendTo(nil)) != before {
			t.Fatalf("%d %%: the copy changed", share)
		}
		for name, walk := range map[string]func(f func(Pending) bool){
			"all": func(f func(Pending) bool) { s.Group([]byte("g")).EachPending(StreamID{}, f) },
			"of": func(f func(Pending) bool) {
				s.Group([]byte("g")).EachPendingOf([]byte("stays"), StreamID{}, f)
			},
		} {
			var found []Pending
			walk(func(p Pending) bool {
				found = append(found, p)
				return true
			})
			if !slices.Equal(found, wanted) {
				t.Fatalf("%d %%, %s: %d entries are pending, want %d", share, name, len(found),
					len(wanted))
			}
		}
	}
}

// The first change of a large value under a snapshot copies a small part of it.
func TestFirstChangeAfterSnapshotCopiesLittle(t *testing.T) {
	const n = 20_000
	for name, c := range map[string]struct {
		change func(c Collection)
		value  Collection
	}{
		"hash": {value: NewHash(), change: func(c Collection) { c.(*Hash).Set(k(5), k(6)) }},
		"set":  {value: NewSet(), change: func(c Collection) { c.(*Set).Add([]byte("new")) }},
		"zset": {value: NewZSet(), change: func(c Collection) { c.(*ZSet).Add(k(5), -1) }},
		"list": {value: NewList(), change: func(c Collection) { c.(*List).Set(n/2, k(5)) }},
		"stream": {value: NewStream(), change: func(c Collection) {
			c.(*Stream).Delete(StreamID{1, n / 2})
		}},
		"groups": {value: NewStream(), change: func(c Collection) {
			c.(*Stream).CreateGroup([]byte("new"), StreamID{}, 0)
		}},
	} {
		for i := range n {
			switch v := c.value.(type) {
			case *Hash:
				v.Set(k(i), k(i))
			case *Set:
				v.Add(k(i))
			case *ZSet:
				v.Add(k(i), float64(i))
			case *List:
				v.PushBack(k(i))
			case *Stream:
				if name == "groups" {
					v.CreateGroup(k(i), StreamID{}, 0)
				} else {
					v.Add(StreamID{1, uint64(i + 1)}, [][]byte{k(1), k(i)})
				}
			}
		}
		ks := writable(1, 1)
		ks.DB(0).Changed(ks.DB(0).SetCollection(k(1), c.value))
		f := ks.Freeze()
		want := records(t, f)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e := ks.DB(0).Edit(k(1))
		c.change(e.Collection())
		ks.DB(0).Changed(e)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 100_000 {
			t.Errorf("%s: the change took %d bytes", name, took)
		}
		if !sameRecords(records(t, f), want) || sameRecords(records(t, ks.Freeze()), want) {
			t.Errorf("%s: the snapshot changed, or nothing did", name)
		}
	}
}
