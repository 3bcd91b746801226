// Tests that many clients, and what they do not read, cost little, and who pays for what they keep.

package server

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// One message tells the clients of all flushes of an entry, and of what else it has changed.
func TestOneFlushAnEntry(t *testing.T) {
	n := start(t, byHand)
	const clients = 300
	for i := range clients {
		n.hearer(t, uint64(1000+i), &tracker{bcast: true, prefixes: []string{"k"}})
	}
	var changes []keyChange
	for range 2000 {
		changes = append(changes, keyChange{all: true}, keyChange{key: "k"})
	}
	told := 0
	n.tracking.changed(changes, 1<<40, func(v *invalidation) {
		if told += len(v.to); v.keys != nil || v.part.of != nil {
			t.Error("a message of some keys")
		}
	})
	if told != clients {
		t.Errorf("%d messages to %d clients", told, clients)
	}
}

// The locks of clients are looked at once for all flushes of an entry: one script can flush, and
// change a key so that the next flush is told too, 30,000 times.
func TestFlushesBesideManyLocks(t *testing.T) {
	n := start(t, byHand)
	s := n.hearer(t, 1000, &tracker{})
	const locks = 1000
	for i := range locks {
		n.lockHolds.ask(s, heldLock{heldKey{i % 2, fmt.Sprint(i)}, "me"})
	}
	allocated := func(flushes int) uint64 {
		var events []commands.Event
		for range flushes {
			for db := range 3 {
				events = append(events, commands.Event{Kind: commands.KeyChanged, DB: db, Key: "0",
					Client: 7}, commands.Event{Kind: commands.DBChanged, DB: db, Client: 7})
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n.lockHolds.applied(n.Server, events)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if one, many := allocated(1), allocated(1000); many > 2*one+1<<20 {
		t.Errorf("%d bytes for 1000 flushes, %d for one", many, one)
	}
}

// Keys that many clients track are evicted in steps too, until all is within the limits.
func TestEvictionsOfKeysThatManyTrack(t *testing.T) {
	n := start(t, byHand)
	tr := &n.tracking
	for range lockedClients + 1 {
		s := &session{srv: n.Server, noted: noted{tracked: map[string]uint32{}}}
		tr.mu.Lock()
		for i := range 3 {
			tr.note(s, fmt.Sprint("k", i))
		}
		tr.mu.Unlock()
	}
	tr.maxKeys.Store(1)
	tr.mu.Lock()
	dropped := tr.evict()
	tr.mu.Unlock()
	if len(dropped) != 1 {
		t.Errorf("%d keys at once", len(dropped))
	}
	tr.trim(func(invalidation) {})
	if len(tr.keys) != 1 {
		t.Errorf("%d keys are left", len(tr.keys))
	}
}

// A client that gets little of an entry, and does not read, keeps little of it.
func TestPartsDoNotKeepTheWhole(t *testing.T) {
	n := start(t, byHand)
	n.hearer(t, 1000, &tracker{bcast: true, prefixes: []string{"thin:"}})
	var changes []keyChange
	for i := range 5000 {
		changes = append(changes, keyChange{key: fmt.Sprintf("wide:%06d", i)})
	}
	d := n.deliverHere(1 << 40)
	n.tracking.changed(append(changes, keyChange{key: "thin:k"}), d.number, d.invalidate)
	if got := n.pubsub.backlog.Load(); got == 0 || got > 1000 {
		t.Errorf("%d bytes wait", got)
	}
}

// What is being written to a client that reads does not count as what it holds: it is not closed
// for two messages where others do not read one.
func TestWhoReadsHoldsLess(t *testing.T) {
	var o output
	var total atomic.Int64
	waiting := func() []item {
		m := &message{body: make([]byte, 100_000)}
		m.countIn(&total)
		m.retain()
		return []item{{m, ""}}
	}
	o.inFlight, o.queue = waiting(), waiting()
	for _, x := range []struct {
		moved time.Time
		holds int64
	}{{time.Time{}, total.Load()}, {time.Now(), total.Load() / 2},
		{time.Now().Add(-2 * readsLately), total.Load()}} {
		o.moved = x.moved
		if frees, holds, _ := o.stalled(); frees != total.Load() || holds != x.holds {
			t.Errorf("it holds %d of %d, want %d", holds, frees, x.holds)
		}
	}
}

// When too much waits for all, nobody is closed who holds less of it than one who stays: not for
// its own replies, and not for what others pin by small parts.
func TestRelieveClosesWhoHoldsMost(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for range 4 {
		n := start(t, byHand)
		var all []*session
		for range 10 {
			all = append(all, n.stuckSubscriber(t, "c"))
		}
		d := n.deliverHere(1 << 40)
		holds := map[*session]int{}
		push := func(m *message, size int, to ...*session) {
			for _, s := range to {
				d.push(s, m)
				holds[s] += size / len(to)
			}
		}
		for i, s := range all[2:] {
			for range 1 + i {
				size := 10_000 + g.IntN(10_000)
				push(&message{body: make([]byte, size)}, size, s)
			}
		}
		g.Shuffle(8, func(i, j int) { all[i+2], all[j+2] = all[j+2], all[i+2] })
		push(&message{body: make([]byte, 60_000)}, 60_000, all[2:5]...)
		for range 3 { // the first pins much, by parts of it
			whole := &message{body: bytes.Repeat([]byte("x"), 100_000)}
			push(&message{body: whole.body[:1000], whole: whole}, 100_000, all[0])
		}
		all[1].out.mu.Lock() // its own replies
		all[1].out.put(item{&message{body: make([]byte, 1<<20), reply: true}, ""})
		all[1].out.mu.Unlock()
		n.cfg.MaxBacklogBytes = n.pubsub.backlog.Load() - 1 - g.Int64N(200_000)
		n.relieve()
		slices.SortFunc(all, func(a, b *session) int { return cmp.Compare(holds[b], holds[a]) })
		stays := false
		for i, s := range all {
			if s.killed.Load() && stays {
				t.Errorf("number %d, with %d bytes, is closed, and one with more stays", i+1,
					holds[s])
			}
			stays = stays || !s.killed.Load()
		}
		if !all[0].killed.Load() || all[9].killed.Load() {
			t.Error("not the right ones are closed")
		}
	}
}
