// Deadlines of members: random changes against a model, and what a sweep leaves visible.

package keyspace

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"unsafe"
)

// mortalModel is a set beside a map of the deadlines of its members, 0 for none. names says that
// the set has the form for any strings.
type mortalModel struct {
	*testing.T
	ks      *Keyspace
	s       *Set
	members map[string]int64
	names   bool
}

func (m *mortalModel) alive(name string) bool {
	atMs, ok := m.members[name]
	return ok && (atMs == 0 || atMs >= m.ks.now)
}

// want returns the members that exist, in their order.
func (m *mortalModel) want() (all []string) {
	for name := range maps.Keys(m.members) {
		if m.alive(name) {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		if !m.names {
			x, _ := strconv.Atoi(a)
			y, _ := strconv.Atoi(b)
			return x - y
		}
		return compareHashed(hashOf(a), a, hashOf(b), b)
	})
	return all
}

// check compares everything that the set shows with the model.
func (m *mortalModel) check() {
	m.Helper()
	find := m.s.Finder()
	for name, atMs := range m.members {
		ok := m.alive(name)
		at, exists := m.s.Deadline([]byte(name))
		if m.s.Has([]byte(name)) != ok || exists != ok || ok && at != atMs ||
			find(Member{Hash: hashOf(name), Name: name}) != ok {
			m.Fatalf("%q expires at %d, %v, want %d, %v", name, at, exists, atMs, ok)
		}
	}
	want := m.want()
	var each, scanned, picked, all, byHash []string
	keep := func(to *[]string) func(string) bool {
		return func(name string) bool {
			*to = append(*to, name)
			return true
		}
	}
	m.s.Each(keep(&each))
	m.s.Scan(0, 1<<20, func(name string) { scanned = append(scanned, name) })
	at := m.s.Pick()
	for i := range m.s.Len() {
		picked = append(picked, at(i))
	}
	for _, member := range m.s.All() {
		all = append(all, member.Name)
	}
	m.s.ByHash(func(member Member) bool { return keep(&byHash)(member.Name) })
	if m.s.Len() != len(want) || m.s.Integers() == m.names || !slices.Equal(each, want) ||
		!slices.Equal(scanned, want) || !slices.Equal(picked, want) || !slices.Equal(all, want) ||
		len(byHash) != len(want) {
		m.Fatalf("Len %d, Each %q, Scan %q, Pick %q, All %q, ByHash %q, integers %v, want %q, %v",
			m.s.Len(), each, scanned, picked, all, byHash, m.s.Integers(), want, !m.names)
	}
	lives := map[string]int64{}
	m.s.Deadlines(func(name string, atMs int64) { lives[name] = atMs })
	lasting := maps.Clone(m.members)
	maps.DeleteFunc(lasting, func(name string, at int64) bool { return at == 0 || !m.alive(name) })
	if !maps.Equal(lives, lasting) || m.s.Lasting() != (len(lasting) > 0) {
		m.Fatalf("Deadlines %v, Lasting %v, want %v", lives, m.s.Lasting(), lasting)
	}
	if over := len(want) == 0 && m.s.size() > 0; m.s.over(m.s.size()) != over {
		m.Fatalf("over is %v with %d members of %d alive", !over, len(want), m.s.size())
	}
	countsRight(m.T, m.s)
	plain := m.s.Clone().(*Set)
	for _, name := range want {
		plain.SetDeadline(m.ks, []byte(name), 0)
	}
	if (plain.Sum() == m.s.Sum()) == m.s.Lasting() {
		m.Fatalf("with deadlines %v the Sum is %x, without %x", lasting, m.s.Sum(), plain.Sum())
	}
	r := newReader(m.s.appendTo(nil), m.ks, true)
	if read := readSet(r); !r.Done() || read.Sum() != m.s.Sum() || read.size() != m.s.size() ||
		read.Volatile() != m.s.Volatile() || read.Integers() != m.s.Integers() {
		m.Fatalf("read from its record: failed %v, Sum %x of %d, want %x of %d", r.Failed(),
			read.Sum(), read.size(), m.s.Sum(), m.s.size())
	}
}

// change makes a random change of one of so many members.
func (m *mortalModel) change(r *rand.Rand, names int) {
	name := strconv.Itoa(r.IntN(names))
	ok := m.alive(name)
	switch r.IntN(12) {
	case 0, 1, 2:
		if m.s.Add([]byte(name)) == ok {
			m.Fatalf("Add of %q: new is %v", name, ok)
		}
		if !ok {
			m.members[name] = 0
		}
		m.names = m.names || m.s.size() > smallIntegers
	case 3:
		if m.s.Delete([]byte(name)) != ok {
			m.Fatalf("Delete of %q is %v", name, !ok)
		}
		if ok {
			delete(m.members, name)
		}
	case 4:
		want := m.want()
		positions := r.Perm(len(want))[:min(len(want), r.IntN(3))]
		m.s.RemoveAt(positions, func(int) {})
		for _, i := range positions {
			delete(m.members, want[i])
		}
	case 5, 6, 7, 8:
		if ok {
			m.members[name] = m.ks.now + r.Int64N(30)
			m.s.SetDeadline(m.ks, []byte(name), m.members[name])
			m.names = true
		}
	case 9:
		if ok {
			m.members[name] = 0
			m.s.SetDeadline(m.ks, []byte(name), 0)
		}
	case 10:
		m.ks.now += r.Int64N(5)
	case 11:
		most, dead := r.IntN(4), m.s.Dead()
		if m.s.sweep(m.s, most) != min(most, dead) {
			m.Fatalf("a sweep of %d left %d of %d", most, m.s.Dead(), dead)
		}
	}
}

func TestMemberTTLsAgainstModel(t *testing.T) {
	r := dbRand(t)
	for _, names := range []int{4, 100, 3 * smallNames} {
		ks := New()
		m := &mortalModel{T: t, ks: ks, s: NewSet(), members: map[string]int64{}}
		frozen := m.s.Clone().(*Set)
		before := frozen.appendTo(nil)
		for step := range 4000 {
			m.change(r, names)
			if step%25 == 0 {
				m.check()
			}
			if step%500 == 0 {
				if string(frozen.appendTo(nil)) != string(before) {
					t.Fatal("a clone changed with what it was made of")
				}
				frozen = m.s
				before = frozen.appendTo(nil)
				m.s = m.s.Clone().(*Set)
			}
		}
		ks.now += 1000
		m.check()
		m.s.sweep(m.s, 1<<20)
		m.check()
		if m.s.Dead() != 0 {
			t.Errorf("%d dead members after a whole sweep", m.s.Dead())
		}
	}
}

// A set without deadlines has the record of any strings, even if it had some before.
func TestSetRecordWithoutTTLs(t *testing.T) {
	ks := New()
	s := NewSet()
	s.Add([]byte("m"))
	plain := string(s.appendTo(nil))
	s.SetDeadline(ks, []byte("m"), 7)
	if string(s.appendTo(nil)) == plain {
		t.Error("the deadline is not in the record")
	}
	s.SetDeadline(ks, []byte("m"), 0)
	if got := string(s.appendTo(nil)); got != plain {
		t.Errorf("record %q, want %q", got, plain)
	}
}

// Members without deadlines take nothing for them, before and after there were any.
func TestMembersWithoutTTLsTakeNoMore(t *testing.T) {
	if size := unsafe.Sizeof(largeName{}); size > 24 {
		t.Errorf("a member of a large set takes %d bytes", size)
	}
	ks := New()
	s := NewSet()
	for i := range 2 * smallNames {
		s.Add(k(i))
	}
	for range 2 {
		if s.names.dated != nil {
			t.Fatal("deadlines of no member")
		}
		s.SetDeadline(ks, k(1), 7)
		s.SetDeadline(ks, k(2), 8)
		if s.names.dated.Len() != 2 {
			t.Fatalf("%d deadlines", s.names.dated.Len())
		}
		s.SetDeadline(ks, k(1), 0)
		s.Delete(k(2))
		s.Add(k(2))
	}
}

// How many elements have expired is looked for once for each moment of the clock, however often a
// command asks, unless one of them goes.
func TestExpiredElementsAreCountedOnce(t *testing.T) {
	ks := New()
	s := NewSet()
	for i := range 100 {
		name := []byte(strconv.Itoa(i))
		s.Add(name)
		s.SetDeadline(ks, name, int64(10*i+10))
	}
	counted := func(want int, known bool) {
		t.Helper()
		if n, ok := s.gone.get(ks.now); ok != known || ok && n != want {
			t.Errorf("at %d: %d, %v, want %d, %v", ks.now, n, ok, want, known)
		}
		if n := s.Dead(); n != want {
			t.Errorf("at %d: %d have expired, want %d", ks.now, n, want)
		}
		if n, ok := s.gone.get(ks.now); !ok || n != want {
			t.Errorf("at %d: %d, %v was counted, want %d", ks.now, n, ok, want)
		}
	}
	for ks.now = 201; ks.now < 600; ks.now += 100 {
		counted(int(ks.now/10), false)
		counted(int(ks.now/10), true)
		s.Add([]byte("stays"))
		s.SetDeadline(ks, []byte("stays"), 5000+ks.now)
		s.Delete([]byte("99"))
		counted(int(ks.now/10), true)
	}
	ks.now = 601
	counted(60, false)
	s.bury("5")
	counted(59, false)
	c := s.Clone().(*Set)
	c.bury("6")
	if c.Dead() != 58 {
		t.Errorf("%d members of the copy have expired", c.Dead())
	}
	counted(59, true)
	s.SetDeadline(ks, []byte("stays"), 600) // as while a snapshot is read
	counted(60, false)
}

// A collection whose elements have no deadlines any more rests again and counts as before, whether
// they were removed or have passed.
func TestCollectionRestsWithoutTTLs(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		for _, passes := range []bool{false, true} {
			ks := New()
			ks.SweepQuietly(quiet)
			now := int64(1)
			in := func(f func(db *DB)) {
				ks.Begin(now, NewRevision(0, uint64(now), 0))
				f(ks.DB(0))
				ks.End()
				now++
			}
			stays, goes := []byte("stays"), []byte("goes")
			in(func(db *DB) {
				h, s := NewHash(), NewSet()
				h.Set(stays, nil)
				s.Add(stays)
				db.Changed(db.SetCollection([]byte("h"), h))
				db.Changed(db.SetCollection([]byte("s"), s))
			})
			before := ks.Size()
			in(func(db *DB) {
				e := db.Edit([]byte("h"))
				h := e.Collection().(*Hash)
				h.Set(goes, nil)
				h.SetDeadline(ks, goes, now+1)
				db.Changed(e)
				e = db.Edit([]byte("s"))
				s := e.Collection().(*Set)
				s.Add(goes)
				s.SetDeadline(ks, goes, now+1)
				db.Changed(e)
			})
			if least := before + 2*(datedCost+deadlineCost); ks.Size() < least {
				t.Errorf("with deadlines %d bytes count, want %d at least", ks.Size(), least)
			}
			if passes {
				now += 10
			}
			in(func(db *DB) {
				for _, key := range []string{"h", "s"} {
					if !passes {
						e := db.Edit([]byte(key))
						e.Collection().(interface{ Delete([]byte) bool }).Delete(goes)
						db.Changed(e)
					}
				}
			})
			ks.Freeze()
			for _, key := range []string{"h", "s"} {
				if e := ks.DB(0).keys.find(hashOf(key), []byte(key)); e.form != rested {
					t.Errorf("quiet %v, passes %v: %s does not rest", quiet, passes, key)
				}
			}
			if n := ks.DB(0).VolatileCollections(); n != 0 || ks.Size() != before {
				t.Errorf("quiet %v, passes %v: %d collections with deadlines, %d bytes count "+
					"instead of %d", quiet, passes, n, ks.Size(), before)
			}
		}
	}
}
