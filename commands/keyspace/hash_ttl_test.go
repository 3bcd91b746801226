// Deadlines of fields: random changes against a model, what a sweep leaves visible, and writes into
// strings that share memory.

package keyspace

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// setDeadlines sets key to a hash whose fields have these deadlines, 0 for none.
func setDeadlines(ks *Keyspace, key []byte, deadlines ...int64) {
	h := NewHash()
	for i, atMs := range deadlines {
		name := strconv.AppendInt(nil, int64(i), 10)
		h.Set(name, []byte("v"))
		h.SetDeadline(ks, name, atMs)
	}
	ks.DB(0).Changed(ks.DB(0).SetCollection(key, h))
}

// setMembers is setDeadlines for a set and its members.
func setMembers(ks *Keyspace, key []byte, deadlines ...int64) {
	s := NewSet()
	for i, atMs := range deadlines {
		name := strconv.AppendInt(nil, int64(i), 10)
		s.Add(name)
		s.SetDeadline(ks, name, atMs)
	}
	ks.DB(0).Changed(ks.DB(0).SetCollection(key, s))
}

// ttlModel is a hash beside a map of what must exist in it.
type ttlModel struct {
	*testing.T
	ks     *Keyspace
	h      *Hash
	fields map[string]ttlModelField
}

type ttlModelField struct {
	value string
	atMs  int64
}

func (m *ttlModel) alive(name string) (ttlModelField, bool) {
	f, ok := m.fields[name]
	return f, ok && (f.atMs == 0 || f.atMs >= m.ks.now)
}

// check compares everything that the hash shows with the model.
func (m *ttlModel) check() {
	m.Helper()
	want := map[string]string{}
	for name := range m.fields {
		f, ok := m.alive(name)
		if value, exists := m.h.Get([]byte(name)); exists != ok ||
			string(value) != map[bool]string{true: f.value}[ok] {
			m.Fatalf("%q is %q, %v, want %+v, %v", name, value, exists, f, ok)
		}
		if atMs, exists := m.h.Deadline([]byte(name)); exists != ok || (ok && atMs != f.atMs) {
			m.Fatalf("%q expires at %d, %v, want %+v, %v", name, atMs, exists, f, ok)
		}
		if ok {
			want[name] = f.value
		}
	}
	got, scanned, picked := map[string]string{}, map[string]string{}, map[string]string{}
	m.h.Each(func(name string, value []byte) bool {
		got[name] = string(value)
		return true
	})
	m.h.Scan(0, 1<<20, func(name string, value []byte) { scanned[name] = string(value) })
	at := m.h.Pick()
	for i := range m.h.Len() {
		name, value := at(i)
		picked[name] = string(value)
	}
	if m.h.Len() != len(want) || !maps.Equal(got, want) || !maps.Equal(scanned, want) ||
		!maps.Equal(picked, want) {
		m.Fatalf("Len %d, Each %d, Scan %d, Pick %d fields, want %d", m.h.Len(), len(got),
			len(scanned), len(picked), len(want))
	}
	if over := len(want) == 0 && m.h.size() > 0; m.h.over(m.h.size()) != over {
		m.Fatalf("over is %v with %d fields of %d alive", !over, len(want), m.h.size())
	}
	rebuilt := NewHash()
	m.h.all(func(f field) bool {
		rebuilt.Set([]byte(f.name), f.value)
		rebuilt.SetDeadline(m.ks, []byte(f.name), f.deadline)
		return true
	})
	countsRight(m.T, m.h)
	if rebuilt.Sum() != m.h.Sum() || rebuilt.Volatile() != m.h.Volatile() {
		m.Fatalf("Sum %x and %d volatile, built again %x and %d", m.h.Sum(), m.h.Volatile(),
			rebuilt.Sum(), rebuilt.Volatile())
	}
	r := newReader(m.h.appendTo(nil), m.ks, true)
	if read := readHash(r); !r.Done() || read.Sum() != m.h.Sum() || read.size() != m.h.size() {
		m.Fatalf("read from its record: failed %v, Sum %x of %d, want %x of %d", r.Failed(),
			read.Sum(), read.size(), m.h.Sum(), m.h.size())
	}
}

// change makes a random change of one of so many fields.
func (m *ttlModel) change(r *rand.Rand, names int) {
	name := strconv.Itoa(r.IntN(names))
	value := strings.Repeat("v", r.IntN(3))
	old, ok := m.alive(name)
	switch r.IntN(12) {
	case 0, 1, 2:
		if m.h.Set([]byte(name), []byte(value)) == ok {
			m.Fatalf("Set of %q: new is %v", name, ok)
		}
		m.fields[name] = ttlModelField{value: value}
	case 3:
		if m.h.Update([]byte(name), []byte(value)) == ok {
			m.Fatalf("Update of %q: new is %v", name, ok)
		}
		m.fields[name] = ttlModelField{value, map[bool]int64{true: old.atMs}[ok]}
	case 4:
		if m.h.Delete([]byte(name)) != ok {
			m.Fatalf("Delete of %q is %v", name, !ok)
		}
		if ok {
			delete(m.fields, name)
		}
	case 5, 6, 7, 8:
		if ok {
			old.atMs = m.ks.now + r.Int64N(30)
			m.fields[name] = old
			m.h.SetDeadline(m.ks, []byte(name), old.atMs)
		}
	case 9:
		if ok {
			old.atMs = 0
			m.fields[name] = old
			m.h.SetDeadline(m.ks, []byte(name), 0)
		}
	case 10:
		m.ks.now += r.Int64N(5)
	case 11:
		if most, dead := r.IntN(4), m.h.Dead(); m.h.sweep(m.h, most) != min(most, dead) {
			m.Fatalf("a sweep of %d left %d of %d", most, m.h.Dead(), dead)
		}
	}
}

func TestFieldTTLsAgainstModel(t *testing.T) {
	r := dbRand(t)
	for _, names := range []int{4, 100, 2 * smallFields} {
		ks := New()
		m := &ttlModel{T: t, ks: ks, h: NewHash(), fields: map[string]ttlModelField{}}
		frozen := m.h.Clone().(*Hash)
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
				frozen = m.h
				before = frozen.appendTo(nil)
				m.h = m.h.Clone().(*Hash)
			}
		}
		ks.now += 1000
		m.check()
		m.h.sweep(m.h, 1<<20)
		m.check()
		if m.h.Dead() != 0 {
			t.Errorf("%d dead fields after a whole sweep", m.h.Dead())
		}
	}
}

// A hash without deadlines has the old record, even if it had some before.
func TestRecordWithoutTTLs(t *testing.T) {
	ks := New()
	h := NewHash()
	h.Set([]byte("f"), []byte("v"))
	plain := string(h.appendTo(nil))
	h.SetDeadline(ks, []byte("f"), 7)
	if string(h.appendTo(nil)) == plain {
		t.Error("the deadline is not in the record")
	}
	h.SetDeadline(ks, []byte("f"), 0)
	if got := string(h.appendTo(nil)); got != plain {
		t.Errorf("record %q, want %q", got, plain)
	}
	for name, record := range map[string][]byte{
		"another form":             {4, 1, 1, 'f', 1, 'v'},
		"lives without a deadline": {2, 1, 1, 'f', 1, 'v', 0},
		"a deadline before 0": {2, 1, 1, 'f', 1, 'v', 255, 255, 255, 255, 255, 255, 255, 255,
			255, 1},
		"no deadline": {2, 1, 1, 'f', 1, 'v'},
	} {
		r := newReader(record, ks, true)
		if readHash(r); !r.Failed() {
			t.Errorf("%s is read", name)
		}
	}
}

// An expired field is not visible, swept or not, and a hash of such fields is no key; one sweep
// does a bounded part of the work.
func TestFieldsAreSwept(t *testing.T) {
	testSweep(t, setDeadlines)
	testSweep(t, setMembers)
}

func testSweep(t *testing.T, setDeadlines func(*Keyspace, []byte, ...int64)) {
	const n = sweepLimit + 100
	ks := writable(100, 1)
	db := ks.DB(0)
	deadlines := make([]int64, n)
	for i := range deadlines {
		deadlines[i] = 200
	}
	setDeadlines(ks, k(1), append(deadlines, 0)...) // one field stays
	setDeadlines(ks, k(2), 200, 200)
	setDeadlines(ks, k(3), 100_001, 0)
	db.SetDeadline(db.Edit(k(3)), 100_000)
	setDeadlines(ks, k(4), 200, 200)
	db.SetDeadline(db.Edit(k(4)), 150)
	if atMs, ok := ks.NextDeadline(); !ok || atMs != 150 {
		t.Fatalf("next deadline %d, %v", atMs, ok)
	}
	var notified []string
	ks.Observe(func(_ int, e *Entry, c Change) {
		switch c {
		case ElementsExpired:
			left := e.Collection().Len()
			notified = append(notified, fmt.Sprintf("%s elements, %d left", e.Key(), left))
		case Expired:
			notified = append(notified, e.Key()+" expired")
		}
	})
	for i := range 2 {
		ks.Begin(100_000, NewRevision(0, uint64(2+i), 0))
		c := db.Find(k(1)).Collection()
		dead := ttlsOf(c).Dead()
		if left := []int{n - sweepLimit + 2, 0}[i]; c.Len() != 1 || db.Len() != 2 || dead > left {
			t.Errorf("after sweep %d: %d elements, %d keys, %d elements dead", i, c.Len(),
				db.Len(), dead)
		}
		if db.Find(k(2)) != nil || db.Find(k(4)) != nil || len(names(db)) != 2 {
			t.Errorf("after sweep %d: keys %v", i, names(db))
		}
	}
	if slices.Sort(notified); !slices.Equal(slices.Compact(notified),
		[]string{string(k(1)) + " elements, 1 left", string(k(2)) + " elements, 0 left",
			string(k(4)) + " expired"}) {
		t.Errorf("notified: %q", notified)
	}
	if atMs, _ := ks.NextDeadline(); atMs != 100_000 || db.VolatileCollections() != 1 ||
		ks.Expired() != 1 {
		t.Errorf("next deadline %d, %d volatile collections, %d expired", atMs,
			db.VolatileCollections(), ks.Expired())
	}
	if e := db.Find(k(1)); e.Changed() != NewRevision(0, 3, 0) {
		t.Errorf("the hash was changed at %d", e.Changed())
	}
}

// Whatever replaces a hash removes it from the order of deadlines, and a copy of one has its own
// position.
func TestTTLsFollowTheHash(t *testing.T) {
	testTTLsFollow(t, setDeadlines)
	testTTLsFollow(t, setMembers)
}

func testTTLsFollow(t *testing.T, setDeadlines func(*Keyspace, []byte, ...int64)) {
	for name, f := range map[string]func(ks *Keyspace, db *DB){
		"deleted":     func(_ *Keyspace, db *DB) { db.Delete(k(1)) },
		"set":         func(_ *Keyspace, db *DB) { db.SetString(k(1), nil) },
		"stored over": func(_ *Keyspace, db *DB) { db.Changed(db.SetCollection(k(1), NewHash())) },
		"flushed":     func(_ *Keyspace, db *DB) { db.Flush() },
		"field deleted": func(_ *Keyspace, db *DB) {
			e := db.Edit(k(1))
			e.Collection().(interface{ Delete([]byte) bool }).Delete([]byte("0"))
			db.Changed(e)
		},
		"persisted": func(ks *Keyspace, db *DB) {
			e := db.Edit(k(1))
			e.Collection().(interface {
				SetDeadline(*Keyspace, []byte, int64)
			}).SetDeadline(ks, []byte("0"), 0)
			db.Changed(e)
		},
		"renamed and gone": func(_ *Keyspace, db *DB) { db.Rename(k(1), k(2)); db.Delete(k(2)) },
		"copied, both gone": func(_ *Keyspace, db *DB) {
			db.Copy(k(1), db, k(2))
			db.Delete(k(1))
			db.Delete(k(2))
		},
		"frozen, deleted": func(ks *Keyspace, db *DB) { ks.Freeze(); db.Delete(k(1)) },
	} {
		ks := writable(1, 1)
		setDeadlines(ks, k(1), 10, 0)
		f(ks, ks.DB(0))
		if _, ok := ks.NextDeadline(); ok || ks.DB(0).VolatileCollections() != 0 {
			t.Errorf("%s: a deadline is left", name)
		}
	}
	ks := writable(1, 1)
	setDeadlines(ks, k(1), 10, 0)
	ks.DB(0).Copy(k(1), ks.DB(1), k(1))
	ks.DB(0).Rename(k(1), k(2))
	ks.Begin(11, NewRevision(0, 2, 0))
	for i, key := range [][]byte{k(2), k(1)} {
		if c := ks.DB(i).Find(key).Collection().(mortal); c.size() != 1 ||
			ks.DB(i).VolatileCollections() != 0 {
			t.Errorf("database %d: %d elements, %d volatile after the sweep", i, c.size(),
				ks.DB(i).VolatileCollections())
		}
	}
}

// WriteAt changes its string, and no other that shares the bytes, behind a beginning that makes the
// string a short or a long one.
func TestWriteAt(t *testing.T) {
	for _, start := range []string{"", strings.Repeat("s", maxPacked+1)} {
		testWriteAt(t, start)
	}
}

func testWriteAt(t *testing.T, start string) {
	ks := writable(1, 1)
	db := ks.DB(0)
	want := func(key []byte, value string) {
		t.Helper()
		if got := string(db.Find(key).Bytes()); got != start+value {
			t.Errorf("%s is %q, want %q", key, got, start+value)
		}
	}
	write := func(key []byte, offset int, part string) {
		db.WriteAt(key, len(start)+offset, []byte(part))
	}
	db.SetString(k(1), []byte(start))
	write(k(1), 3, "abc")
	want(k(1), "\x00\x00\x00abc")
	write(k(1), 0, "xyz")
	db.Copy(k(1), db, k(2))
	write(k(1), 1, "1")
	write(k(2), 2, "2")
	want(k(1), "x1zabc")
	want(k(2), "xy2abc")
	db.Copy(k(1), db, k(3))
	write(k(3), 6, "tail")
	db.AppendString(k(1), []byte("end"))
	want(k(1), "x1zabcend")
	want(k(3), "x1zabctail")
	db.Rename(k(3), k(4))
	f := ks.Freeze()
	before := records(t, f)
	db.AppendString(k(4), []byte("more"))
	write(k(4), 0, "new")
	write(k(1), 20, "")
	want(k(4), "newabctailmore")
	want(k(1), "x1zabcend"+strings.Repeat("\x00", 11))
	if !sameRecords(records(t, f), before) {
		t.Error("a snapshot changed")
	}
	db.SetString(k(5), []byte(start+"long"))
	db.SetString(k(5), []byte(start+"s"))
	write(k(5), 3, "g")
	want(k(5), "s\x00\x00g")
	for i := range 1000 {
		write(k(5), 4+i, "x")
	}
	want(k(5), "s\x00\x00g"+strings.Repeat("x", 1000))
	if e := db.Find(k(5)); e.deadline != 0 || !db.Rewritten(e) {
		t.Errorf("the deadline is %d, the revision %d", e.deadline, e.changed)
	}
}
