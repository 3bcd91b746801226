// Streams: random changes against a model, clones, which must not see changes of the original, and
// records. testdata/commands/streams_trim.txt compares with Redis which entries a trim by nodes
// leaves.

package keyspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// streamModel is a stream as maps.
type streamModel struct {
	entries map[StreamID]string
	groups  map[string]*groupModel
	last    StreamID
}

type groupModel struct {
	pending   map[StreamID]Pending
	consumers map[string]Consumer // without what is pending
}

func newStreamModel() *streamModel {
	return &streamModel{entries: map[StreamID]string{}, groups: map[string]*groupModel{}}
}

func (m *streamModel) clone() *streamModel {
	c := &streamModel{entries: maps.Clone(m.entries), groups: map[string]*groupModel{},
		last: m.last}
	for name, g := range m.groups {
		c.groups[name] = &groupModel{maps.Clone(g.pending), maps.Clone(g.consumers)}
	}
	return c
}

func compareIDs(a, b StreamID) int {
	return cmp.Or(cmp.Compare(a.Ms, b.Ms), cmp.Compare(a.Seq, b.Seq))
}

func (m *streamModel) ids() []StreamID {
	return slices.SortedFunc(maps.Keys(m.entries), compareIDs)
}

// textOf is the entry's texts in one.
func textOf(e StreamEntry) string {
	var texts []string
	e.Each(func(text []byte) { texts = append(texts, string(text)) })
	return fmt.Sprint(texts)
}

// check compares everything that s shows with the model.
func (m *streamModel) check(t *testing.T, s *Stream) {
	t.Helper()
	ids := m.ids()
	if s.Len() != len(ids) || s.Last() != m.last || s.Groups() != len(m.groups) {
		t.Fatalf("%d entries up to %v and %d groups, want %d, %v, %d", s.Len(), s.Last(),
			s.Groups(), len(ids), m.last, len(m.groups))
	}
	var there, back []StreamID
	s.Range(StreamID{}, MaxStreamID, func(e StreamEntry) bool {
		if got, ok := s.Get(e.ID); !ok || textOf(e) != m.entries[e.ID] ||
			textOf(got) != m.entries[e.ID] {
			t.Fatalf("%v is %s, want %s", e.ID, textOf(e), m.entries[e.ID])
		}
		there = append(there, e.ID)
		return true
	})
	s.RangeBack(StreamID{}, MaxStreamID, func(e StreamEntry) bool {
		back = append(back, e.ID)
		return true
	})
	slices.Reverse(back)
	if !slices.Equal(there, ids) || !slices.Equal(back, ids) {
		t.Fatalf("the entries are %v, backwards %v, want %v", there, back, ids)
	}
	s.EachGroup(func(g *Group) { m.groups[g.Name()].check(t, g) })
	m.checkNodes(t, s)
}

// checkNodes checks that the nodes hold the entries that they say.
func (m *streamModel) checkNodes(t *testing.T, s *Stream) {
	t.Helper()
	total := 0
	s.nodes.Scan(func(n streamNode) bool {
		live := 0
		s.Range(n.first, n.last, func(StreamEntry) bool {
			live++
			return true
		})
		if live != n.live || n.live+n.dead > nodeEntries {
			t.Fatalf("the node from %v to %v has %d entries, says %d of %d", n.first, n.last, live,
				n.live, n.live+n.dead)
		}
		total += live
		return true
	})
	if total != s.Len() {
		t.Fatalf("%d entries in nodes, want %d", total, s.Len())
	}
}

func (m *groupModel) check(t *testing.T, g *Group) {
	t.Helper()
	if g.Pending() != len(m.pending) || g.Consumers() != len(m.consumers) {
		t.Fatalf("%d pending, %d consumers, want %d, %d", g.Pending(), g.Consumers(),
			len(m.pending), len(m.consumers))
	}
	ids := slices.SortedFunc(maps.Keys(m.pending), compareIDs)
	walk := func(next func(StreamID) (Pending, bool), ids []StreamID) {
		t.Helper()
		var start StreamID
		for _, id := range ids {
			p, ok := next(start)
			if !ok || p != m.pending[id] {
				t.Fatalf("from %v on is %v, want %v", start, p, m.pending[id])
			}
			start, _ = id.Next()
		}
		if p, ok := next(start); ok {
			t.Fatalf("after the last one is %v", p)
		}
	}
	walk(g.NextPending, ids)
	g.EachConsumer(func(c Consumer) {
		own := slices.DeleteFunc(slices.Clone(ids), func(id StreamID) bool {
			return !m.pending[id].isOf(c.Name)
		})
		want := m.consumers[c.Name]
		if want.Pending = len(own); c != want {
			t.Fatalf("consumer %v, want %v", c, want)
		}
		walk(func(start StreamID) (Pending, bool) {
			return g.NextPendingOf([]byte(c.Name), start)
		}, own)
	})
}

// step does one random thing to a stream and its model.
func (m *streamModel) step(r *rand.Rand, s *Stream) {
	switch r.IntN(10) {
	case 0, 1, 2, 3:
		m.add(r, s)
	case 4:
		if ids := m.ids(); len(ids) > 0 {
			id := ids[r.IntN(len(ids))]
			if !s.Delete(id) || s.Delete(id) {
				panic("Delete of an entry that is there")
			}
			delete(m.entries, id)
		}
	case 5:
		switch r.IntN(10) {
		case 0:
			m.trim(r, s)
		case 1:
			m.trimByRefs(r, s)
		}
	case 6:
		m.changeGroups(r, s)
	default:
		m.changeGroup(r, s)
	}
}

func (m *streamModel) add(r *rand.Rand, s *Stream) {
	m.last.Seq += uint64(r.IntN(3)) + 1
	if r.IntN(4) == 0 {
		m.last = StreamID{m.last.Ms + uint64(r.IntN(1000)) + 1, uint64(r.IntN(3))}
	}
	texts := [][]byte{[]byte("name"), bytes.Repeat([]byte("v"), r.IntN(100))}
	for range r.IntN(3) {
		texts = append(texts, fmt.Append(nil, r.IntN(10)), fmt.Append(nil, r.Int64()))
	}
	s.Add(m.last, texts)
	m.entries[m.last] = textOf(StreamEntry{packed: pack(texts)})
	for _, text := range texts { // what the caller does with its arguments afterwards must not show
		clear(text)
	}
}

func (m *streamModel) trim(r *rand.Rand, s *Stream) {
	ids := m.ids()
	trim := StreamTrim{ByLength: r.IntN(2) == 0, Approx: r.IntN(2) == 0,
		Limit: int64(r.IntN(3) * 50)}
	wanted := r.IntN(len(ids) + 1) // to remove
	if trim.ByLength {
		trim.MaxLen = int64(len(ids) - wanted)
	} else if trim.MinID = m.last; wanted < len(ids) {
		trim.MinID = ids[wanted]
	} else {
		trim.MinID.Seq++
	}
	would := s.Trims(trim, 0)
	nodes := s.Nodes()
	removed, _ := s.Trim(trim)
	exact := !trim.Approx && trim.Limit == 0
	if would != (removed > 0 || s.Nodes() < nodes) || removed > wanted ||
		(exact && removed != wanted) || (trim.Limit > 0 && removed > int(trim.Limit)+nodeEntries) {
		panic(fmt.Sprintf("Trim(%+v) removed %d of %d; Trims says %v", trim, removed, wanted,
			would))
	}
	for _, id := range ids[:removed] {
		delete(m.entries, id)
	}
}

// needed says what Stream.Needed must say.
func (m *streamModel) needed(s *Stream, id StreamID) bool {
	for name, g := range m.groups {
		if _, pending := g.pending[id]; pending || s.Group([]byte(name)).Last().Less(id) {
			return true
		}
	}
	return false
}

// trimByRefs trims where references to entries count.
func (m *streamModel) trimByRefs(r *rand.Rand, s *Stream) {
	ids := m.ids()
	trim := StreamTrim{ByLength: r.IntN(2) == 0, Approx: r.IntN(2) == 0,
		Limit: int64(r.IntN(3) * 50), Refs: DropRefs + Refs(r.IntN(2))}
	wanted := ids[:r.IntN(len(ids)+1)] // to remove
	trim.MaxLen = int64(len(ids) - len(wanted))
	if trim.MinID = m.last; len(wanted) < len(ids) {
		trim.MinID = ids[len(wanted)]
	} else {
		trim.MinID.Seq++
	}
	may := map[StreamID]bool{}
	for _, id := range wanted {
		may[id] = trim.Refs == DropRefs || !m.needed(s, id)
		if m.needed(s, id) != s.Needed(id) {
			panic("Needed")
		}
	}
	_, expected, _ := s.TrimSizeEach(trim, 0, func(StreamID) {})
	would := s.Trims(trim, 0)
	removed, _ := s.Trim(trim)
	if removed != expected || removed > 0 && !would || s.Len() < int(trim.MaxLen) &&
		trim.ByLength || trim.Limit > 0 && removed > int(trim.Limit) {
		panic(fmt.Sprintf("Trim(%+v) of %d removed %d, wanted %d, expected %d", trim, len(ids),
			removed, len(wanted), expected))
	}
	for _, id := range ids {
		_, exists := s.Get(id)
		// by length entries go that are newer than those that must stay
		if exists && may[id] && trim.Limit == 0 && (!trim.ByLength || trim.Refs == DropRefs) ||
			!exists && !may[id] && (!trim.ByLength || m.needed(s, id)) {
			panic(fmt.Sprintf("Trim(%+v): %v is there: %v", trim, id, exists))
		}
		if exists {
			continue
		}
		delete(m.entries, id)
		for _, g := range m.groups {
			if trim.Refs == DropRefs {
				delete(g.pending, id)
			}
		}
	}
}

func (m *streamModel) changeGroups(r *rand.Rand, s *Stream) {
	name := fmt.Sprint("g", r.IntN(4))
	_, exists := m.groups[name]
	if r.IntN(20) > 0 {
		if (s.CreateGroup([]byte(name), m.last, int64(r.IntN(5)-1)) == nil) != exists {
			panic("CreateGroup")
		}
		if !exists {
			m.groups[name] = &groupModel{map[StreamID]Pending{}, map[string]Consumer{}}
		}
		return
	}
	if s.DestroyGroup([]byte(name)) != exists {
		panic("DestroyGroup")
	}
	delete(m.groups, name)
}

func (m *streamModel) changeGroup(r *rand.Rand, s *Stream) {
	name := []byte(fmt.Sprint("g", r.IntN(4)))
	g := s.EditGroup(name)
	if g == nil {
		return
	}
	gm, consumer := m.groups[string(name)], []string{"", "c1", "c2"}[r.IntN(3)]
	id := StreamID{1, uint64(r.IntN(60))}
	if ids := m.ids(); len(ids) > 0 && r.IntN(2) == 0 {
		id = ids[r.IntN(len(ids))]
	}
	switch r.IntN(14) {
	case 12, 13:
		p := Pending{ID: id, DeliveredMs: releasedMs, Deliveries: r.Int64N(5)}
		g.Release(id, p.Deliveries)
		gm.pending[id] = p
		if r.IntN(3) == 0 {
			s.DropRefs(id)
			for _, g := range m.groups {
				delete(g.pending, id)
			}
		}
	case 0:
		g.SetPosition(id, r.Int64())
	case 1:
		g.Advance(m.last)
	case 2, 3, 4:
		_, exists := gm.pending[id]
		if g.Acknowledge(id) != exists {
			panic("Acknowledge")
		}
		delete(gm.pending, id)
	case 5:
		g.RemoveConsumer([]byte(consumer))
		delete(gm.consumers, consumer)
		maps.DeleteFunc(gm.pending, func(_ StreamID, p Pending) bool {
			return p.isOf(consumer)
		})
	default:
		c, exists := gm.consumers[consumer]
		now, active := r.Int64N(100), r.IntN(2) == 0
		if g.See([]byte(consumer), now, active) == exists {
			panic("See")
		}
		if !exists {
			c = Consumer{Name: consumer, ActiveMs: NeverActive}
		}
		if c.SeenMs = now; active {
			c.ActiveMs = now
		}
		gm.consumers[consumer] = c
		p := Pending{id, consumer, now - 50, r.Int64N(5)}
		g.SetPending(p)
		gm.pending[id] = p
	}
}

// checkRecord checks that a stream equals what is read from its record, to the last byte.
func checkRecord(t *testing.T, s *Stream) []byte {
	t.Helper()
	record := s.appendTo(nil)
	r := newReader(record, nil, !s.loose)
	restored := readStream(r)
	if !r.Done() {
		t.Fatalf("the record of a stream is refused, or %d bytes of it are not read", r.Len())
	}
	countsRight(t, s)
	countsRight(t, restored)
	if restored.Sum() != s.Sum() {
		t.Fatalf("Sum is %x, of what was restored %x", s.Sum(), restored.Sum())
	}
	if again := restored.appendTo(nil); !bytes.Equal(again, record) {
		t.Fatalf("the record of what was restored is\n%q, want\n%q", again, record)
	}
	if restored.RadixNodes() != s.RadixNodes() {
		t.Fatalf("%d radix nodes, of what was restored %d", s.RadixNodes(), restored.RadixNodes())
	}
	return record
}

func TestStreamAgainstModel(t *testing.T) {
	r := dbRand(t)
	for range 8 {
		s, m := NewStream(), newStreamModel()
		var clones []*Stream
		var models []*streamModel
		var kept [][]byte
		for step := range 2000 {
			m.step(r, s)
			if step%150 > 0 {
				continue
			}
			m.check(t, s)
			clones, models, kept = append(clones, s.Clone().(*Stream)), append(models, m.clone()),
				append(kept, checkRecord(t, s))
			if r.IntN(2) == 0 { // go on with the clone
				last := len(clones) - 1
				s, clones[last] = clones[last], s
			}
		}
		m.check(t, s)
		now := checkRecord(t, s)
		for i, c := range clones {
			models[i].check(t, c)
			if !bytes.Equal(checkRecord(t, c), kept[i]) {
				t.Fatalf("clone %d is not what it was when it was made", i)
			}
			for range 200 {
				models[i].step(r, c)
			}
			models[i].check(t, c)
			checkRecord(t, c)
		}
		m.check(t, s)
		if !bytes.Equal(checkRecord(t, s), now) {
			t.Fatal("what was done to clones shows")
		}
	}
}

// TestStreamNodeReplaced: a node whose entries are all deleted stays until entries after it are
// removed, and a new one may begin where it did.
func TestStreamNodeReplaced(t *testing.T) {
	small := [][]byte{[]byte("a"), []byte("1")}
	large := [][]byte{[]byte("a"), bytes.Repeat([]byte("v"), nodeBytes)}
	s := NewStream()
	s.Add(StreamID{1, 1}, small)
	s.Add(StreamID{5, 5}, small)
	s.Delete(StreamID{5, 5})
	s.Trim(StreamTrim{MinID: StreamID{3, 0}})
	if s.Len() != 0 || s.Nodes() != 1 {
		t.Fatalf("%d entries in %d nodes", s.Len(), s.Nodes())
	}
	s.SetLast(StreamID{0, 1})
	s.Add(StreamID{1, 1}, large)
	if s.Nodes() != 1 {
		t.Fatalf("%d nodes", s.Nodes())
	}
	checkRecord(t, s)
}

// Everything that differs shows in Sum.
func TestStreamSumDiffers(t *testing.T) {
	build := func(change func(s *Stream, g *Group)) uint64 {
		s := NewStream()
		s.Add(StreamID{1, 1}, [][]byte{[]byte("a"), []byte("1")})
		s.Add(StreamID{1, 2}, [][]byte{[]byte("a"), []byte("1")})
		g := s.CreateGroup([]byte("g"), StreamID{1, 1}, 1)
		g.See([]byte("c"), 5, true)
		g.See([]byte("d"), 5, true)
		g.SetPending(Pending{StreamID{1, 1}, "c", 5, 1})
		change(s, g)
		return s.Sum()
	}
	changes := []func(s *Stream, g *Group){
		func(*Stream, *Group) {},
		func(s *Stream, _ *Group) { s.Add(StreamID{1, 3}, [][]byte{[]byte("a"), []byte("1")}) },
		func(s *Stream, _ *Group) { s.Delete(StreamID{1, 2}) },
		func(s *Stream, _ *Group) { s.Trim(StreamTrim{ByLength: true, MaxLen: 1}) },
		func(s *Stream, _ *Group) { s.SetLast(StreamID{1, 3}) },
		func(s *Stream, _ *Group) { s.SetAdded(3) },
		func(s *Stream, _ *Group) { s.SetTombstone(StreamID{1, 1}) },
		func(s *Stream, _ *Group) { s.CreateGroup([]byte("h"), StreamID{}, 0) },
		func(s *Stream, _ *Group) { s.DestroyGroup([]byte("g")) },
		func(_ *Stream, g *Group) { g.SetPosition(StreamID{1, 2}, 1) },
		func(_ *Stream, g *Group) { g.SetPosition(StreamID{1, 1}, 2) },
		func(_ *Stream, g *Group) { g.See([]byte("c"), 6, true) },
		func(_ *Stream, g *Group) { g.See([]byte("c"), 6, false) },
		func(_ *Stream, g *Group) { g.See([]byte("e"), 5, true) },
		func(_ *Stream, g *Group) { g.See([]byte("e"), 5, false) },
		func(_ *Stream, g *Group) { g.RemoveConsumer([]byte("c")) },
		func(_ *Stream, g *Group) { g.RemoveConsumer([]byte("d")) },
		func(_ *Stream, g *Group) { g.Acknowledge(StreamID{1, 1}) },
		func(_ *Stream, g *Group) { g.SetPending(Pending{StreamID{1, 1}, "d", 5, 1}) },
		func(_ *Stream, g *Group) { g.SetPending(Pending{StreamID{1, 1}, "c", 6, 1}) },
		func(_ *Stream, g *Group) { g.SetPending(Pending{StreamID{1, 1}, "c", 5, 2}) },
		func(_ *Stream, g *Group) { g.SetPending(Pending{StreamID{1, 2}, "c", 5, 1}) },
		func(_ *Stream, g *Group) { g.Release(StreamID{1, 1}, 1) },
		func(_ *Stream, g *Group) { g.Release(StreamID{1, 1}, 2) },
		func(_ *Stream, g *Group) { g.Release(StreamID{1, 2}, 1) },
	}
	seen := map[uint64]int{}
	for i, change := range changes {
		sum := build(change)
		if other, twice := seen[sum]; twice {
			t.Errorf("changes %d and %d give the same Sum", other, i)
		}
		seen[sum] = i
	}
}

func TestStreamIDs(t *testing.T) {
	top := uint64(1<<64 - 1)
	for _, c := range []struct {
		id, next StreamID
		ok       bool
		text     string
	}{
		{StreamID{}, StreamID{0, 1}, true, "0-0"},
		{StreamID{7, 8}, StreamID{7, 9}, true, "7-8"},
		{StreamID{7, top}, StreamID{8, 0}, true, "7-18446744073709551615"},
		{MaxStreamID, StreamID{}, false, "18446744073709551615-18446744073709551615"},
	} {
		next, ok := c.id.Next()
		if next != c.next || ok != c.ok || c.id.String() != c.text {
			t.Errorf("%v: next is %v, %v, the text %s", c, next, ok, c.id)
		}
		if prev, ok := c.next.Prev(); prev != c.id || ok != c.ok {
			t.Errorf("before %v is %v, %v, want %v", c.next, prev, ok, c.id)
		}
	}
}

// A copy of a key has groups of its own, whichever of the two is changed first.
func TestCopyOfStream(t *testing.T) {
	db := writable(1, 1).DB(0)
	from, to := []byte("from"), []byte("to")
	s := NewStream()
	e := db.SetCollection(from, s)
	s.CreateGroup([]byte("g"), StreamID{}, 0).See([]byte("c"), 1, true)
	db.Changed(e)
	db.Copy(from, db, to)
	for i, key := range [][]byte{from, to} {
		g := db.Edit(key).Collection().(*Stream).EditGroup([]byte("g"))
		if g.Consumers() != 1 {
			t.Fatalf("%s has %d consumers, want 1", key, g.Consumers())
		}
		g.See(fmt.Append(nil, "new", i), 1, true)
	}
}

// An empty stream stays. Noted changes the sum, but not the revision; it notifies an observer only
// with wake.
func TestNoted(t *testing.T) {
	ks := writable(1, 1)
	db, key := ks.DB(0), []byte("s")
	db.Changed(db.SetCollection(key, NewStream()))
	e := db.Find(key)
	if e == nil {
		t.Fatal("an empty stream is gone")
	}
	revision, sum, notified := e.Changed(), ks.Sum(), 0
	ks.Observe(func(int, *Entry, Change) { notified++ })
	ks.SetRevision(NewRevision(0, 1, 1))
	e = db.Edit(key)
	e.Collection().(*Stream).CreateGroup([]byte("g"), StreamID{}, 0)
	db.Noted(e, false)
	if e.Changed() != revision || ks.Sum() == sum || notified != 0 {
		t.Errorf("after Noted: revision %v, want %v; sum %x, was %x; notified %d times",
			e.Changed(), revision, ks.Sum(), sum, notified)
	}
	if db.Noted(e, true); notified != 1 {
		t.Errorf("Noted with wake notified %d times", notified)
	}
}

// A record that is truncated, too long or contradictory is refused.
func TestDamagedStreamRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	s, m := NewStream(), newStreamModel()
	for range 200 {
		m.step(r, s)
	}
	record := appendRecord(nil, 0, newBox(k(1), s))
	if err := New().Load(record); err != nil {
		t.Fatal(err)
	}
	if err := New().Load(append(slices.Clone(record), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a record with a byte too many is loaded: %v", err)
	}
	for n := range record {
		if err := New().Load(record[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d of %d bytes are loaded: %v", n, len(record), err)
		}
	}
	for i := range record { // whatever it says, it is refused or can be read again
		damaged := slices.Clone(record)
		damaged[i] ^= byte(1 << r.IntN(8))
		ks := New()
		if ks.Load(damaged) != nil {
			continue
		}
		ks.DB(0).Each(func(e *Entry) bool {
			if s, ok := e.Collection().(*Stream); ok {
				checkRecord(t, s)
			}
			return true
		})
	}
}

// A snapshot holds the content of its moment, though it is written while everything changes.
func TestSnapshotOfStreams(t *testing.T) {
	r := dbRand(t)
	ks := New()
	key, m := []byte("s"), newStreamModel()
	index := uint64(0)
	change := func(n int) {
		for range n {
			index++
			ks.Begin(1, NewRevision(0, index, 0))
			e := ks.DB(0).Edit(key)
			if e == nil {
				e = ks.DB(0).SetCollection(key, NewStream())
			}
			m.step(r, e.Collection().(*Stream))
			ks.DB(0).Changed(e)
			ks.End()
		}
	}
	change(1000)
	for range 5 {
		then := m.clone()
		frozen := ks.Freeze()
		written := make(chan [][]byte)
		go func() { written <- records(t, frozen) }()
		change(500)
		restored := loadRecords(t, wait.Receive(t, time.Minute, "the snapshot", written))
		then.check(t, restored.DB(0).Find(key).Collection().(*Stream))
		m.check(t, ks.DB(0).Find(key).Collection().(*Stream))
	}
}
