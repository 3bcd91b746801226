// Tests that what one entry changes costs its keys and its receivers, not their product, and that
// clients that read get all of it.

package server

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/tests/tier"
)

// nullSession is a session whose output is discarded.
func (n *node) nullSession(id uint64) *session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return newSession(n.Server, id, nullConn{})
}

// hearer is a session with client-side caching by prefixes, whose messages are held.
func (n *node) hearer(t *testing.T, id uint64, k *tracker) *session {
	s := n.nullSession(id)
	var wg sync.WaitGroup
	s.out.hold(&wg)
	s.pushProto.Store(3)
	n.tracking.begin(s, k)
	n.tracking.join(s, k.prefixes)
	t.Cleanup(func() {
		n.tracking.stop(s)
		s.out.drain()
		wg.Wait()
	})
	return s
}

// An entry costs the keys it changes plus the clients told of them: in bytes that are allocated and
// bytes that wait. Neither NOLOOP nor different prefixes multiply the two.
func TestInvalidationsCostKeysPlusClients(t *testing.T) {
	if lockorder.Checked {
		t.Skip("SKIPPED: the check of locks allocates")
	}
	many := 10_000
	if tier.Checking() {
		many = 100_000
	}
	for _, kind := range []string{"plain", "noloop", "own changes", "prefixes"} {
		for _, clients := range []int{1, 8, 64} {
			for _, keys := range []int{1, 1000, many} {
				t.Run(fmt.Sprint(kind, " ", clients, " ", keys), func(t *testing.T) {
					n := start(t, nil)
					common := strings.Repeat("k", 64)
					var all []*session
					for i := range clients {
						k := &tracker{bcast: true, noloop: kind != "plain", prefixes: []string{""}}
						if kind == "prefixes" {
							k.prefixes = []string{common[:i]}
						}
						all = append(all, n.hearer(t, uint64(1000+i), k))
					}
					changes := make([]keyChange, keys)
					for i := range changes {
						changes[i].key = fmt.Sprintf("%s%06d", common, (i*7919)%keys)
						switch kind {
						case "noloop":
							changes[i].client = all[0].clientNumber()
						case "own changes":
							changes[i].client = all[i%clients].clientNumber()
						}
					}
					d := n.deliverHere(1)
					took := func() int {
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						n.tracking.changed(changes, 1, d.invalidate)
						runtime.ReadMemStats(&after)
						return int(after.TotalAlloc - before.TotalAlloc)
					}
					most := 1000*keys + 20_000*clients + 200_000
					least := took()
					if waits := int(n.pubsub.backlog.Load()); waits > most/2 {
						t.Errorf("%d bytes wait, want %d at most", waits, most/2)
					}
					for i, s := range all {
						want := keys
						if kind == "noloop" && i == 0 || kind == "own changes" {
							want -= (keys + clients - 1 - i) / clients
							if kind == "noloop" {
								want = 0
							}
						}
						if got := s.toldOf(); got != want {
							t.Errorf("client %d was told of %d keys, want %d", i, got, want)
						}
					}
					for range 2 { // what earlier tests have left may allocate too
						if least > most {
							least = min(least, took())
						}
					}
					if least > most {
						t.Errorf("%d bytes were allocated, want %d at most", least, most)
					}
				})
			}
		}
	}
}

// toldOf returns the number of keys in the invalidations that are held.
func (s *session) toldOf() (keys int) {
	for _, m := range s.out.held {
		head, _ := m.head(framing{proto: 3})
		n, err := strconv.Atoi(strings.Trim(strings.TrimPrefix(head, invalidateHead3), "*\r\n"))
		if err != nil || bytes.Count(m.body, []byte("\r\n")) != 2*n {
			return -1
		}
		keys += n
	}
	return keys
}

// Who receives which keys: the parts of an entry's keys are those of each prefix, without those
// that a client with NOLOOP alone has changed.
func TestPartsOfChangedKeys(t *testing.T) {
	n := start(t, nil)
	a := n.hearer(t, 1001, &tracker{bcast: true, noloop: true, prefixes: []string{"a", "b:"}})
	b := n.hearer(t, 1002, &tracker{bcast: true, prefixes: []string{"a:2"}})
	c := n.hearer(t, 1003, &tracker{bcast: true, noloop: true, prefixes: []string{""}})
	later := n.hearer(t, 1004, &tracker{bcast: true, prefixes: []string{""}, after: 7})
	of := func(s *session, keys ...string) (changes []keyChange) {
		for _, key := range keys {
			changes = append(changes, keyChange{key: key, client: s.clientNumber()})
		}
		return changes
	}
	d := n.deliverHere(7)
	n.tracking.changed(slices.Concat(of(a, "a:3", "b:1", "a:1", "a:2"), of(c, "a:22", "c"),
		of(b, "a:3"), []keyChange{{key: "c"}}, of(a, "a:1")), 7, d.invalidate)
	told := func(s *session) string {
		var b strings.Builder
		for _, m := range s.out.held {
			head, _ := m.head(framing{proto: 3})
			b.WriteString(strings.TrimPrefix(head, invalidateHead3) + string(m.body))
		}
		return strings.ReplaceAll(b.String(), "\r\n", " ")
	}
	for want, s := range map[string]*session{
		"*2 $4 a:22 $3 a:3 ":                      a,
		"*2 $3 a:2 $4 a:22 ":                      b,
		"*2 $3 a:1 $3 a:2 *3 $3 a:3 $3 b:1 $1 c ": c,
		"": later,
	} {
		if got := told(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The keys of many clients with NOLOOP in one entry, and of many prefixes, come once, in parts that
// a client receives while the others are queued.
func TestLargeInvalidationsAreParts(t *testing.T) {
	n := start(t, nil)
	s := n.hearer(t, 1001, &tracker{bcast: true, prefixes: []string{""}})
	const keys, size = 40, 100_000
	changes := make([]keyChange, keys)
	for i := range changes {
		changes[i].key = fmt.Sprint(i, strings.Repeat("k", size))
	}
	changes = append(changes, keyChange{key: strings.Repeat("l", 3*yieldBytes)})
	d := n.deliverHere(1)
	n.tracking.changed(changes, 1, d.invalidate)
	if got := s.toldOf(); got != keys+1 {
		t.Errorf("told of %d keys", got)
	}
	for _, m := range s.out.held[:len(s.out.held)-1] {
		if len(m.body) > yieldBytes {
			t.Errorf("a message of %d bytes", len(m.body))
		}
	}
	if got, want := int(n.pubsub.backlog.Load()), keys*size+3*yieldBytes+20_000; got > want {
		t.Errorf("%d bytes wait, want %d at most", got, want)
	}
}

// What waits for all clients is bounded while an entry is delivered, not only after it.
func TestBacklogIsBoundedWithinAnEntry(t *testing.T) {
	const most = 2 << 20
	n := start(t, func(c *Config) { c.MaxBacklogBytes = most })
	const keys, clients = 5000, 8
	changes := make([]keyChange, keys)
	for i := range changes {
		changes[i].key = fmt.Sprintf("%04d%s", i, strings.Repeat("k", 1000))
	}
	for range clients {
		s := n.stuckConn(t, calls("HELLO 3", "CLIENT TRACKING ON"))
		eventually(t, "tracking", func() bool { return s.track.Load() != nil })
		n.tracking.mu.Lock()
		s.tracked = map[string]uint32{}
		for _, c := range changes {
			n.tracking.note(s, c.key)
		}
		n.tracking.mu.Unlock()
	}
	d := n.deliverHere(1 << 40)
	peak := int64(0)
	n.tracking.changed(changes, d.number, func(v *invalidation) {
		d.invalidate(v)
		peak = max(peak, n.pubsub.backlog.Load())
	})
	if peak > most {
		t.Errorf("%d bytes waited", peak)
	}
	eventually(t, "those that do not read are closed", func() bool { return len(n.all()) == 0 })
}

// A client that reads is never near its limit, however much one entry is for it: what is queued is
// written meanwhile.
func TestReadersOfALargeEntry(t *testing.T) {
	const most, keys = 1 << 20, 30_000
	n := start(t, func(c *Config) { c.MaxSubscriberBytes = most })
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	s := n.sessionOf(c)
	words := []string{"MGET"}
	changes := make([]keyChange, keys)
	for i := range changes {
		changes[i].key = fmt.Sprint("k", i)
		words = append(words, changes[i].key)
	}
	c.call(words...)
	done := make(chan int, 1)
	go func() {
		told := 0
		for ; told < keys; told++ {
			if raw, err := c.Receive(); err != nil || raw[0] != '>' {
				break
			}
		}
		done <- told
	}()
	d := n.deliverHere(1 << 40)
	n.tracking.changed(changes, d.number, func(v *invalidation) {
		d.invalidate(v)
		if s.out.waiting() > most*3/4 {
			eventually(t, "something is written", func() bool { return s.out.waiting() < most/4 })
		}
	})
	d.flush()
	if told := receive(t, "the reader is told", done); told != keys {
		t.Errorf("told of %d of %d keys", told, keys)
	}
}

// deliverHere is for tests that deliver a parcel themselves, while the goroutine for that is idle.
func (n *node) deliverHere(number uint64) *parcelDelivery {
	n.pubsub.delivery.join()
	n.pubsub.delivery.put(parcel{events: []commands.Event{{Channel: []byte("nobody's")}}})
	n.pubsub.delivery.settle()
	return &parcelDelivery{srv: n.Server, number: number}
}

// What nobody hears takes no room, and delays nobody.
func TestEventsWithoutReceivers(t *testing.T) {
	n := start(t, nil)
	n.pubsub.delivery.limit = 1 << 20
	sub, pat := n.dial(t), n.dial(t)
	sub.call("SUBSCRIBE", "c")
	pat.call("PSUBSCRIBE", "other:*")
	var events []commands.Event
	for i := range 20_000 {
		name := fmt.Sprint("key", i)
		events = append(events,
			commands.Event{Channel: []byte("__keyspace@0__:" + name), Payload: []byte("set")},
			commands.Event{Channel: []byte("__keyevent@0__:set"), Payload: []byte(name)},
			commands.Event{Channel: []byte("c"), Shard: true})
	}
	before := n.pubsub.delivery.join()
	n.Deliver(events)
	if got := n.pubsub.delivery.join(); got != before {
		t.Errorf("%d parcels", got-before)
	}
	n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: []byte("x")},
		{Channel: []byte("other:c"), Payload: []byte("y")}})
	sub.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
	pat.want("*4\r\n$8\r\npmessage\r\n$7\r\nother:*\r\n$7\r\nother:c\r\n$1\r\ny\r\n")
}

// The messages of one entry always fit, and others beside them: a subscriber that reads gets each.
func TestOneEntryFits(t *testing.T) {
	n := start(t, nil)
	d := &n.pubsub.delivery
	d.limit = 1 << 20
	sub, other := n.dial(t), n.dial(t)
	sub.call("PSUBSCRIBE", "__key*")
	other.call("SUBSCRIBE", "c")
	const keys = 10_000
	var events []commands.Event
	for i := range keys {
		events = append(events, commands.Event{Payload: []byte("set"),
			Channel: fmt.Appendf(nil, "__keyspace@0__:%d", i)})
	}
	if p := (parcel{events: events}); p.bytes() < d.limit {
		t.Fatalf("%d bytes fit anyway", p.bytes())
	}
	n.Deliver(events)
	n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: []byte("x")}})
	for i := range keys {
		var f commands.RESP
		f.Array(4)
		for _, s := range []string{"pmessage", "__key*", fmt.Sprint("__keyspace@0__:", i), "set"} {
			f.BulkString(s)
		}
		sub.want(string(f.Buf))
	}
	other.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
}

// A large entry alone does not put delivery behind: nobody is closed for that.
func TestALargeParcelIsNotBehind(t *testing.T) {
	var d delivery
	var behind []bool
	began, goOn := make(chan struct{}), make(chan struct{})
	d.init(func(*parcel) {
		began <- struct{}{}
		<-goOn
		behind = append(behind, d.behind(time.Now()))
	}, func() {})
	d.limit = 1 << 20
	d.join()
	large := parcel{line: make([]byte, 400<<10)}
	d.put(large)
	receive(t, "the first", began)
	goOn <- struct{}{}
	d.settle()
	d.put(large)
	receive(t, "the second", began)
	d.put(large)
	goOn <- struct{}{}
	receive(t, "the third", began)
	goOn <- struct{}{}
	d.close()
	if want := []bool{false, true, false}; !slices.Equal(behind, want) {
		t.Errorf("%v, want %v", behind, want)
	}
}

// A command too long to show costs the monitors their connections, and others nothing.
func TestLongLinesEndMonitors(t *testing.T) {
	n := start(t, nil)
	d := &n.pubsub.delivery
	d.limit = 1 << 20
	monitor, sub, cache, w := n.dial(t), n.dial(t), n.dial(t), n.dial(t)
	sub.call("SUBSCRIBE", "c")
	cache.call("HELLO", "3")
	cache.call("CLIENT", "TRACKING", "ON")
	cache.call("GET", "k")
	monitor.call("MONITOR")
	w.call("SET", "other", strings.Repeat("\x00", 400<<10)) // four times as long when it is quoted
	w.call("PUBLISH", "c", "x")
	sub.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
	if got := cache.call("PING"); got != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
	monitor.ended()
	monitor = n.dial(t)
	monitor.call("MONITOR")
	w.call("ECHO", strings.Repeat("y", 400<<10))
	if got := monitor.next(); len(got) < 400<<10 {
		t.Errorf("%d bytes", len(got))
	}
}

// BenchmarkDeliver measures a message on its way from the log to subscribers that take it at once,
// and one that nobody hears.
func BenchmarkDeliver(b *testing.B) {
	for _, subscribers := range []int{0, 1, 100} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			n := start(b, nil)
			n.pubsub.size.Add(1)
			after := n.pubsub.delivery.join()
			for i := range subscribers {
				s := n.nullSession(uint64(1000 + i))
				var wg sync.WaitGroup
				s.out.open(&wg)
				s.out.as = framing{proto: 3, subscribed: true}
				n.pubsub.channels.add("c", s, after)
			}
			e := []commands.Event{{Channel: []byte("c"), Payload: []byte("payload")}}
			b.ReportAllocs()
			for b.Loop() {
				n.Deliver(e)
				n.pubsub.delivery.settle()
			}
		})
	}
}
