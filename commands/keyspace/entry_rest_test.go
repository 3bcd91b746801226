package keyspace

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Keyspaces hold the same after any changes, that is the same running hash, the same sizes and the
// same snapshots, whether their collections rest after each entry, or some entries later, whether
// they were restored from snapshots on the way, and if nothing ever rests.
func TestRestingChangesNothing(t *testing.T) {
	seed := dbRand(t).Uint64()
	random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
	resting, restored, later, awake := New(), New(), New(), New()
	r := [4]*rand.Rand{random(), random(), random(), random()}
	came, went := 0, 0 // how often a key's value rested, or no longer
	rested1 := map[string]bool{}
	now := int64(1)
	for index := uint64(1); index <= 4000; index++ {
		now += r[0].Int64N(3)
		for _, others := range r[1:] {
			others.Int64N(3)
		}
		all := []*Keyspace{resting, restored, later, awake}
		for i, ks := range all {
			ks.Begin(now, NewRevision(0, index, 0))
			for range 2 {
				changeAny(r[i], ks, now)
				if ks == awake {
					for _, db := range ks.dbs { // the next change may make them rest: see Freeze
						for _, e := range db.opened.list {
							db.close(e)
						}
					}
				}
			}
			switch ks {
			case awake:
			case later:
				ks.rest(3)
				for _, db := range ks.dbs {
					if n := len(db.opened.list); n > 6 {
						t.Fatalf("%d boxes are open", n)
					}
				}
			default:
				ks.rest(0)
			}
			ks.End()
		}
		for i, ks := range all {
			if ks.Sum() != awake.Sum() || ks.Size() != awake.Size() {
				t.Fatalf("step %d: the sum of %d is %x, not %x, its size %d, not %d", index, i,
					ks.Sum(), awake.Sum(), ks.Size(), awake.Size())
			}
		}
		if index%100 != 0 {
			continue
		}
		resting.DB(0).Each(func(e *Entry) bool {
			if e.Collection() != nil {
				rests := e.form == rested
				if before, known := rested1[e.Key()]; known && before != rests {
					if rests {
						came++
					} else {
						went++
					}
				}
				rested1[e.Key()] = rests
			}
			return true
		})
		awake.DB(0).Each(func(e *Entry) bool {
			if e.form == rested {
				t.Fatalf("%q rests before the end of the entry", e.Key())
			}
			return true
		})
		want := records(t, awake.Freeze())
		for _, ks := range []*Keyspace{resting, restored, later} {
			if got := records(t, ks.Freeze()); !sameRecords(got, want) {
				t.Fatalf("step %d: the snapshot is\n%q, want\n%q", index, got, want)
			}
			ks.gen = awake.gen // equal numbers of Freeze
		}
		sum := restored.Sum()
		restored = loadRecords(t, want)
		restored.RestoreClock(now)
		restored.RestoreSum(sum)
	}
	if came < 10 || went < 10 {
		t.Fatalf("values rested %d times, and no longer %d times", came, went)
	}
}

// What was read from a collection that rests stays as it was when the collection changes, and
// reading it changes nothing.
func TestRestedTextsStay(t *testing.T) {
	ks := New()
	db := ks.DB(0)
	ks.Begin(1, 1)
	h := NewHash()
	h.Set([]byte("field"), []byte("value"))
	db.Changed(db.SetCollection(k(1), h))
	ks.End()
	ks.rest(0)
	e := db.Find(k(1))
	if e.form != rested {
		t.Fatalf("the form is %d", e.form)
	}
	read := e.Collection().(*Hash)
	value, _ := read.Get([]byte("field"))
	was := bytes.Clone(e.value())

	ks.Begin(1, 2)
	edit := db.Edit(k(1))
	edited := edit.Collection().(*Hash)
	edited.Set([]byte("field"), []byte("other"))
	edited.Set([]byte("more"), nil)
	db.Changed(edit)
	if db.Edit(k(1)) != edit || db.Find(k(1)).Collection() != Collection(edited) {
		t.Error("the entry rests before the end of the log entry")
	}
	ks.End()
	ks.rest(0)
	if string(value) != "value" || read.Len() != 1 || !bytes.Equal(e.value(), was) {
		t.Errorf("%q of %d, %q", value, read.Len(), e.value())
	}
	now := db.Find(k(1)).Collection().(*Hash)
	if v, ok := now.Get([]byte("more")); now.Len() != 2 || !ok || v == nil || len(v) != 0 {
		t.Errorf("%d fields, %q, %v", now.Len(), v, ok)
	}
}

// Keys whose hashes are equal, and those in a page that became a tree, rest too.
func TestIndexReplaces(t *testing.T) {
	for _, n := range []int{3, 2 * pageSlots} {
		x := newIndex(0)
		entries := make([]*Entry, n)
		for i := range entries {
			entries[i] = newBox(k(i), NewHash())
			entries[i].deadline = int64(n - i)
			x.set(7, entries[i])
		}
		old := entries[1]
		entries[1] = newString(k(1), nil)
		entries[1].deadline = old.deadline
		x.replace(7, old, entries[1])
		x.replace(7, old, newString(k(1), []byte("too late")))
		for i, e := range entries {
			if got := x.find(7, k(i)); got != e {
				t.Errorf("key %d of %d: %v", i, n, got)
			}
		}
		if x.size != n || x.earliest() != entries[n-1] {
			t.Errorf("%d of %d entries, the first is %q", x.size, n, x.earliest().Key())
		}
	}
}

// A collection that is gone is let go of at once, however large it was, and whichever way it went.
func TestGoneCollectionsLeaveNothing(t *testing.T) {
	for name, end := range map[string]func(ks *Keyspace, key []byte){
		"Delete":    func(ks *Keyspace, key []byte) { ks.DB(0).Delete(key) },
		"SetString": func(ks *Keyspace, key []byte) { ks.DB(0).SetString(key, key) },
		"Flush":     func(ks *Keyspace, _ []byte) { ks.DB(0).Flush() },
		"Swap": func(ks *Keyspace, key []byte) {
			ks.Swap(0, 1)
			ks.DB(1).Delete(key)
		},
	} {
		ks := New()
		for index := range uint64(3 * maxOpen) { // some are let go of after others have rested
			key := fmt.Append(nil, "k", index)
			ks.Begin(1, NewRevision(0, index+1, 0))
			ks.DB(0).SetCollection(key, NewList())
			ks.DB(0).Edit(key).Collection().(*List).PushBack(key)
			ks.DB(0).Changed(ks.DB(0).Edit(key))
			ks.End()
			ks.Begin(1, NewRevision(0, index+1, 1))
			if index%2 == 0 {
				end(ks, key)
			}
			ks.End()
			if name == "Swap" && index%2 == 0 {
				ks.Begin(1, NewRevision(0, index+1, 2))
				ks.Swap(0, 1)
				ks.End()
			}
			for _, db := range ks.dbs {
				for _, e := range db.opened.list {
					if e != nil && db.Find([]byte(e.Key())) != e {
						t.Fatalf("%s: step %d: %s is kept", name, index, e.Key())
					}
				}
			}
		}
	}
}

// A flush takes no time for each collection that the log entry has changed, of any database: it is
// charged as if it took none.
func TestFlushesVisitNothing(t *testing.T) {
	ks := New()
	ks.Begin(1, 1)
	open := func(db *DB, key []byte) *Entry {
		e := db.SetCollection(key, NewList())
		e.Collection().(*List).PushBack(key)
		db.Changed(e)
		return db.Edit(key)
	}
	var opened []*Entry
	for i := range 1000 {
		opened = append(opened, open(ks.DB(i%2), k(i)))
	}
	forms := func() (all []form) {
		for _, e := range opened {
			all = append(all, e.form)
		}
		return all
	}
	before := forms()
	ks.DB(0).Flush()
	if !slices.Equal(before, forms()) {
		t.Error("boxes were visited")
	}
	if n := len(ks.DB(0).opened.list); n != 0 {
		t.Errorf("%d boxes are kept", n)
	}
	open(ks.DB(0), k(0))
	ks.DB(0).Delete(k(0))
	ks.End()
	ks.rest(0)
	if e := ks.DB(1).Find(k(1)); e.form != rested {
		t.Errorf("the form is %d", e.form)
	}
}
