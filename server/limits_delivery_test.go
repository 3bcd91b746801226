// Tests of who is closed when delivery is behind, and that nobody else waits for it.

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/tests/detector"
)

// settle waits until all queued parcels are in their receivers' queues.
func (d *delivery) settle() { d.settleFor(context.Background(), new(atomic.Bool)) }

// A message is heard after a second of work, or whose patterns delay it is closed: on one
// connection or on many, and whether the messages before it came with one entry or with each their
// own. Who hears all of them by a plain pattern stays. The clock goes by what is matched.
func TestOwnersOfCostlyPatternsAreClosed(t *testing.T) {
	detector.Skip(t) // it works much
	const messages = 300
	pattern := func(i int) string { return fmt.Sprintf("a*%s%d", strings.Repeat("?a*", 20), i) }
	for _, c := range []struct {
		owners, each, entry int // connections, patterns of each, messages of an entry
		patterns, length    int // different ones; bytes of the channel
	}{
		{1, 120, 1, 120, 1000}, {1, 120, messages, 120, 1000}, {60, 120, 1, 120, 1000},
		{60, 120, messages, 120, 1000}, {60, 2, messages, 120, 1000},
		{1, 3000, messages, 3000, 64}, // many, and each is cheap
	} {
		channel := strings.Repeat("a", c.length)
		_, work := glob.MatchWork([]byte(pattern(0)), []byte(channel))
		tick := 16 * time.Duration(work) * matchUnit // on a slow processor
		if c.length == 64 && work >= costlyMatch {
			t.Fatalf("it takes %d units", work)
		}
		t.Run(fmt.Sprintf("%d with %d patterns, %d of an entry", c.owners, c.each, c.entry),
			func(t *testing.T) {
				var node atomic.Pointer[node]
				var owner atomic.Pointer[session]
				var closed atomic.Int64
				began := time.Now()
				n := start(t, func(cfg *Config) {
					byHand(cfg)
					cfg.clock = func() time.Time {
						n := node.Load()
						if n == nil {
							return began
						}
						after := time.Duration(n.pubsub.patterns.tried.Load()) * tick
						if s := owner.Load(); s != nil && s.killed.Load() {
							closed.CompareAndSwap(0, int64(after))
						}
						return began.Add(after)
					}
				})
				node.Store(n)
				var owners []*session
				for i := range c.owners {
					words := []string{"PSUBSCRIBE"}
					for k := range c.each {
						words = append(words, pattern((i*c.each+k)%c.patterns))
					}
					o := n.dial(t)
					o.raw(pipeline(words))
					for range c.each {
						o.next()
					}
					owners = append(owners, n.sessionOf(o))
				}
				other, all := n.dial(t), n.dial(t)
				other.call("SUBSCRIBE", "other")
				all.call("PSUBSCRIBE", "a*")
				owner.Store(owners[0])
				events := make([]commands.Event, messages)
				for i := range events {
					events[i] = commands.Event{Channel: []byte(channel),
						Payload: fmt.Append(nil, i)}
				}
				part := n.pubsub.channels.part(channel)
				part.mu.Lock() // all are there when delivery begins
				for some := range slices.Chunk(events, c.entry) {
					n.Deliver(some)
				}
				n.Deliver([]commands.Event{{Channel: []byte("other"), Payload: []byte("released")}})
				part.mu.Unlock()
				other.want("*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$8\r\nreleased\r\n")
				for i := range messages {
					if got := all.next(); !strings.HasSuffix(got, fmt.Sprintf("\r\n%d\r\n", i)) {
						t.Fatalf("message %d: %.80q", i, got)
					}
				}
				for i, s := range owners {
					if !s.killed.Load() {
						t.Fatalf("owner %d is not closed", i)
					}
				}
				most := lateAfter + 2*strainWindow + 3*time.Duration(c.patterns)*tick
				if after := time.Duration(closed.Load()); after == 0 || after > most {
					t.Errorf("they are closed after %v of work, want %v at most", after, most)
				}
			})
	}
}

// The user whose connections cost most together is closed first, though one of another costs more
// than each of them. Connections that cost little stay.
func TestBlameIsSummedByUser(t *testing.T) {
	var load deliveryLoad
	names := map[*session]string{}
	add := func(user string, work int) {
		s := &session{}
		s.user.Store(&identity{name: []byte(user)})
		names[s] = fmt.Sprint(user, " ", work)
		load.match(subscribers{s: 0}, work)
	}
	for range 60 {
		add("many", 10_000)
	}
	add("many", 10)
	add("one", 50_000)
	load.since = time.Unix(0, 0)
	late := func(time.Time) bool { return true }
	closing := load.owners(load.since.Add(strainWindow-1), late)
	if len(closing) > 0 {
		t.Errorf("%d are closed within the window", len(closing))
	}
	closing = load.owners(load.since.Add(strainWindow), late)
	for _, s := range closing {
		if names[s] != "many 10000" {
			t.Errorf("%s is closed", names[s])
		}
	}
	if len(closing) != 60 {
		t.Errorf("%d are closed", len(closing))
	}
}

// Patterns that take much of the machine's time are closed, as few as that takes, though delivery
// keeps up: it gets no more messages than are applied. Each node closes its part of those that are
// spread over nodes. Notifications are not counted there, whatever channel a message has.
func TestPatternsThatHoldUpTheLog(t *testing.T) {
	const most = float64(strainWindow) / float64(matchUnit) * countedPart
	for _, c := range []struct {
		machine float64   // the machine's work, parts of most
		works   []float64 // of clients of this node
		want    string
	}{
		{0.9, []float64{0.5, 0.4}, ""},
		{1.1, []float64{1.1}, "0 "},
		{0.5, []float64{1.1}, "0 "},
		{1.6, []float64{0.2, 0.6, 0.8}, "2 "},
		{2, []float64{0.3, 0.8, 0.9}, "2 1 "},
		{2.7, []float64{0.2, 0.7}, "1 "},        // two others have as much
		{2.7, []float64{0.4, 0.3, 0.2}, "0 1 "}, // … 0.57 are to go
		{2.7, []float64{0.1}, ""},               // others are to blame
		{0, []float64{3}, ""},                   // notifications
	} {
		load := deliveryLoad{since: time.Unix(0, 0)}
		load.begin(uint64(c.machine * most))
		all := map[*session]int{}
		for i, part := range c.works {
			s := &session{}
			s.user.Store(&identity{name: []byte("u")})
			all[s] = i
			load.match(subscribers{s: 0}, int(part*most))
		}
		got := ""
		for _, s := range load.owners(load.since.Add(strainWindow), func(time.Time) bool {
			return false
		}) {
			got += fmt.Sprint(all[s], " ")
		}
		if got != c.want {
			t.Errorf("%v, %v: %q are closed, want %q", c.machine, c.works, got, c.want)
		}
	}
}

// Who hears much is not blamed for it, however late that is.
func TestSubscribersOfMuchAreNotBlamed(t *testing.T) {
	const messages = 12_000
	var now atomic.Int64
	n := start(t, func(c *Config) {
		byHand(c)
		c.clock = func() time.Time { return time.Unix(0, now.Add(int64(10*time.Microsecond))) }
	})
	one, two := n.dial(t), n.dial(t)
	one.call("PSUBSCRIBE", "*")
	two.call("SUBSCRIBE", "a")
	sessions := []*session{n.sessionOf(one), n.sessionOf(two)}
	events := make([]commands.Event, messages)
	for i := range events {
		events[i] = commands.Event{Channel: []byte("a")}
	}
	part := n.pubsub.channels.part("a")
	part.mu.Lock()
	n.Deliver(events)
	now.Add(int64(10 * lateAfter))
	part.mu.Unlock()
	for range messages {
		one.next()
		two.next()
	}
	for i, s := range sessions {
		if s.killed.Load() {
			t.Errorf("subscriber %d is closed", i)
		}
	}
}

// stuckDelivery starts a node whose delivery waits for gate.
func stuckDelivery(t *testing.T) (n *node, gate chan struct{}) {
	n, gate = startSimulated(t, byHand), make(chan struct{})
	n.pubsub.delivery.deliver = func(p *parcel) {
		<-gate
		n.deliverParcel(p)
	}
	n.pubsub.delivery.join()
	return n, gate
}

// While delivery is stuck, MONITOR holds up no command for long, and then none at all: the monitors
// are closed.
func TestMonitorsHoldNoCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, gate := stuckDelivery(t)
		defer close(gate)
		n.pubsub.delivery.limit = 1 << 20
		c, monitor := n.dial(t), n.dial(t)
		monitor.call("MONITOR")
		n.pubsub.delivery.put(parcel{line: make([]byte, 600<<10)})
		began := time.Now()
		for range 5 {
			c.call("SET", "k", "v")
		}
		if took := time.Since(began); took > 2*monitorWait {
			t.Errorf("they took %v", took)
		}
		monitor.ended()
	})
}

// While delivery is far behind, no read waits until others are told that their keys are tracked no
// more: they drop all that they cache, by one message.
func TestCachesWithoutRoomAreEmptied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, gate := stuckDelivery(t)
		n.pubsub.delivery.limit = 1 << 20
		n.tracking.maxKeys.Store(1)
		caches, reads := n.dial(t), n.dial(t)
		for _, c := range []*client{caches, reads} {
			c.call("HELLO", "3")
			c.call("CLIENT", "TRACKING", "ON")
		}
		caches.call("GET", "k0")
		n.pubsub.delivery.put(parcel{line: make([]byte, 600<<10)})
		began := time.Now()
		for i := range 20 {
			for _, c := range []*client{caches, reads} {
				if got := c.call("GET", fmt.Sprint("k", i)); got != "_\r\n" {
					t.Fatalf("%q", got)
				}
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they waited %v", took)
		}
		close(gate)
		for _, c := range []*client{caches, reads} {
			c.want(">2\r\n$10\r\ninvalidate\r\n_\r\n")
			c.call("CLIENT", "TRACKING", "OFF")
			if got := c.call("PING"); got != "+PONG\r\n" {
				t.Errorf("%q, more than once", got)
			}
		}
	})
}

// Nobody waits without a limit until what was queued before is delivered: a session that is killed
// ends at once, and its patterns with it; who changes users has an answer.
func TestStuckDeliveryHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, gate := stuckDelivery(t)
		defer close(gate)
		leaves, admin := n.dial(t), n.dial(t)
		leaves.call("PSUBSCRIBE", "a*")
		s := n.sessionOf(leaves)
		n.pubsub.delivery.put(parcel{line: []byte("x")})
		leaves.raw(calls("PUNSUBSCRIBE"))
		synctest.Wait()
		s.kill()
		eventually(t, "it has left", func() bool { return n.session(s.id) == nil })
		if size := n.pubsub.patterns.size(); size > 0 {
			t.Errorf("%d patterns are left", size)
		}
		began := time.Now()
		if got := admin.call("ACL", "SETUSER", "u", "on"); got != "+OK\r\n" {
			t.Errorf("%q", got)
		}
		if took := time.Since(began); took > 2*ownDelay {
			t.Errorf("it took %v", took)
		}
	})
}
