package keyspace

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// recounted adds up the elements of a collection, which counts them while it changes.
func recounted(c Collection) (n int) {
	switch c := c.(type) {
	case *Hash:
		c.all(func(f field) bool {
			n += 64 + textBytes(len(f.name)) + textBytes(len(f.value))
			if f.deadline != 0 {
				n += 48
			}
			return true
		})
	case *ZSet:
		c.ByHash(func(m Member) bool {
			n += 72 + textBytes(len(m.Name))
			return true
		})
	case *Set:
		if c.names == nil {
			for _, m := range c.All() {
				n += 32 + textBytes(len(m.Name))
			}
			break
		}
		c.names.from(0, true, func(m setName) bool {
			n += 32 + textBytes(len(m.name))
			if m.deadline != 0 {
				n += 64
			}
			return true
		})
	case *List:
		for i := range c.Len() {
			n += 24 + textBytes(len(c.At(i)))
		}
	case *Stream:
		c.Range(StreamID{}, MaxStreamID, func(e StreamEntry) bool {
			n += 48 + textBytes(e.Size())
			return true
		})
		c.nodes.Scan(func(s streamNode) bool {
			n += 96 + textBytes(len(s.names))
			return true
		})
		c.EachGroup(func(g *Group) {
			n += 480 + textBytes(len(g.Name())) + 160*g.Pending()
			g.EachConsumer(func(c Consumer) { n += 96 + textBytes(len(c.Name)) })
		})
	}
	return n
}

// countsRight fails unless a collection's count of its bytes is that of its elements.
func countsRight(t *testing.T, c Collection) {
	t.Helper()
	if got, want := c.weigh().bytes, recounted(c); got != want {
		t.Fatalf("a %v of %d counts %d bytes, its elements have %d", c.Kind(), c.Len(), got, want)
	}
}

// sizeIsRight fails unless the count of a keyspace is that of all it holds, expired or not.
func sizeIsRight(t *testing.T, ks *Keyspace) {
	t.Helper()
	total := int64(0)
	for _, db := range ks.dbs {
		here := int64(0)
		db.keys.from(0, func(s slot) bool {
			e := s.entry
			n := 144 + textBytes(len(e.Key()))
			if e.deadline != 0 {
				n += 48
			}
			switch {
			case e.Collection() == nil:
				n += textBytes(len(e.Bytes()))
			case e.Collection().Kind() == KindStream:
				n += streamCost + recounted(e.Collection())
			default:
				n += collectionCost + recounted(e.Collection())
			}
			if ttlsIn(e).Volatile() > 0 {
				n += 128
			}
			if e.Size() != int64(n) {
				t.Fatalf("%q, a %v, counts %d bytes, want %d", e.Key(), e.Kind(), e.Size(), n)
			}
			here += int64(n)
			return true
		})
		if db.bytes != here {
			t.Fatalf("database %d counts %d bytes, its keys have %d", db.index, db.bytes, here)
		}
		total += here
	}
	if ks.Size() != total {
		t.Fatalf("the keyspace counts %d bytes, its keys have %d", ks.Size(), total)
	}
}

// After any sequence of changes the count is what the keys add up to, also in a restored keyspace.
func TestSizeIsCounted(t *testing.T) {
	r := dbRand(t)
	ks := New()
	now := int64(1)
	for index := uint64(1); index <= 20_000; index++ {
		now += r.Int64N(3)
		ks.Begin(now, NewRevision(0, index, 0))
		changeAny(r, ks, now)
		ks.End()
		if index%20 == 0 {
			sizeIsRight(t, ks)
		}
		if index%500 == 0 {
			frozen := ks.Freeze()
			restored := New()
			restored.RestoreClock(ks.Now())
			for _, record := range records(t, frozen) {
				if err := restored.Load(record); err != nil {
					t.Fatal(err)
				}
			}
			if restored.Size() != ks.Size() {
				t.Fatalf("%d bytes, restored %d", ks.Size(), restored.Size())
			}
			if r.IntN(2) == 0 {
				ks = restored
			}
		}
	}
	ks.Begin(now, NewRevision(0, 1e6, 0))
	ks.FlushAll()
	if ks.Size() != 0 {
		t.Errorf("%d bytes are left of nothing", ks.Size())
	}
}

// changeAny makes a random change.
func changeAny(r *rand.Rand, ks *Keyspace, now int64) {
	db := ks.DB(r.IntN(3))
	key, other := k(r.IntN(20)), k(r.IntN(20))
	text := func() []byte { return make([]byte, r.IntN(100)) }
	name := func() []byte { return fmt.Appendf(nil, "name:%0*d", r.IntN(20), r.IntN(300)) }
	switch r.IntN(24) {
	case 0:
		db.SetString(key, text())
	case 1:
		if e := db.Find(key); e == nil || e.Kind() == KindString {
			db.AppendString(key, text())
		}
	case 2:
		if e := db.Find(key); e == nil || e.Kind() == KindString {
			db.WriteAt(key, r.IntN(100), text())
		}
	case 3:
		if db.Find(key) == nil {
			db.Create(key, text())
		}
	case 4:
		db.Delete(key)
	case 5, 6:
		if e := db.Edit(key); e != nil {
			db.SetDeadline(e, max(0, now+r.Int64N(200)-50))
		}
	case 7:
		db.Rename(key, other)
	case 8:
		db.Move(key, ks.DB(r.IntN(3)), other)
	case 9:
		if string(key) != string(other) {
			db.Copy(key, ks.DB(r.IntN(3)), other)
		}
	case 10:
		if r.IntN(20) == 0 {
			ks.Swap(r.IntN(3), r.IntN(3))
		}
	case 11:
		if r.IntN(100) == 0 {
			db.Flush()
		}
	case 12:
		if r.IntN(10) == 0 {
			ks.Freeze()
		}
	case 13: // a copy of a whole value replaces another
		if e := db.Find(key); e != nil {
			if z, ok := e.Collection().(*ZSet); ok {
				db.Changed(db.SetCollection(other, z.Clone()))
			}
		}
	default:
		e := db.Edit(key)
		if e == nil || e.Collection() == nil {
			kinds := []Collection{NewHash(), NewZSet(), NewSet(), NewList(), NewStream()}
			e = db.SetCollection(key, kinds[r.IntN(len(kinds))])
		}
		for range r.IntN(40) {
			changeCollection(r, ks, e.Collection(), name(), text(), now)
		}
		if s, ok := e.Collection().(*Stream); ok && s.Groups() > 0 && r.IntN(2) == 0 {
			db.Noted(e, false)
			return
		}
		db.Changed(e)
	}
}

func changeCollection(r *rand.Rand, ks *Keyspace, c Collection, name, text []byte, now int64) {
	some := func() int { return r.IntN(max(c.Len(), 1)) }
	switch c := c.(type) {
	case *Hash:
		switch r.IntN(5) {
		case 0:
			c.Delete(name)
		case 1:
			c.SetDeadline(ks, name, max(0, now+r.Int64N(300)-100))
		case 2:
			c.Update(name, text)
		default:
			c.Set(name, text)
		}
	case *ZSet:
		switch r.IntN(8) {
		case 0:
			c.Remove(name)
		case 1:
			if c.Len() > 0 {
				first := some()
				c.RemoveRange(first, min(c.Len()-1, first+r.IntN(20)))
			}
		default:
			c.Add(name, float64(r.IntN(5)))
		}
	case *Set:
		switch r.IntN(9) {
		case 8:
			c.SetDeadline(ks, name, max(0, now+r.Int64N(300)-100))
		case 0:
			c.Delete(name)
		case 1:
			if c.Len() > 0 {
				c.RemoveAt([]int{some()}, nil)
			}
		case 2:
			c.Add(fmt.Append(nil, r.IntN(100)))
		default:
			c.Add(name)
		}
	case *List:
		switch r.IntN(8) {
		case 0:
			if c.Len() > 0 {
				first := some()
				c.RemoveRange(first, min(c.Len()-1, first+r.IntN(20)))
			}
		case 1:
			if c.Len() > 1 {
				c.Remove([]int{0, c.Len() - 1})
			}
		case 2:
			if c.Len() > 0 {
				c.Set(some(), text)
			}
		case 3:
			c.Insert(some(), text)
		case 4:
			c.PushFront(text)
		default:
			c.PushBack(text)
		}
	case *Stream:
		changeStream(r, c, name, text, now)
	}
}

func changeStream(r *rand.Rand, s *Stream, name, text []byte, now int64) {
	next, _ := s.Last().Next()
	any := StreamID{Ms: s.Last().Ms, Seq: uint64(r.IntN(int(s.Last().Seq) + 1))}
	group := fmt.Append(nil, "group:", r.IntN(3))
	g := s.EditGroup(group)
	switch r.IntN(10) {
	case 0:
		s.Delete(any)
	case 1:
		s.Trim(StreamTrim{ByLength: true, MaxLen: int64(r.IntN(200)), Approx: r.IntN(2) == 0})
	case 2:
		s.CreateGroup(group, any, UnknownReads)
	case 3:
		if r.IntN(5) == 0 {
			s.DestroyGroup(group)
		}
	case 4, 5, 6:
		if g != nil {
			g.See(name, now, r.IntN(2) == 0)
			g.SetPending(Pending{ID: any, Consumer: string(name), DeliveredMs: now})
		}
	case 7:
		if g != nil {
			g.Acknowledge(any)
			g.RemoveConsumer(name)
		}
	default:
		s.Add(next, [][]byte{name, text})
	}
}
