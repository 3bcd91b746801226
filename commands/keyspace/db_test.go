// Databases: existence and deadlines, revisions, the sweep, iteration, and snapshots taken while
// keys change.

package keyspace

import (
	"bytes"
	"fmt"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// dbRand returns the source of a random test.
func dbRand(t *testing.T) *rand.Rand { return rand.New(rand.NewPCG(seeds.Of(t), 0)) }

// writable returns an empty keyspace within the entry of the given clock and index.
func writable(nowMs int64, index uint64) *Keyspace {
	ks := New()
	ks.Begin(nowMs, NewRevision(0, index, 0))
	return ks
}

func k(i int) []byte { return fmt.Appendf(nil, "key:%d", i) }

// names returns the keys of Each, sorted.
func names(db *DB) []string {
	var got []string
	db.Each(func(e *Entry) bool {
		got = append(got, e.Key())
		return true
	})
	slices.Sort(got)
	return got
}

// records returns copies of the records of a snapshot.
func records(t *testing.T, f *Frozen) [][]byte {
	t.Helper()
	var all [][]byte
	if err := f.Records(true, func(r []byte) error {
		all = append(all, bytes.Clone(r))
		return nil
	}); err != nil {
		t.Error(err) // not Fatal: readers beside the test call this too
	}
	return all
}

func sameRecords(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

func TestKeyExistsThroughItsDeadline(t *testing.T) {
	ks := writable(100, 1)
	db := ks.DB(3)
	db.SetDeadline(db.SetString(k(1), []byte("v")), 200)
	db.SetString(k(2), nil)
	for _, now := range []int64{150, 200} {
		ks.Begin(now, NewRevision(0, 2, 0))
		if db.Find(k(1)) == nil || db.Len() != 2 || db.Volatile() != 1 {
			t.Fatalf("at %d ms: found %v, %d keys, %d volatile; want the key until 200", now,
				db.Find(k(1)), db.Len(), db.Volatile())
		}
	}
	if at, ok := ks.NextDeadline(); !ok || at != 200 {
		t.Fatalf("next deadline %d %v, want 200", at, ok)
	}
	ks.Begin(201, NewRevision(0, 3, 0))
	if db.Find(k(1)) != nil || db.Len() != 1 || db.Volatile() != 0 || ks.Expired() != 1 ||
		ks.Len() != 1 {
		t.Fatalf("at 201 ms: found %v, %d keys, %d volatile, %d expired", db.Find(k(1)), db.Len(),
			db.Volatile(), ks.Expired())
	}
	if _, ok := ks.NextDeadline(); ok {
		t.Fatal("a deadline is left")
	}
}

func TestClockNeverFalls(t *testing.T) {
	ks := writable(100, 1)
	ks.DB(0).SetDeadline(ks.DB(0).SetString(k(1), nil), 120)
	ks.Begin(150, NewRevision(0, 2, 0))
	ks.Begin(90, NewRevision(0, 3, 0))
	if ks.Now() != 150 || ks.DB(0).Find(k(1)) != nil {
		t.Fatalf("the clock fell to %d, the key is %v", ks.Now(), ks.DB(0).Find(k(1)))
	}
}

func TestDeadlineChanges(t *testing.T) {
	ks := writable(100, 1)
	db := ks.DB(0)
	e := db.SetString(k(1), nil)
	db.SetDeadline(e, 110)
	db.SetDeadline(e, 500)
	db.SetDeadline(db.SetString(k(2), nil), 110)
	db.SetDeadline(db.Edit(k(2)), 0)
	db.SetDeadline(db.SetString(k(3), nil), 110)
	db.SetString(k(3), []byte("keeps its deadline"))
	db.SetDeadline(db.SetString(k(4), nil), 110)
	db.Delete(k(4))
	db.SetString(k(4), nil)
	ks.Begin(200, NewRevision(0, 2, 0))
	if got, want := names(db), []string{"key:1", "key:2", "key:4"}; !slices.Equal(got, want) {
		t.Fatalf("left: %v, want %v", got, want)
	}
	if db.Volatile() != 1 || db.Find(k(1)).Deadline() != 500 || db.Find(k(2)).Deadline() != 0 {
		t.Fatalf("%d volatile", db.Volatile())
	}
	db.Flush()
	if _, ok := ks.NextDeadline(); ok || db.Len() != 0 || db.Volatile() != 0 {
		t.Fatal("Flush left a deadline or a key")
	}
}

// past returns a keyspace in its second entry with n expired keys that are not swept, and one key
// that exists.
func past(n int) *Keyspace {
	ks := writable(100, 1)
	db := ks.DB(0)
	for i := range n {
		db.SetDeadline(db.SetString(k(i), []byte("v")), 200+int64(i))
	}
	db.SetString([]byte("stays"), nil)
	ks.RestoreClock(100_000) // Begin would sweep
	ks.SetRevision(NewRevision(0, 2, 0))
	return ks
}

func TestSweepIsBoundedAndUnseen(t *testing.T) {
	const n = sweepLimit + 100
	ks := past(n)
	ks.Begin(100_000, NewRevision(0, 2, 0))
	db := ks.DB(0)
	if left := db.keys.size; left != 101 || ks.Expired() != sweepLimit {
		t.Fatalf("one entry left %d of %d keys, %d expired", left, n+1, ks.Expired())
	}
	if db.Len() != 1 || !slices.Equal(names(db), []string{"stays"}) {
		t.Fatalf("%d keys: %v", db.Len(), names(db))
	}
	var scanned []string
	if next := db.Scan(0, 2*n, func(e *Entry) {
		scanned = append(scanned, e.Key())
	}); next != 0 || len(scanned) != 1 {
		t.Fatalf("Scan gave %v, next %d", scanned, next)
	}
	for i := range n {
		if db.Find(k(i)) != nil {
			t.Fatalf("key %d exists after its deadline", i)
		}
	}
	ks.Begin(100_000, NewRevision(0, 3, 0))
	if db.keys.size != 1 || ks.Expired() != n || db.Volatile() != 0 {
		t.Fatalf("the next entry left %d keys, %d expired, %d volatile", db.keys.size, ks.Expired(),
			db.Volatile())
	}
}

// For every access, an expired key does not exist, even if it is not swept.
func TestKeyPastItsDeadlineDoesNotExist(t *testing.T) {
	last := k(0)
	for name, f := range map[string]func(db *DB) bool{
		"Find":   func(db *DB) bool { return db.Find(last) == nil },
		"Edit":   func(db *DB) bool { return db.Edit(last) == nil },
		"Delete": func(db *DB) bool { return !db.Delete(last) },
		"Rename from": func(db *DB) bool {
			return !db.Rename(last, k(-1)) && db.Find(k(-1)) == nil
		},
		"Copy from": func(db *DB) bool {
			return !db.Copy(last, db, k(-1)) && db.Find(k(-1)) == nil
		},
		"SetString": func(db *DB) bool {
			return isNew(db, db.SetString(last, []byte("w")), "w")
		},
		"Create": func(db *DB) bool { return isNew(db, db.Create(last, []byte("w")), "w") },
		"AppendString": func(db *DB) bool {
			return isNew(db, db.AppendString(last, []byte("w")), "w")
		},
		"SetCollection": func(db *DB) bool {
			e := db.SetCollection(last, NewHash())
			return isNew(db, e, "")
		},
		"Rename to": func(db *DB) bool {
			return db.Rename([]byte("stays"), last) && isNew(db, db.Find(last), "")
		},
		"Copy to": func(db *DB) bool {
			return db.Copy([]byte("stays"), db, last) && isNew(db, db.Find(last), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			ks := past(1)
			db := ks.DB(0)
			if !f(db) {
				t.Error("the key exists, or what took its place is not new")
			}
			ks.Begin(100_000, NewRevision(0, 3, 0))
			if ks.Expired() != 1 || db.Volatile() != 0 {
				t.Errorf("%d expired, %d volatile after the next sweep", ks.Expired(),
					db.Volatile())
			}
			if _, ok := ks.NextDeadline(); ok {
				t.Error("a deadline is left")
			}
		})
	}
}

// isNew reports whether e was created in the second entry, without a deadline, and is found.
func isNew(db *DB, e *Entry, want string) bool {
	return e.Created() == NewRevision(0, 2, 0) && e.Deadline() == 0 && string(e.Bytes()) == want &&
		db.Find([]byte(e.Key())) == e
}

func TestRevisions(t *testing.T) {
	ks := New()
	db := ks.DB(0)
	step := uint64(0)
	var rev Revision
	next := func() {
		step++
		rev = NewRevision(0, step, step)
		ks.Begin(int64(step), rev)
	}
	check := func(what string, created, changed Revision) {
		t.Helper()
		if e := db.Find(k(1)); e.Created() != created || e.Changed() != changed {
			t.Errorf("%s: created %d changed %d, want %d and %d", what, e.Created(), e.Changed(),
				created, changed)
		}
	}
	next()
	born := rev
	db.SetString(k(1), []byte("1"))
	check("set", born, rev)
	next()
	db.SetString(k(1), []byte("1"))
	check("set again", born, rev)
	next()
	db.AppendString(k(1), []byte("2"))
	check("appended", born, rev)
	next()
	db.SetDeadline(db.Edit(k(1)), 1000)
	check("deadline", born, rev)
	before := rev
	next()
	db.SetDeadline(db.Edit(k(1)), 1000)
	db.Find(k(1))
	check("the same deadline", born, before)
	next()
	h := NewHash()
	h.Set([]byte("f"), nil)
	db.Changed(db.SetCollection(k(1), h))
	check("another type", born, rev)
	next()
	db.Delete(k(1))
	next()
	db.SetString(k(1), nil)
	check("a new key", rev, rev)
	born = rev
	next()
	ks.SetRevision(rev + 5)
	db.SetString(k(1), nil)
	check("a later place of the entry", born, rev+5)
}

func TestRevisionOrder(t *testing.T) {
	rising := []Revision{
		NewRevision(0, 0, 0), NewRevision(0, 0, 1), NewRevision(0, 0, MaxPosition),
		NewRevision(0, 1, 0), NewRevision(0, 1, MaxPosition),
		NewRevision(0, 1<<indexBits-1, MaxPosition), NewRevision(1, 0, 0),
		NewRevision(1, 1<<indexBits-1, MaxPosition), NewRevision(1, 1<<indexBits, 0),
		NewRevision(1023, 1<<indexBits-1, MaxPosition),
	}
	for i, r := range rising[1:] {
		if r <= rising[i] {
			t.Errorf("revision %d is %d, not above %d", i+1, r, rising[i])
		}
	}
	if rising[len(rising)-1] > math.MaxInt64 {
		t.Error("the last revision does not fit a signed integer")
	}
	for _, r := range rising {
		epoch, index := r.Entry()
		if again := NewRevision(epoch, index, uint64(r)&MaxPosition); again != r {
			t.Errorf("revision %d is taken apart as %d, %d, which is %d", r, epoch, index, again)
		}
	}
	if r := rising[5]; Revision(float64(r)) != r {
		t.Error("the last revision of the first epoch does not fit a double")
	}
}

func TestChangesOutsideOfAnEntryPanic(t *testing.T) {
	for name, f := range map[string]func(*DB){
		"SetString": func(db *DB) {
			db.SetString(k(1), nil)
		}, "Create": func(db *DB) { db.Create(k(2), nil) },
		"AppendString": func(db *DB) {
			db.AppendString(k(1), nil)
		}, "SetCollection": func(db *DB) { db.SetCollection(k(1), NewHash()) },
		"Edit": func(db *DB) {
			db.Edit(k(1))
		}, "Delete": func(db *DB) { db.Delete(k(1)) }, "Flush": func(db *DB) { db.Flush() },
		"Rename": func(db *DB) {
			db.Rename(k(1), k(2))
		}, "Copy": func(db *DB) { db.Copy(k(1), db, k(2)) },
	} {
		ks := writable(1, 1)
		ks.DB(0).SetString(k(1), nil)
		ks.End()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f(ks.DB(0))
		}()
	}
}

// An iteration returns a key that exists throughout once, whatever else changes between its steps.
func TestScanAcrossChanges(t *testing.T) {
	r := dbRand(t)
	for round := range 50 {
		ks := writable(1, 1)
		db := ks.DB(0)
		stable := r.IntN(300)
		for i := range stable {
			db.SetString(k(i), nil)
		}
		for range r.IntN(300) {
			db.SetString(k(1000+r.IntN(1000)), nil)
		}
		seen := map[string]int{}
		for cursor, steps := uint64(0), 0; ; steps++ {
			count := 1 + r.IntN(20)
			given := 0
			cursor = db.Scan(cursor, count, func(e *Entry) { seen[e.Key()]++; given++ })
			if cursor == 0 {
				break
			}
			if given < count || cursor >= 1<<cursorBits || steps > 2000 {
				t.Fatalf("step %d gave %d of %d keys and the cursor %d", steps, given, count,
					cursor)
			}
			for range r.IntN(10) {
				switch i := 1000 + r.IntN(1000); r.IntN(4) {
				case 0:
					db.Delete(k(i))
				case 1:
					db.SetString(k(r.IntN(max(stable, 1))+5000*r.IntN(2)), []byte("changed"))
				case 2:
					ks.Freeze()
				default:
					db.SetString(k(i), nil)
				}
			}
			if stable == 0 {
				db.Delete(k(0))
			}
		}
		for i := range stable {
			if n := seen[string(k(i))]; n != 1 {
				t.Fatalf("round %d: key %d of %d was given %d times", round, i, stable, n)
			}
		}
		for name, n := range seen {
			if n > 1 {
				t.Fatalf("round %d: %s was given %d times", round, name, n)
			}
		}
	}
}

// Elements that share a cursor stay together, and any number is a valid cursor.
func TestScanSteps(t *testing.T) {
	s := scan{count: 2}
	hashes := []uint64{0, 1, 2, 1 << 16, 1<<16 | 5, 7 << 16}
	var taken []uint64
	for _, h := range hashes {
		if !s.covers(h) {
			break
		}
		taken = append(taken, h)
	}
	if !slices.Equal(taken, hashes[:3]) || s.next != 1 {
		t.Errorf("the first step took %v, next %d", taken, s.next)
	}
	ks := writable(1, 1)
	for i := range 100 {
		ks.DB(0).SetString(k(i), nil)
	}
	for _, cursor := range []uint64{1 << cursorBits, math.MaxUint64, 1<<cursorBits - 1} {
		ks.DB(0).Scan(cursor, math.MaxInt, func(*Entry) {})
	}
	if next := ks.DB(0).Scan(0, math.MaxInt, func(*Entry) {}); next != 0 {
		t.Errorf("all at once left the cursor %d", next)
	}
}
