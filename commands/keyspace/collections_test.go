// Hashes and sorted sets as values of keys: snapshots taken while they change, the round trip
// through records, and damaged records.

package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// collections is a keyspace of hashes and sorted sets with models of what it holds.
type collections struct {
	ks     *Keyspace
	index  uint64
	hashes map[string]*hashModel
	zsets  map[string]zsetModel
}

func newCollections() *collections {
	return &collections{ks: New(), hashes: map[string]*hashModel{}, zsets: map[string]zsetModel{}}
}

// change makes n random changes, each an entry, to a few keys of every size.
func (c *collections) change(r *rand.Rand, n int) {
	for range n {
		c.index++
		c.ks.Begin(1, NewRevision(0, c.index, 0))
		db := c.ks.DB(int(c.index % 2))
		// The larger the key's number the more elements it gets: the first stay small, the last
		// becomes large.
		i := min(r.IntN(12), 5)
		element := fmt.Sprint(r.IntN(4 << (2 * i)))
		if r.IntN(2) == 0 {
			c.changeHash(r, db, fmt.Sprint("h", i), element)
		} else {
			c.changeZSet(r, db, fmt.Sprint("z", i), element)
		}
		c.ks.End()
	}
}

// modelKey distinguishes equal keys of different databases.
func modelKey(db *DB, key string) string { return fmt.Sprint(db.index, key) }

func (c *collections) changeHash(r *rand.Rand, db *DB, key, name string) {
	m := c.hashes[modelKey(db, key)]
	e := db.Edit([]byte(key))
	if e == nil {
		e = db.SetCollection([]byte(key), NewHash())
		m = newHashModel()
		c.hashes[modelKey(db, key)] = m
	}
	h := e.Collection().(*Hash)
	if r.IntN(4) == 0 {
		h.Delete([]byte(name))
		m.remove(name)
	} else {
		value := fmt.Sprint(r.IntN(100))
		h.Set([]byte(name), []byte(value))
		m.set(name, value)
	}
	db.Changed(e)
	if len(m.fields) == 0 {
		delete(c.hashes, modelKey(db, key))
	}
}

func (c *collections) changeZSet(r *rand.Rand, db *DB, key, name string) {
	m := c.zsets[modelKey(db, key)]
	e := db.Edit([]byte(key))
	if e == nil {
		e = db.SetCollection([]byte(key), NewZSet())
		m = zsetModel{}
		c.zsets[modelKey(db, key)] = m
	}
	z := e.Collection().(*ZSet)
	switch first := r.IntN(z.Len() + 1); {
	case r.IntN(20) == 0 && z.Len() > 0 && first < z.Len():
		m.remove(z.At(first).Member)
		z.RemoveRange(first, first)
	case r.IntN(4) == 0:
		z.Remove([]byte(name))
		m.remove(name)
	default:
		score := float64(r.IntN(20))
		z.Add([]byte(name), score)
		m.add(name, score)
	}
	db.Changed(e)
	if len(m) == 0 {
		delete(c.zsets, modelKey(db, key))
	}
}

// models copies the models as they are now.
func (c *collections) models() *collections {
	d := newCollections()
	for key, m := range c.hashes {
		d.hashes[key] = m.clone()
	}
	for key, m := range c.zsets {
		d.zsets[key] = maps.Clone(m)
	}
	return d
}

// check compares a keyspace with the models.
func (c *collections) check(t *testing.T, ks *Keyspace) {
	t.Helper()
	if ks.Len() != len(c.hashes)+len(c.zsets) {
		t.Fatalf("%d keys, want %d", ks.Len(), len(c.hashes)+len(c.zsets))
	}
	for key, m := range c.hashes {
		db := ks.DB(int(key[0] - '0'))
		m.check(t, db.Find([]byte(key[1:])).Collection().(*Hash))
	}
	for key, m := range c.zsets {
		db := ks.DB(int(key[0] - '0'))
		m.check(t, db.Find([]byte(key[1:])).Collection().(*ZSet))
	}
}

func loadRecords(t *testing.T, list [][]byte) *Keyspace {
	t.Helper()
	ks := New()
	for _, record := range list {
		if err := ks.Load(record); err != nil {
			t.Fatal(err)
		}
	}
	return ks
}

// A snapshot holds the content of its moment, though it is written while everything changes. What
// is restored from it has the same content, sums and forms, gives the same snapshot, and continues
// like the original.
func TestSnapshotOfCollections(t *testing.T) {
	r := dbRand(t)
	c := newCollections()
	c.change(r, 10000)
	for range 3 {
		then := c.models()
		frozen := c.ks.Freeze()
		written := make(chan [][]byte)
		go func() { written <- records(t, frozen) }()
		c.change(r, 2000)
		list := wait.Receive(t, time.Minute, "the snapshot", written)
		c.check(t, c.ks)

		restored := loadRecords(t, list)
		then.check(t, restored)
		again := records(t, restored.Freeze())
		if !sameRecords(again, list) {
			t.Fatalf("the snapshot of what was restored is\n%q, want\n%q", again, list)
		}
	}
	if c.ks.DB(0).Find([]byte("h5")).Collection().(*Hash).Compact() ||
		c.ks.DB(0).Find([]byte("z5")).Collection().(*ZSet).Compact() {
		t.Fatal("the largest keys never left the small form: the test does not show what it should")
	}
}

// A large collection that has shrunk stays large in a snapshot: the form decides the order of
// replies.
func TestSnapshotKeepsForm(t *testing.T) {
	ks := New()
	ks.Begin(1, 1)
	h, z := NewHash(), NewZSet()
	eh, ez := ks.DB(0).SetCollection([]byte("h"), h), ks.DB(0).SetCollection([]byte("z"), z)
	long := []byte(strings.Repeat("x", smallBytes+1))
	h.Set([]byte("f"), []byte("v"))
	h.Set(long, long)
	h.Delete(long)
	z.Add([]byte("m"), 1)
	z.Add(long, math.Copysign(0, -1))
	z.Add([]byte("negative zero"), math.Copysign(0, -1))
	z.Remove(long)
	ks.DB(0).Changed(eh)
	ks.DB(0).Changed(ez)
	ks.End()
	restored := loadRecords(t, records(t, ks.Freeze()))
	h2 := restored.DB(0).Find([]byte("h")).Collection().(*Hash)
	z2 := restored.DB(0).Find([]byte("z")).Collection().(*ZSet)
	if h2.Compact() || z2.Compact() {
		t.Errorf("Compact after the restore: hash %v, sorted set %v", h2.Compact(), z2.Compact())
	}
	if h2.Sum() != h.Sum() || z2.Sum() != z.Sum() {
		t.Errorf("Sum after the restore: hash %x, want %x; sorted set %x, want %x", h2.Sum(),
			h.Sum(), z2.Sum(), z.Sum())
	}
}

// A record that is truncated, too long, or has a score that is NaN, is refused.
func TestDamagedCollectionRecords(t *testing.T) {
	c := newCollections()
	c.change(rand.New(rand.NewPCG(1, 1)), 200)
	var kinds [4]int
	for _, record := range records(t, c.ks.Freeze()) {
		kinds[record[1]]++
		for n := range record {
			if err := New().Load(record[:n]); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%d of %d bytes of a record are loaded: %v", n, len(record), err)
			}
		}
		if err := New().Load(append(bytes.Clone(record), 0)); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("a record with a byte too many is loaded: %v", err)
		}
	}
	if kinds[KindHash] == 0 || kinds[KindZSet] == 0 {
		t.Fatal("the records hold no hash or no sorted set")
	}
	e := newBox(k(1), &ZSet{small: []Scored{{Score: math.NaN(), Member: "m"}}})
	if err := New().Load(appendRecord(nil, 0, e)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a score that is no number is loaded: %v", err)
	}
	claimed := append(appendRecord(nil, 0, newBox(k(1), NewHash())), 0)
	// a count of 34 thousand million
	claimed = append(claimed[:len(claimed)-2], 0xff, 0xff, 0xff, 0xff, 0x7f)
	if err := New().Load(claimed); !errors.Is(err, ErrCorrupt) {
		t.Errorf("more fields than a record can hold are believed: %v", err)
	}
}
