// Tests that delivery delays nobody: limits, who is closed, what is shared, and where framing
// changes.

package server

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm"
)

// Large messages are written after each few: together they may exceed what may wait for a client.
func TestDeliveryWritesLargeMessagesSoon(t *testing.T) {
	var d delivery
	waiting, most := 0, 0
	d.init(func(p *parcel) {
		waiting += p.bytes()
		most = max(most, waiting)
	}, func() { waiting = 0 })
	batch := make([]parcel, 2*yieldParcels)
	for i := range batch {
		batch[i] = parcel{number: uint64(i + 1), line: make([]byte, 600<<10)}
	}
	if d.deliverAll(batch); most == 0 || most > yieldBytes+601<<10 || waiting > 0 {
		t.Errorf("up to %d bytes waited, %d are left", most, waiting)
	}
}

// stuckConn is a client's connection that reads nothing until the test ends.
func (n *node) stuckConn(t testing.TB, calls string) *session {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	n.accept(theirs, n.httpGate)
	all := n.all()
	i := slices.IndexFunc(all, func(s *session) bool { return s.conn == theirs })
	if i < 0 {
		t.Fatal("no session")
	}
	if _, err := ours.Write([]byte(calls)); err != nil {
		t.Fatal(err)
	}
	return all[i]
}

// stuckSubscriber is stuckConn for a client that has subscribed to a channel.
func (n *node) stuckSubscriber(t testing.TB, channel string) *session {
	t.Helper()
	s := n.stuckConn(t, calls("SUBSCRIBE "+channel))
	// the session counts its subscription before messages can find it
	eventually(t, "a subscription", func() (found bool) {
		n.pubsub.channels.reached([]byte(channel), func(to subscribers) { _, found = to[s] })
		return found
	})
	eventually(t, "it counts", func() bool {
		return n.fake.Level() < commands.LevelSecond ||
			n.fake.receivers(channel) == int64(n.pubsub.count(subChannel, []byte(channel)))
	})
	return s
}

// dialPipe is dial for a connection without buffers: what the client does not read, the server
// cannot write.
func (n *node) dialPipe(t testing.TB) *client {
	t.Helper()
	ours, theirs := net.Pipe()
	n.accept(theirs, n.httpGate)
	return newClient(t, ours, nil)
}

// While delivery is stuck, and a subscriber does not read, applying goes on. Whatever has no room
// is lost, and those affected notice: subscribers and monitors lose their connections, caches are
// emptied.
func TestApplyNeverWaitsForDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.pubsub.delivery.limit = 1 << 20
		stuck := n.stuckSubscriber(t, "c")
		sub, pat, tracker, monitor := n.dial(t), n.dial(t), n.dial(t), n.dial(t)
		sub.call("SUBSCRIBE", "c")
		pat.call("PSUBSCRIBE", "other*")
		tracker.call("HELLO", "3")
		tracker.call("CLIENT", "TRACKING", "ON")
		tracker.call("GET", "k")
		monitor.call("MONITOR")

		part := n.pubsub.channels.part("c")
		part.mu.Lock()
		payload := []byte(strings.Repeat("x", 100_000))
		for range 100 { // ten times the room
			n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: payload},
				{Kind: commands.KeyChanged, Key: "k"}})
		}
		n.pubsub.delivery.mu.Lock()
		if n.pubsub.delivery.bytes > n.pubsub.delivery.limit+2*parcelCost {
			t.Errorf("%d bytes wait", n.pubsub.delivery.bytes)
		}
		n.pubsub.delivery.mu.Unlock()
		part.mu.Unlock()

		for _, c := range []*client{sub, pat, monitor} {
			for {
				if ready, open := c.Ready(20 * time.Second); !ready && open {
					t.Fatal("a client that lost messages is still connected")
				}
				if raw, err := c.Receive(); err != nil {
					break
				} else if c == pat {
					t.Fatalf("%q", raw)
				}
			}
		}
		if got := tracker.next(); got != ">2\r\n$10\r\ninvalidate\r\n_\r\n" &&
			got != ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" {
			t.Errorf("%q", got)
		}
		eventually(t, "the stuck subscriber's end", func() bool {
			return n.session(stuck.id) == nil
		})
		after := n.dial(t)
		after.call("SUBSCRIBE", "c")
		n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: []byte("x")}})
		after.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
	})
}

// Closing takes effect between two parcels, however many wait.
func TestDeliveryEndsBetweenParcels(t *testing.T) {
	var d delivery
	began, goOn, delivered := make(chan struct{}, 10), make(chan struct{}), 0
	d.init(func(*parcel) {
		delivered++
		began <- struct{}{}
		<-goOn
	}, func() {})
	d.join()
	d.put(make([]parcel, 1)...)
	receive(t, "a parcel is delivered", began)
	d.put(make([]parcel, 5)...)
	goOn <- struct{}{}
	receive(t, "the first of the five", began)
	closed := make(chan struct{})
	go func() { d.close(); close(closed) }()
	eventually(t, "the end begins", d.ending.Load)
	close(goOn)
	receive(t, "the delivery ends", closed)
	if delivered != 2 {
		t.Errorf("%d parcels were delivered", delivered)
	}
}

// Patterns are found by their literal prefixes.
func TestPatternsAreIndexed(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	words := []string{"PSUBSCRIBE"}
	for i := range maxPatterns {
		words = append(words, fmt.Sprintf("p%d:*x*", i))
	}
	c.raw(pipeline(words))
	for range maxPatterns {
		c.next()
	}
	if got := c.call("PSUBSCRIBE",
		"one more"); got != "-ERR too many subscriptions: the limit is 10000 of each kind per "+
		"connection\r\n" {
		t.Errorf("%q", got)
	}
	for _, x := range []struct {
		channel string
		most    uint64
	}{{"q77:x", 0}, {"p", 0}, {"p77:x", 1}, {"p7777:" + strings.Repeat("y", 4000), 1},
		{strings.Repeat("p", 64<<10), 0}} {
		before := n.pubsub.patterns.tried.Load()
		got := n.pubsub.receivers([]byte(x.channel), false)
		if tried := n.pubsub.patterns.tried.Load() - before; tried > x.most {
			t.Errorf("%.20q: %d patterns were tried, want %d at most", x.channel, tried, x.most)
		}
		if want := strings.Count(x.channel, "77:x"); x.channel == "p77:x" && got != want {
			t.Errorf("%q: %d receivers", x.channel, got)
		}
	}
}

// Matching a channel with all patterns has a bounded cost. Those not reached within it are closed,
// others are not: cheap patterns come first.
func TestMatchingIsBounded(t *testing.T) {
	n := start(t, nil)
	plain, heavy := n.dial(t), n.dial(t)
	plain.raw(calls("PSUBSCRIBE *a a* a*a"))
	for range 3 {
		plain.next()
	}
	words := []string{"PSUBSCRIBE"}
	for i := range maxPatterns {
		words = append(words, fmt.Sprintf("*%s*b%d", strings.Repeat("a", 60), i))
	}
	heavy.raw(pipeline(words))
	for range maxPatterns {
		heavy.next()
	}
	channel := strings.Repeat("a", 64<<10)
	n.Deliver([]commands.Event{{Channel: []byte(channel), Payload: []byte("x")}})
	heavy.ended()
	if tried := n.pubsub.patterns.tried.Load(); tried > 200 {
		t.Errorf("%d patterns were tried", tried)
	}
	for range 3 {
		if got := plain.next(); !strings.HasPrefix(got, "*4\r\n$8\r\npmessage\r\n") {
			t.Errorf("%.40q", got)
		}
	}
	if got := plain.call("PING"); got != "*2\r\n$4\r\npong\r\n$0\r\n\r\n" {
		t.Errorf("%q", got)
	}
}

// Channel names are bounded: before the log, and in transactions and scripts from the feature
// level that introduces it.
func TestChannelNamesAreBounded(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	name := strings.Repeat("c", 4<<10)
	long := name + "c"
	const refused = "-ERR channel name is longer than 4096 bytes\r\n"
	n.fake.takeCalls()
	for _, word := range []string{"PUBLISH", "SPUBLISH"} {
		if got := c.call(word, long, "x"); got != refused {
			t.Errorf("%s: %.60q", word, got)
		}
	}
	if got := n.fake.takeCalls(); got != "" {
		t.Errorf("it came to the log: %s", got)
	}
	for _, word := range []string{"SUBSCRIBE", "SSUBSCRIBE"} {
		if got := c.call(word, long); got != refused {
			t.Errorf("%s: %.60q", word, got)
		}
	}
	if got := c.call("PUBLISH", name, "x"); got != ":0\r\n" {
		t.Errorf("%.60q", got)
	}
	const script = "return redis.pcall('publish', ARGV[1], 'x')"
	if got := c.call("EVAL", script, "0", long); got != refused {
		t.Errorf("%.60q", got)
	}
	c.call("MULTI")
	c.call("PUBLISH", long, "x")
	if got := c.call("EXEC"); got != "*1\r\n"+refused {
		t.Errorf("%.60q", got)
	}
	m := fsm.NewMachine(n.table)
	group := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args("EVAL", script, "0", long)}})
	if result, err := m.Apply(1, &fsm.Entry{ClockMs: 1, Batches: [][]byte{group}},
		true); err != nil || len(result.Events) != 1 || string(result.Replies[0]) != ":0\r\n" {
		t.Errorf("at the first level: %.60q, %v", result.Replies, err)
	}
}

// Lines for monitors, and messages for subscribers, are stored once, however many wait for them.
func TestWaitingMessagesAreShared(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	const clients = 40
	for range clients {
		n.stuckSubscriber(t, "c")
		n.stuckConn(t, calls("MONITOR"))
	}
	eventually(t, "monitors", func() bool { return n.monitors.size.Load() == clients })
	const messages, size = 20, 100_000
	payload := strings.Repeat("x", size)
	for range messages {
		if got := c.call("PUBLISH", "c", payload); got != ":40\r\n" {
			t.Fatal(got)
		}
	}
	n.pubsub.delivery.settle()
	if got := n.pubsub.backlog.Load(); got < 2*messages*size || got > 2*messages*size+100_000 {
		t.Errorf("%d bytes wait, want about %d", got, 2*messages*size)
	}
	for _, s := range n.all() {
		if s.monitoring && s.out.waiting() < messages*size {
			t.Errorf("%d bytes wait for a client, want %d", s.out.waiting(), messages*size)
		}
	}
	for _, s := range n.all() {
		if s.out.waiting() > size {
			s.kill()
		}
	}
	eventually(t, "nothing waits", func() bool { return n.pubsub.backlog.Load() == 0 })
}

// The total backlog is bounded: beyond it, clients with the largest queues are closed, and those
// that read go on.
func TestBacklogOfAllIsBounded(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxBacklogBytes = 2 << 20 })
	c, reads := n.dial(t), n.dial(t)
	reads.call("SUBSCRIBE", "c")
	const clients = 30
	for i := range clients {
		n.stuckSubscriber(t, fmt.Sprint("c", i))
	}
	payload := strings.Repeat("x", 100_000)
	for i := range clients {
		c.call("PUBLISH", fmt.Sprint("c", i), payload) // each waits for one message
		c.call("PUBLISH", "c", payload)
		reads.next()
		n.pubsub.delivery.settle()
		if got := n.pubsub.backlog.Load(); got > n.cfg.MaxBacklogBytes {
			t.Fatalf("%d bytes wait", got)
		}
	}
	eventually(t, "slow clients are closed", func() bool { return len(n.all()) < clients })
	if got := reads.call("UNSUBSCRIBE"); got != "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n" {
		t.Errorf("%.60q", got)
	}
}

// A yield serves clients whose requests have arrived, also when there is one processor, and other
// goroutines never sleep.
func TestYieldLooksAtSockets(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	y, err := newSocketYield()
	if err != nil {
		t.Fatal(err)
	}
	defer y.close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	served := make(chan struct{}, 100)
	go func() {
		for b := make([]byte, 1); ; served <- struct{}{} {
			if _, err := r.Read(b); err != nil {
				return
			}
		}
	}()
	y.yield() // the reader sleeps
	// A few yields would do but for goroutines that other tests have left. Without a look at
	// sockets it is some 10,000, until Go's monitor looks, after 10 ms.
	const most = 100
	for i := range 100 {
		if _, err := w.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for yields := 0; len(served) == i; yields++ {
			if yields == most {
				t.Fatalf("request %d is not served after %d yields", i, yields)
			}
			y.yield()
		}
	}
}

// deliver pushes a message as delivery does.
func (o *output) deliver(m *message) {
	if unsent, _ := o.push(m); unsent {
		o.flushQueued()
	}
}

// Memory of a peak is freed: nothing is kept for written output.
func TestOutputGivesMemoryBack(t *testing.T) {
	near, far := net.Pipe()
	var wg sync.WaitGroup
	var sent atomic.Uint64
	var o output
	o.init(near, func() int { return 64 << 20 }, &sent, new(atomic.Uint32), &account{})
	o.hold(&wg)
	_ = o.write(nil, false, framing{proto: 2})
	for range 100_000 {
		o.deliver(&message{body: []byte("message")})
	}
	go func() { _, _ = io.Copy(io.Discard, far) }()
	eventually(t, "all is written", func() bool { return o.waiting() == 0 })
	o.mu.Lock()
	if cap(o.queue) > keptItems || cap(o.inFlight) > 8*keptItems || o.held != nil {
		t.Errorf("room for %d and %d items is kept", cap(o.queue), cap(o.inFlight))
	}
	o.mu.Unlock()
	o.drain()
	wg.Wait()
	_ = far.Close()
}

// Push framing follows the position in the output: RESP3 before the reply that tells the client of
// RESP2, RESP2 after it, even if the push was delivered before.
func TestFramingChangesBehindTheReply(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	var wg sync.WaitGroup
	var sent atomic.Uint64
	var o output
	o.init(near, func() int { return 1 << 20 }, &sent, new(atomic.Uint32), &account{})
	o.hold(&wg)
	e := &commands.Event{Channel: []byte("c"), Payload: []byte("x")}
	own, redirected := invalidating([]string{"k"}, false, 3), invalidating([]string{"k"}, true, 2)
	push := func() {
		for _, m := range []*message{published("message", e), own, redirected} {
			o.deliver(m)
		}
	}
	write := func(reply string, f framing) {
		if err := o.write([]byte(reply), false, f); err != nil {
			t.Error(err)
		}
	}
	write("hello", framing{proto: 3})
	push()
	o.hold(&wg)
	push() // after RESET's reply: nothing is sent
	write("+RESET", framing{proto: 2})
	push()
	write("subscribed", framing{proto: 2, subscribed: true})
	push()
	const body = "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"
	want := "hello>" + body + strings.Repeat(invalidateHead3+"*1\r\n$1\r\nk\r\n", 2) + "+RESET" +
		"subscribed*" + body + invalidateHead2 + "*1\r\n$1\r\nk\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != want {
		t.Errorf("%q, %v,\nwant %q", got, err, want)
	}
	o.drain()
	wg.Wait()
}

// A push waits while the session writes a reply directly: the reply may change how the push is
// read.
func TestPushWaitsForTheReplyUnderWay(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	var wg sync.WaitGroup
	var sent atomic.Uint64
	var o output
	o.init(near, func() int { return 1 << 20 }, &sent, new(atomic.Uint32), &account{})
	done := make(chan error, 1)
	go func() { done <- o.write([]byte("hello"), false, framing{proto: 3}) }()
	eventually(t, "the write begins", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.writing
	})
	o.open(&wg) // a client redirects to this one
	o.deliver(invalidating([]string{"k"}, true, 2))
	want := "hello" + invalidateHead3 + "*1\r\n$1\r\nk\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != want {
		t.Errorf("%q, %v", got, err)
	}
	if err := receive(t, "the reply is written", done); err != nil {
		t.Error(err)
	}
	o.drain()
	wg.Wait()
}

// A redirection target hears of an earlier change before RESET's reply, and of nothing after it.
func TestResetOfARedirectTarget(t *testing.T) {
	n := start(t, nil)
	reader, target := n.dial(t), n.dial(t)
	target.call("SUBSCRIBE", "y")
	id := "" // a subscriber cannot ask
	for _, s := range n.all() {
		if s.subscriptions.Load() > 0 {
			id = n.idOf(s)
		}
	}
	reader.call("CLIENT", "TRACKING", "ON", "REDIRECT", id)
	reader.call("GET", "k")
	channel := "x"
	for n.pubsub.channels.part(channel) == n.pubsub.channels.part("y") {
		channel += "x"
	}
	part := n.pubsub.channels.part(channel)
	part.mu.Lock() // delivery stops here
	n.Deliver([]commands.Event{{Channel: []byte(channel)}})
	n.Deliver([]commands.Event{{Kind: commands.KeyChanged, Key: "k"}})
	target.raw(calls("RESET", "PING"))
	part.mu.Unlock()
	target.want(invalidateHead2+"*1\r\n$1\r\nk\r\n", "+RESET\r\n", "+PONG\r\n")
}

// A monitor may be silent forever, as in Redis; other clients are closed.
func TestMonitorIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.IdleTimeout = 50 * time.Millisecond })
		monitor := n.dial(t)
		monitor.call("MONITOR")
		n.dial(t).ended()
		n.dial(t).ended() // it arrived after the deadline that the monitor would have had
		if got := monitor.call("PING"); got[0] != '+' {
			t.Errorf("%q", got)
		}
	})
}

// WAITs that cannot be met yet ask the leader together.
func TestWaitsAskTogether(t *testing.T) {
	n := start(t, nil)
	const clients = 20
	var all []*client
	for range clients {
		c := n.dial(t)
		c.raw(calls("WAIT 2 0"))
		all = append(all, c)
	}
	eventually(t, "all wait", func() bool {
		n.replication.mu.Lock()
		defer n.replication.mu.Unlock()
		return len(n.replication.waiting) == clients
	})
	gate := make(chan struct{})
	n.fake.set(func() { n.fake.replicationGate = gate })
	eventually(t, "a question", func() bool { return n.fake.asking.Load() > 0 })
	if asking := n.fake.asking.Load(); asking != 1 {
		t.Errorf("%d questions at a time", asking)
	}
	n.fake.set(func() {
		n.fake.replicationGate = nil
		n.fake.st.Members[2].Applied = 100
	})
	close(gate)
	for _, c := range all {
		c.want(":2\r\n")
	}
	eventually(t, "nobody asks", func() bool {
		n.replication.mu.Lock()
		defer n.replication.mu.Unlock()
		return n.replication.end == nil
	})
}

// A waiting client that disconnects is noticed immediately, and so is the end of the server.
func TestWaitEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.raw(calls("WAIT 2 0"))
		waiting := func() int {
			n.replication.mu.Lock()
			defer n.replication.mu.Unlock()
			return len(n.replication.waiting)
		}
		eventually(t, "it waits", func() bool { return waiting() == 1 })
		_ = c.Close()
		eventually(t, "it has left", func() bool { return waiting() == 0 })
		c = n.dial(t)
		c.raw(calls("WAIT 2 0"))
		eventually(t, "it waits", func() bool { return waiting() == 1 })
		n.Close()
		c.ended()
	})
}

// CONFIG GET limits its patterns.
func TestConfigGetIsBounded(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	words := []string{"CONFIG", "GET"}
	for range maxConfigPatterns {
		words = append(words, "none*")
	}
	if got := c.call(words...); got != "*0\r\n" {
		t.Errorf("%q", got)
	}
	if got := c.call(append(words,
		"x")...); got != "-ERR too many parameters: CONFIG GET takes at most 1024\r\n" {
		t.Errorf("%q", got)
	}
}
