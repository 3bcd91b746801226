// What keys of common shapes take on the heap.

package keyspace

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
)

// footprints fills a database with keys of one shape, by key number.
var footprints = []struct {
	name string
	fill func(db *DB, key []byte, r *rand.Rand)
}{
	{"string", func(db *DB, key []byte, r *rand.Rand) { db.SetString(key, token(r, 16)) }},
	{"lock", func(db *DB, key []byte, r *rand.Rand) {
		db.SetDeadline(db.SetString(key, token(r, 16)), 30_000+r.Int64N(570_000))
	}},
	{"uuid-lock", func(db *DB, key []byte, r *rand.Rand) {
		db.SetDeadline(db.SetString(key, token(r, 36)), 30_000+r.Int64N(570_000))
	}},
	{"redisson-lock", func(db *DB, key []byte, r *rand.Rand) {
		h := NewHash()
		h.Set(token(r, 40), []byte("1"))
		e := db.SetCollection(key, h)
		db.Changed(e)
		db.SetDeadline(e, 30_000+r.Int64N(570_000))
	}},
	{"window", func(db *DB, key []byte, r *rand.Rand) {
		z := NewZSet()
		e := db.SetCollection(key, z)
		for i := range 10 {
			at := 1_700_000_000_000_000 + r.Int64N(1_000_000)*int64(i+1)
			z.Add(strconv.AppendInt(nil, at, 10), float64(at))
		}
		db.Changed(e)
		db.SetDeadline(e, 30_000+r.Int64N(570_000))
	}},
	{"list", func(db *DB, key []byte, r *rand.Rand) {
		l := NewList()
		for range 3 {
			l.PushBack(token(r, 20))
		}
		db.Changed(db.SetCollection(key, l))
	}},
	{"set", func(db *DB, key []byte, r *rand.Rand) {
		s := NewSet()
		for range 3 {
			s.Add(token(r, 20))
		}
		db.Changed(db.SetCollection(key, s))
	}},
	{"semaphore", func(db *DB, key []byte, r *rand.Rand) {
		s := NewSet()
		holder := token(r, 20)
		s.Add(holder)
		s.SetDeadline(db.ks, holder, 30_000+r.Int64N(570_000))
		db.Changed(db.SetCollection(key, s))
	}},
	{"session-fields", func(db *DB, key []byte, r *rand.Rand) {
		h := NewHash()
		name := token(r, 20)
		h.Set(name, []byte("1"))
		h.SetDeadline(db.ks, name, 30_000+r.Int64N(570_000))
		db.Changed(db.SetCollection(key, h))
	}},
}

func token(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(r.IntN(26))
	}
	return b
}

// held keeps the latest keyspace, for a heap profile at the end.
var held *Keyspace

// BenchmarkFootprint reports the live heap per key, and what the collector has to visit. Run it
// with -benchtime 1x.
func BenchmarkFootprint(b *testing.B) {
	for _, f := range footprints {
		b.Run(f.name, func(b *testing.B) {
			const n = 1_000_000
			r := rand.New(rand.NewPCG(1, 2))
			for range b.N {
				held = New()
				before := liveHeap()
				for i := range n {
					held.Begin(1, NewRevision(0, uint64(i/8+1), uint64(i%8)))
					f.fill(held.DB(0), fmt.Appendf(nil, "lock:%d", r.Uint32N(1e9)), r)
					held.End()
				}
				after, keys := liveHeap(), float64(held.DB(0).Size())
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/keys, "B/key")
				b.ReportMetric(float64(after.HeapObjects-before.HeapObjects)/keys, "objects/key")
				b.ReportMetric(float64(held.Size())/keys, "counted/key")
			}
		})
	}
}

// BenchmarkMembers reports the live heap per member of one large set, of whose members none or all
// have a deadline. Run it with -benchtime 1x.
func BenchmarkMembers(b *testing.B) {
	for _, f := range []struct {
		name   string
		mortal bool
	}{{"lasting", false}, {"mortal", true}} {
		b.Run(f.name, func(b *testing.B) {
			const n = 1_000_000
			r := rand.New(rand.NewPCG(1, 2))
			for range b.N {
				held = New()
				before := liveHeap()
				held.Begin(1, NewRevision(0, 1, 0))
				s := NewSet()
				e := held.DB(0).SetCollection([]byte("members"), s)
				for range n {
					member := token(r, 20)
					s.Add(member)
					if f.mortal {
						s.SetDeadline(held, member, 30_000+r.Int64N(570_000))
					}
				}
				held.DB(0).Changed(e)
				held.End()
				b.ReportMetric(float64(liveHeap().HeapAlloc-before.HeapAlloc)/n, "B/member")
				b.ReportMetric(float64(held.Size())/n, "counted/member")
			}
		})
	}
}

func liveHeap() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}
