// Snapshots against a model: a frozen keyspace stays as it was while the keyspace changes, and
// keyspaces with the same changes are equal, also if one was restored from records.

package keyspace

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
)

// player makes random changes, the same for the same seed.
type player struct {
	*rand.Rand
	ks    *Keyspace
	index uint64
	keys  int
}

func newPlayer(ks *Keyspace, seed uint64, keys int) *player {
	return &player{Rand: rand.New(rand.NewPCG(seed, 1)), ks: ks, keys: keys}
}

// entry starts another entry and makes some changes.
func (p *player) entry(changes int) {
	p.index++
	p.ks.Begin(p.ks.Now()+p.Int64N(5), NewRevision(0, p.index, 0))
	for i := range changes {
		p.ks.SetRevision(NewRevision(0, p.index, uint64(i)))
		p.change()
	}
	p.ks.End()
}

func (p *player) bytes() []byte {
	b := make([]byte, p.IntN(100))
	for i := range b {
		b[i] = byte(p.Uint32())
	}
	return b
}

func (p *player) change() {
	db, key := p.ks.DB(p.IntN(3)), k(p.IntN(p.keys))
	e := db.Edit(key)
	if e != nil && e.Kind() != KindString {
		p.changeCollection(db, e)
		return
	}
	switch p.IntN(15) {
	case 0, 1:
		db.SetString(key, p.bytes())
	case 2, 3:
		db.AppendString(key, p.bytes())
	case 4:
		db.Delete(key)
	case 5, 6:
		if e != nil {
			db.SetDeadline(e, p.ks.Now()+p.Int64N(100))
		}
	case 7:
		h := NewHash()
		h.Set([]byte("f"), p.bytes())
		db.Changed(db.SetCollection(key, h))
	case 8:
		z := NewZSet()
		z.Add([]byte("m"), p.Float64())
		db.Changed(db.SetCollection(key, z))
	case 9:
		db.Rename(key, k(p.IntN(p.keys)))
	case 10:
		if to := k(p.IntN(p.keys)); !bytes.Equal(key, to) {
			db.Copy(key, db, to)
		}
		db.Copy(key, p.ks.DB(3), key)
	case 14:
		s := NewSet()
		s.Add([]byte("1"))
		db.Changed(db.SetCollection(key, s))
	case 12, 13:
		db.WriteAt(key, p.IntN(150), p.bytes())
	case 11:
		if e == nil {
			db.Create(key, p.bytes())
		}
		switch p.IntN(1000) {
		case 0, 1:
			db.Flush()
		case 2, 3:
			p.ks.Swap(db.index, p.IntN(5))
		}
	}
}

// changeCollection changes some elements, often enough for small ones to become large.
func (p *player) changeCollection(db *DB, e *Entry) {
	key := []byte(e.Key())
	switch p.IntN(10) {
	case 0:
		db.Delete(key)
		return
	case 1:
		db.Rename(key, k(p.IntN(p.keys)))
		return
	case 2:
		db.Copy(key, p.ks.DB(4), key)
		return
	}
	for range 1 + p.IntN(40) {
		name := k(p.IntN(300))
		switch c := e.Collection().(type) {
		case *Hash:
			switch p.IntN(8) {
			case 0, 1:
				c.Delete(name)
			case 2:
				c.Update(name, p.bytes())
			case 3, 4:
				c.SetDeadline(p.ks, name, p.Int64N(2)*(p.ks.Now()+p.Int64N(100)))
			default:
				c.Set(name, p.bytes())
			}
		case *Set:
			if p.IntN(40) > 0 { // any other name ends the form of integers
				name = strconv.AppendInt(nil, p.Int64N(600), 10)
			}
			switch p.IntN(8) {
			case 0, 1:
				c.Delete(name)
			case 2:
				if p.IntN(20) == 0 { // which ends the form of integers too
					c.SetDeadline(p.ks, name, p.Int64N(2)*(p.ks.Now()+p.Int64N(100)))
				}
			default:
				c.Add(name)
			}
		case *ZSet:
			if p.IntN(4) == 0 {
				c.Remove(name)
			} else {
				c.Add(name, p.Float64())
			}
		}
	}
	db.Changed(e)
}

// A frozen keyspace is read while the keyspace changes, and equals a keyspace that stopped there.
// With -race this also shows that they do not share memory that is written.
func TestFrozenStaysAsItWas(t *testing.T) {
	seed := dbRand(t).Uint64()
	const entries, keys = 60, 40
	ks := New()
	p := newPlayer(ks, seed, keys)
	var readers sync.WaitGroup
	snapshots := make([][][]byte, entries)
	for i := range entries {
		p.entry(30)
		f := ks.Freeze()
		readers.Go(func() { snapshots[i] = records(t, f) })
	}
	readers.Wait()
	// The same again, each snapshot read at once.
	again := New()
	p = newPlayer(again, seed, keys)
	large := 0
	for i := range entries {
		p.entry(30)
		want := records(t, again.Freeze())
		if !sameRecords(snapshots[i], want) {
			t.Fatalf("snapshot %d changed after it was taken: %d records, want %d", i,
				len(snapshots[i]), len(want))
		}
		large = max(large, len(want))
	}
	if large < keys/2 {
		t.Fatalf("the largest snapshot has %d records: the test shows nothing", large)
	}
	if ks.Sum() != again.Sum() {
		t.Error("the same changes gave another running hash")
	}
}

// A keyspace restored from records continues like the original.
func TestRestoredContinuesAlike(t *testing.T) {
	seed := dbRand(t).Uint64()
	ks := New()
	p := newPlayer(ks, seed, 60)
	for range 100 {
		p.entry(20)
	}
	f := ks.Freeze()
	restored := New()
	for _, r := range records(t, f) {
		if err := restored.Load(r); err != nil {
			t.Fatal(err)
		}
	}
	restored.RestoreClock(ks.Now())
	restored.RestoreSum(ks.Sum())
	if f.Len() == 0 || !sameRecords(records(t, f), records(t, restored.Freeze())) {
		t.Fatalf("%d records do not restore what they were taken of", f.Len())
	}
	q := newPlayer(restored, seed+1, 60)
	p = newPlayer(ks, seed+1, 60)
	p.index, q.index = 100, 100
	for i := range 100 {
		p.entry(20)
		q.entry(20)
		if ks.Sum() != restored.Sum() || ks.Len() != restored.Len() {
			t.Fatalf("entry %d after the restart: running hash %x and %x, %d and %d keys", i,
				ks.Sum(), restored.Sum(), ks.Len(), restored.Len())
		}
	}
	if !sameRecords(records(t, ks.Freeze()), records(t, restored.Freeze())) {
		t.Fatal("the two hold different things in the end")
	}
	for i := range Databases {
		if ks.DB(i).Volatile() != restored.DB(i).Volatile() {
			t.Errorf("database %d: %d and %d volatile keys", i, ks.DB(i).Volatile(),
				restored.DB(i).Volatile())
		}
	}
}

// Any two different changes give different running hashes.
func TestSumDistinguishesChanges(t *testing.T) {
	seen := map[uint64]string{}
	for name, f := range map[string]func(ks *Keyspace){
		"nothing": func(*Keyspace) {},
		"value":   func(ks *Keyspace) { ks.DB(0).SetString(k(1), []byte("other")) },
		"value twice": func(ks *Keyspace) {
			ks.DB(0).SetString(k(1), []byte("other"))
			ks.DB(0).SetString(k(1), []byte("other"))
		},
		"key": func(ks *Keyspace) {
			ks.DB(0).SetString(k(2), []byte("other"))
		},
		"database": func(ks *Keyspace) {
			ks.DB(1).SetString(k(1), []byte("other"))
		},
		"deletion": func(ks *Keyspace) { ks.DB(0).Delete(k(1)) },
		"deadline": func(ks *Keyspace) {
			ks.DB(0).SetDeadline(ks.DB(0).Edit(k(1)), 10)
		},
		"later deadline": func(ks *Keyspace) {
			ks.DB(0).SetDeadline(ks.DB(0).Edit(k(1)), 11)
		},
		"flush": func(ks *Keyspace) { ks.DB(0).Flush() },
		"flush all": func(ks *Keyspace) {
			ks.DB(1).SetString(k(1), nil)
			ks.FlushAll()
		},
		"written": func(ks *Keyspace) {
			ks.DB(0).WriteAt(k(1), 1, []byte("x"))
		},
		"written behind it": func(ks *Keyspace) {
			ks.DB(0).WriteAt(k(1), 2, []byte("x"))
		},
		"written over its end": func(ks *Keyspace) {
			ks.DB(0).WriteAt(k(1), 5, []byte("x"))
		},
		"field":                       func(ks *Keyspace) { setDeadlines(ks, k(2), 0) },
		"field with a deadline":       func(ks *Keyspace) { setDeadlines(ks, k(2), 10) },
		"field with a later deadline": func(ks *Keyspace) { setDeadlines(ks, k(2), 11) },
		"rename":                      func(ks *Keyspace) { ks.DB(0).Rename(k(1), k(2)) },
		"copy":                        func(ks *Keyspace) { ks.DB(0).Copy(k(1), ks.DB(0), k(2)) },
		"copy to another":             func(ks *Keyspace) { ks.DB(0).Copy(k(1), ks.DB(1), k(1)) },
	} {
		ks := writable(1, 1)
		ks.DB(0).SetString(k(1), []byte("value"))
		f(ks)
		if other, ok := seen[ks.Sum()]; ok {
			t.Errorf("%s and %s give the same running hash", name, other)
		}
		seen[ks.Sum()] = name
	}
}
