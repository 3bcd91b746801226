package leases

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/coordd/coordd/internal/tests/seeds"
)

// model is what a registry is to be, with maps that are searched.
type model struct {
	leases map[uint64]*Lease
	last   uint64
}

func (m *model) of(i Item) uint64 {
	for id, l := range m.leases {
		if slices.ContainsFunc(l.items, func(j Item) bool { return j.place() == i.place() }) {
			return id
		}
	}
	return 0
}

func (m *model) attach(id uint64, i Item) {
	if of := m.of(i); of != 0 {
		l := m.leases[of]
		l.items = slices.DeleteFunc(l.items, func(j Item) bool { return j.place() == i.place() })
	}
	l := m.leases[id]
	l.items = append(l.items, i)
	slices.SortFunc(l.items, compareItems)
}

func (m *model) sorted() (all []*Lease) {
	for _, l := range m.leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *Lease) int { return int(a.ID) - int(b.ID) })
	return all
}

func (m *model) nodes() (ids []string) {
	for _, l := range m.leases {
		if l.Connection.Node != "" && l.GraceUntilMs == 0 {
			ids = append(ids, l.Connection.Node)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// check compares a registry with the model.
func (m *model) check(t *testing.T, r *Registry) {
	t.Helper()
	bytes := 0
	i, all := 0, m.sorted()
	r.After(0, func(l *Lease) bool {
		if i == len(all) {
			t.Fatalf("lease %d is there", l.ID)
		}
		a, b := *l, *all[i]
		a.gen, b.gen = 0, 0
		if len(a.items)+len(b.items) == 0 {
			a.items, b.items = nil, nil
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("lease %+v, want %+v", a, b)
		}
		i++
		bytes += l.bytes()
		return true
	})
	if i != len(all) || r.Len() != i || r.Bytes() != bytes || r.Last() != m.last ||
		r.ends.Len() != i {
		t.Fatalf("%d leases of %d bytes, last %d, %d ends, want %d of %d, last %d", r.Len(),
			r.Bytes(), r.Last(), r.ends.Len(), len(all), bytes, m.last)
	}
	if got, want := r.Nodes(), m.nodes(); !slices.Equal(got, want) ||
		r.Bound() != (len(want) > 0) {
		t.Fatalf("nodes %q, want %q", got, want)
	}
	items := 0
	for _, l := range all {
		items += len(l.items)
		for _, i := range l.items {
			if !r.Has(l.ID, i.DB, i.Key, i.Member) {
				t.Fatalf("%+v of lease %d is not known", i, l.ID)
			}
		}
	}
	if len(r.owners) != items {
		t.Fatalf("%d items are known, want %d", len(r.owners), items)
	}
}

func records(z *Frozen) (list [][]byte) {
	z.Records(func(b []byte) { list = append(list, bytes.Clone(b)) })
	return list
}

func restored(list [][]byte) (*Registry, error) {
	return Restore(func() []byte {
		if len(list) == 0 {
			return nil
		}
		next := list[0]
		list = list[1:]
		return next
	})
}

func TestAgainstModel(t *testing.T) {
	r, m := New(), &model{leases: map[uint64]*Lease{}}
	g := rand.New(rand.NewPCG(seeds.Of(t), 0))
	conn := func() Connection {
		if g.IntN(4) == 0 {
			return Connection{}
		}
		return Connection{"n" + strconv.Itoa(g.IntN(3)), 1 + uint64(g.IntN(3))}
	}
	now := int64(1)
	var frozen *Frozen
	var was [][]byte
	for n := range 20_000 {
		now += int64(g.IntN(3))
		var l *Lease
		if all := m.sorted(); len(all) > 0 {
			l = all[g.IntN(len(all))]
		}
		what := g.IntN(12)
		if l == nil || l.EndMs() < now && what != 11 {
			what = 0
		}
		switch what {
		case 0, 1:
			terms := Lease{TTLMs: 1 + int64(g.IntN(300)), DelayMs: int64(g.IntN(20)), User: "u",
				Created: 7, Connection: conn()}
			terms.UntilMs = now + terms.TTLMs
			if terms.Connection.Node != "" {
				terms.GraceMs = int64(g.IntN(int(terms.TTLMs)))
			}
			at := m.last - min(m.last, 2) + uint64(g.IntN(5))
			id, ok := r.Grant(at, terms)
			m.last = max(at, m.last+1)
			if !ok || id != m.last {
				t.Fatalf("granted %d, want %d", id, m.last)
			}
			terms.ID = id
			m.leases[id] = &terms
		case 2, 3:
			by := conn()
			l.UntilMs = now + l.TTLMs
			if l.Connection.Node != "" && by.Node != "" && !(l.Closed && l.Connection == by) {
				l.Connection, l.GraceUntilMs, l.Closed = by, 0, false
			}
			r.Renew(l.ID, now, by)
		case 4, 5, 6:
			i := Item{g.IntN(2), "k" + strconv.Itoa(g.IntN(30)), "", uint64(g.IntN(9))}
			if g.IntN(3) == 0 {
				i.Member = "m"
			}
			m.attach(l.ID, i)
			r.Attach(l.ID, i)
		case 7:
			keep := func(i Item) bool { return i.Created > 3 }
			l.items = slices.DeleteFunc(l.items, func(i Item) bool { return !keep(i) })
			r.Keep(l.ID, keep)
		case 8: // as the connection has closed, or its node is lost
			of, isClosed := conn(), g.IntN(2) == 0
			first := r.FirstOpen(of)
			var want *Lease
			for _, l := range m.sorted() {
				if of.Node != "" && l.Connection == of && l.GraceUntilMs == 0 && want == nil {
					want = l
				}
			}
			if (first == nil) != (want == nil) || first != nil && first.ID != want.ID {
				t.Fatalf("%v has %+v, want %+v", of, first, want)
			}
			if first != nil {
				want.GraceUntilMs, want.Closed = now+want.GraceMs, isClosed
				r.Shorten(first.ID, now, isClosed)
			}
		case 9:
			of := conn()
			first := r.FirstLost(of)
			if first != nil {
				if first.Connection != of || first.Closed || first.GraceUntilMs == 0 {
					t.Fatalf("%v is not lost: %+v", of, first)
				}
				m.leases[first.ID].GraceUntilMs = 0
				r.Recover(first.ID)
			}
		case 10:
			delete(m.leases, l.ID)
			r.End(l.ID)
		case 11:
			dropped := 0
			for id, l := range m.leases {
				if l.EndMs() < now {
					if r.Find(id, now) != nil {
						t.Fatalf("lease %d is there after its end", id)
					}
					delete(m.leases, id)
					dropped++
				}
			}
			if r.Over(now) != (dropped > 0) {
				t.Fatalf("leases have ended: %t, want %d", r.Over(now), dropped)
			}
			if got, _ := r.Drop(now, 1000, 1000); got != dropped {
				t.Fatalf("dropped %d, want %d", got, dropped)
			}
		}
		m.check(t, r)
		if n%50 == 0 {
			if frozen != nil {
				if got := records(frozen); !slices.EqualFunc(got, was, bytes.Equal) {
					t.Fatal("what was frozen has changed")
				}
			}
			frozen = r.Freeze()
			was = records(frozen)
			if m.last > 0 {
				other, err := restored(was)
				if err != nil {
					t.Fatal(err)
				}
				m.check(t, other)
				if n%500 == 0 {
					r = other
				}
			}
		}
	}
}

// Drop removes the earliest first, and no more than it may.
func TestDropIsBounded(t *testing.T) {
	r := New()
	for n := range 10 {
		r.Grant(0, Lease{TTLMs: 1, UntilMs: int64(20 - n)})
	}
	if n, _ := r.Drop(100, 3, 9); n != 3 || r.Len() != 7 || r.get(10) != nil || r.get(7) == nil {
		t.Errorf("%d dropped, %d left", n, r.Len())
	}
	if n, _ := r.Drop(13, 100, 9); n != 0 {
		t.Errorf("%d dropped before their end", n)
	}
}

// All leases together have a bound.
func TestMemoryIsBounded(t *testing.T) {
	r, long := New(), string(make([]byte, MaxBytes/64))
	n := 0
	for ; n < 100; n++ {
		if _, ok := r.Grant(0, Lease{TTLMs: 1, UntilMs: 1, User: long}); !ok {
			break
		}
	}
	if n != 63 || r.Bytes() > MaxBytes || r.Fits(MaxBytes-r.Bytes()+1) ||
		!r.Fits(MaxBytes-r.Bytes()) {
		t.Errorf("%d large leases, %d bytes", n, r.Bytes())
	}
}

// Records of nothing that a registry can be are refused, and so are damaged ones.
func TestCorruptRecords(t *testing.T) {
	r := New()
	for n := range 3 {
		id, _ := r.Grant(0, Lease{TTLMs: 9, UntilMs: 9, GraceMs: 2, User: "u",
			Connection: Connection{"n", uint64(n + 1)}})
		r.Attach(id, Item{DB: n, Key: "k", Created: 1})
		r.Attach(id, Item{DB: n, Key: "k", Member: "m", Created: 1})
	}
	r.Shorten(2, 1, true)
	list := records(r.Freeze())
	if len(list) != 1 {
		t.Fatalf("%d records", len(list))
	}
	good := list[0]
	if _, err := restored(list); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := restored([][]byte{good[:n]}); err == nil {
			t.Errorf("the first %d bytes are accepted", n)
		}
	}
	if _, err := restored([][]byte{append(bytes.Clone(good), 0)}); err == nil {
		t.Error("a byte more is accepted")
	}
	for n := range good {
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[n] ^= 1 << bit
			if other, err := restored([][]byte{bad}); err == nil {
				// another valid state, which is encoded like that
				if again := records(other.Freeze()); len(again) != 1 ||
					!bytes.Equal(again[0], bad) {
					t.Errorf("byte %d, bit %d: %x is read as something else", n, bit, bad)
				}
			}
		}
	}
	for name, change := range map[string]func(r *Registry){
		"no TTL":           func(r *Registry) { r.get(1).TTLMs = 0 },
		"negative":         func(r *Registry) { r.get(1).DelayMs = -1 },
		"grace of nothing": func(r *Registry) { r.get(1).Connection = Connection{} },
		"no connection":    func(r *Registry) { r.get(1).Connection.ID = 0 },
		"closed only":      func(r *Registry) { r.get(1).Closed = true },
		"last":             func(r *Registry) { r.last = 2 },
		"database":         func(r *Registry) { r.get(1).items[0].DB = 16 },
		"twice":            func(r *Registry) { r.get(1).items[1].Member = "" },
		"of two":           func(r *Registry) { r.get(1).items[1] = r.get(2).items[0] },
	} {
		other, err := restored([][]byte{good})
		if err != nil {
			t.Fatal(err)
		}
		change(other)
		if _, err := restored(records(other.Freeze())); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Large registries have several records.
func TestManyRecords(t *testing.T) {
	r := New()
	id, _ := r.Grant(0, Lease{TTLMs: 9, UntilMs: 9})
	for n := range MaxItems {
		r.Attach(id, Item{Key: fmt.Sprintf("%0300d", n), Created: 1})
	}
	list := records(r.Freeze())
	other, err := restored(list)
	if err != nil || len(list) < 3 ||
		!slices.EqualFunc(records(other.Freeze()), list, bytes.Equal) {
		t.Errorf("%d records: %v", len(list), err)
	}
	r.Attach(id, Item{Key: "one more", Created: 1})
	if _, err := restored(records(r.Freeze())); err == nil {
		t.Error("too many items are accepted")
	}
}
