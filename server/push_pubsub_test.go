// Tests of message delivery: order, forms, slow subscribers, and counts.

package server

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/detector"
)

func TestMessagesInRESP3(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.raw(calls("SUBSCRIBE a", "PUBLISH a one", "GET x", "PSUBSCRIBE a*", "SSUBSCRIBE a", "MULTI",
		"PUBLISH a two", "SPUBLISH a three", "EXEC"))
	c.want(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	// Replies keep their order, and messages theirs; their interleaving is open.
	var replies, messages []string
	for range 12 {
		if m := c.next(); strings.HasPrefix(m, ">3\r\n$7\r\nmess") || strings.HasPrefix(m, ">4") ||
			strings.HasPrefix(m, ">3\r\n$8\r\nsm") {
			messages = append(messages, m)
		} else {
			replies = append(replies, m)
		}
	}
	want := []string{
		":1\r\n", "_\r\n", ">3\r\n$10\r\npsubscribe\r\n$2\r\na*\r\n:2\r\n",
		">3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n",
		"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:2\r\n:1\r\n",
	}
	if fmt.Sprintf("%q", replies) != fmt.Sprintf("%q", want) {
		t.Errorf("replies %q,\nwant %q", replies, want)
	}
	want = []string{
		">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\none\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\ntwo\r\n",
		">4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$1\r\na\r\n$3\r\ntwo\r\n",
		">3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$5\r\nthree\r\n",
	}
	if fmt.Sprintf("%q", messages) != fmt.Sprintf("%q", want) {
		t.Errorf("messages %q,\nwant %q", messages, want)
	}
}

// A confirmation precedes the first message, whatever is published meanwhile; nothing follows the
// confirmation of the end.
func TestSubscribeHasNoGap(t *testing.T) {
	n := start(t, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for sent := 0; ; {
			select {
			case <-stop:
				return
			default:
				n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: []byte("m")}})
				if sent++; sent%1000 == 0 {
					n.pubsub.delivery.settle() // keeps entries from outrunning delivery
				}
			}
		}
	}()
	defer wg.Wait()
	defer close(stop)
	c := n.dial(t)
	const message = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
	for i := range 50 {
		c.raw(calls("PING", "SUBSCRIBE c"))
		c.want("+PONG\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", message)
		c.raw(calls("UNSUBSCRIBE c", "ECHO x"))
		for m := c.next(); m != "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"; m = c.next() {
			if m != message {
				t.Fatalf("round %d: %q", i, m)
			}
		}
		c.want("$1\r\nx\r\n")
	}
}

// A subscriber that does not read is closed at its limit; publishing never waits for it.
func TestSlowSubscriber(t *testing.T) {
	n := start(t, func(c *Config) { c.MaxSubscriberBytes = 1 << 20 })
	slow, fast, p := n.dial(t), n.dial(t), n.dial(t)
	slow.call("SUBSCRIBE", "c")
	fast.call("SUBSCRIBE", "d")
	payload := strings.Repeat("x", 100_000)
	for range 400 { // 40 MB: more than all system buffers
		if p.call("PUBLISH", "c", payload) == ":0\r\n" {
			break
		}
	}
	eventually(t, "the slow subscriber is gone", func() bool {
		return p.call("PUBSUB", "NUMSUB", "c") == "*2\r\n$1\r\nc\r\n:0\r\n"
	})
	if got := p.call("PUBLISH", "d", "x"); got != ":1\r\n" {
		t.Fatal(got)
	}
	fast.want("*3\r\n$7\r\nmessage\r\n$1\r\nd\r\n$1\r\nx\r\n")
}

// A subscriber that reads gets everything, in order, however much.
func TestManyMessages(t *testing.T) {
	n := start(t, nil)
	s, p := n.dial(t), n.dial(t)
	s.call("SUBSCRIBE", "c")
	const many = 5000
	var b strings.Builder
	for i := range many {
		b.WriteString(calls(fmt.Sprintf("PUBLISH c %d", i)))
	}
	go func() { _ = p.SendRaw([]byte(b.String())) }()
	for i := range many {
		v := fmt.Sprint(i)
		s.want(fmt.Sprintf("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%s\r\n", len(v), v))
		p.want(":1\r\n")
	}
}

// If a snapshot replaced entries, all earlier subscribers are disconnected, whatever their
// subscriptions. Later ones go on.
func TestSnapshotEndsSubscribers(t *testing.T) {
	n := start(t, nil)
	p := n.dial(t)
	p.call("HELLO", "3")
	var before []*client
	for _, word := range []string{"SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"} {
		c := n.dial(t)
		c.call(word, "c")
		before = append(before, c)
	}
	replaced := []commands.Event{{Kind: commands.StateReplaced}}
	n.Deliver(replaced)
	for _, c := range before {
		c.ended()
	}
	after := n.dial(t)
	after.call("SUBSCRIBE", "c")
	if got := p.call("PUBLISH", "c", "x"); got != ":1\r\n" {
		t.Errorf("published to %q", got)
	}
	after.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
	after.call("UNSUBSCRIBE", "c")
	n.Deliver(replaced)
	if got := after.call("PING"); got != "+PONG\r\n" { // without subscriptions nothing is missed
		t.Errorf("%q", got)
	}
}

// A subscriber disconnected because messages were lost gets all earlier messages, however late it
// reads, and no later ones.
func TestSnapshotEndsBehindMessages(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("SUBSCRIBE", "c")
	payload := strings.Repeat("x", 1000)
	message := commands.Event{Channel: []byte("c"), Payload: []byte(payload)}
	const many = 100 // as much as the system's buffers hold
	var events []commands.Event
	for range many {
		events = append(events, message)
	}
	n.Deliver(append(events, commands.Event{Kind: commands.StateReplaced}, message))
	eventually(t, "the session ends", func() bool { return len(n.all()) == 0 })
	for range many {
		c.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1000\r\n" + payload + "\r\n")
	}
	c.ended()
}

// A reply to a connection that has failed meanwhile is not waited for.
func TestOutputEndsWhereItFailed(t *testing.T) {
	ours, theirs := net.Pipe()
	var o output
	var sent atomic.Uint64
	var wg sync.WaitGroup
	o.init(ours, func() int { return 1 << 20 }, &sent, new(atomic.Uint32), &account{})
	o.hold(&wg)
	if err := o.write(nil, false, framing{proto: 2}); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	o.deliver(&message{body: []byte("message")})
	wg.Wait() // the writer has ended
	ended := make(chan error)
	go func() {
		err := o.write([]byte("+OK\r\n"), false, framing{proto: 2})
		o.drain()
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != errKilled {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for a writer that has gone")
	}
}

// A removed node disconnects clients that wait for events, and confirms nothing to those that come
// back.
func TestDropWaiting(t *testing.T) {
	n := start(t, nil)
	begin := []string{"SUBSCRIBE c", "PSUBSCRIBE c", "SSUBSCRIBE c", "CLIENT TRACKING on"}
	waiting := []*client{n.popping(t, "BLPOP", "l", "0")}
	for _, call := range begin {
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call(strings.Fields(call)...)
		waiting = append(waiting, c)
	}
	const why = "CLUSTERDOWN the command did not run: node n1 was removed"
	n.DropWaiting(errors.New(why))
	for _, c := range waiting {
		c.ended()
	}
	c := n.dial(t)
	c.call("HELLO", "3")
	for _, call := range begin {
		if got := c.call(strings.Fields(call)...); got != "-"+why+"\r\n" {
			t.Errorf("%s: %q", call, got)
		}
	}
	if got := c.call("CLIENT", "GETREDIR"); got != ":-1\r\n" {
		t.Errorf("it is tracked: %q", got)
	}
	if got := c.call("UNSUBSCRIBE"); got != ">3\r\n$11\r\nunsubscribe\r\n_\r\n:0\r\n" {
		t.Errorf("%q", got)
	}
}

// CLIENT REPLY suppresses replies, not messages and confirmations of subscriptions.
func TestSilenceAndMessages(t *testing.T) {
	n := start(t, nil)
	c, p := n.dial(t), n.dial(t)
	c.call("HELLO", "3")
	c.raw(calls("CLIENT REPLY OFF", "GET a", "SUBSCRIBE c", "SET a 1", "WAIT 0 0", "UNSUBSCRIBE d",
		"GET a"))
	c.want(">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n",
		">3\r\n$11\r\nunsubscribe\r\n$1\r\nd\r\n:1\r\n")
	if got := p.call("PUBLISH", "c", "x"); got != ":1\r\n" {
		t.Fatal(got)
	}
	c.want(">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
	c.raw(calls("GET a", "CLIENT REPLY ON", "GET a"))
	c.want("+OK\r\n", "$1\r\n1\r\n")
}

// It suppresses the other replies of a transaction alone, too.
func TestSilenceInTransactions(t *testing.T) {
	n := start(t, nil)
	for _, block := range []string{
		"SUBSCRIBE c", "GET a|SUBSCRIBE c", "SUBSCRIBE c|GET a", "PING|SUBSCRIBE c|PING",
		"SET a 1|PING|SUBSCRIBE c|PING|PUBLISH d x",
	} {
		for _, proto := range []string{"2", "3"} {
			c := n.dial(t)
			c.call("HELLO", proto)
			c.raw(calls("PING", "CLIENT REPLY OFF", "PING", "MULTI"))
			c.raw(calls(strings.Split(block, "|")...))
			c.raw(calls("EXEC"))
			kind := map[string]string{"2": "*", "3": ">"}[proto]
			c.want("+PONG\r\n", kind+"3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
			n.Deliver([]commands.Event{{Channel: []byte("c"), Payload: []byte("x")}})
			c.want(kind + "3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n")
		}
	}
	c := n.dial(t)
	c.raw(calls("WATCH a", "SET a 2", "CLIENT REPLY OFF", "MULTI", "SUBSCRIBE c", "GET a", "EXEC",
		"CLIENT REPLY ON", "GET a"))
	c.want("+OK\r\n", "+OK\r\n", "+OK\r\n", "$1\r\n2\r\n")
}

// Disconnected subscribers leave nothing behind.
func TestSubscribersAreForgotten(t *testing.T) {
	n := start(t, nil)
	p := n.dial(t)
	for i := range 20 {
		c := n.dial(t)
		c.call("SUBSCRIBE", fmt.Sprint("c", i))
		c.call("PSUBSCRIBE", "p*")
		c.call("SSUBSCRIBE", "s")
		_ = c.Close()
	}
	eventually(t, "no subscription is left", func() bool {
		return p.call("PUBSUB", "CHANNELS")+p.call("PUBSUB", "NUMPAT")+
			p.call("PUBSUB", "SHARDCHANNELS") == "*0\r\n:0\r\n*0\r\n"
	})
	for kind := range subKinds {
		if left := n.pubsub.kinds(kind); left != 0 {
			t.Errorf("kind %d: %d are left", kind, left)
		}
	}
	if left := n.pubsub.patterns.tree.Len(); left != 0 {
		t.Errorf("%d groups of patterns are left", left)
	}
}

// An event outlives the arguments of its call: a script reuses their memory for the next call. The
// machine copies them.
func TestEventsKeepTheirBytes(t *testing.T) {
	m := fsm.NewMachine(testTable())
	const script = "redis.call('publish', 'channel', 'payload'); redis.call('spublish', " +
		"'XXXXXXX', 'YYYYYYY'); redis.call('set', 'ZZZZZZZ', 'ZZZZZZZ')"
	group := commands.AppendRequest(nil, &commands.Request{Proto: 2,
		Cmds: [][][]byte{commandtest.Args("EVAL", script, "0")}})
	result, err := m.Apply(1, &fsm.Entry{ClockMs: 1, Batches: [][]byte{group}}, true)
	clear(group)
	if err != nil || len(result.Events) != 2 {
		t.Fatal(result, err)
	}
	for i, want := range []string{"channel payload false", "XXXXXXX YYYYYYY true"} {
		e := result.Events[i]
		if got := fmt.Sprintf("%s %s %v", e.Channel, e.Payload, e.Shard); got != want {
			t.Errorf("event %d: %q, want %q", i, got, want)
		}
	}
}

func TestSubscriptionLimit(t *testing.T) {
	detector.Skip(t) // it works much
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	names := []string{"SUBSCRIBE"}
	for i := range maxSubscriptions {
		names = append(names, fmt.Sprint(i))
	}
	c.raw(pipeline(names))
	for range maxSubscriptions {
		c.next()
	}
	const refused = "-ERR too many subscriptions: the limit is 100000 of each kind per " +
		"connection\r\n"
	if got := c.call("SUBSCRIBE", "one more"); got != refused {
		t.Errorf("%q", got)
	}
	if got := n.dial(t).call(append(names, "x")...); got != refused {
		t.Errorf("%q", got)
	}
	// what a transaction would subscribe to beyond the limit receives nothing either
	c.call("UNSUBSCRIBE", "0")
	c.raw(calls("MULTI", "SUBSCRIBE a", "SUBSCRIBE b", "PUBLISH b x", "EXEC"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
		"*3\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:100000\r\n"+refused+":0\r\n")
}

// A message whose command is rejected for lack of reply room in a transaction is not sent.
func TestRefusedMessageIsNotSent(t *testing.T) {
	table, sent := testTable(), 0
	for room, want := range map[int]int{1: 0, 100: 1} {
		env := &commands.Env{Level: commands.LevelSecond, Emit: func(commands.Event) { sent++ }}
		out := &commands.RESP{Proto: 2}
		x := &commands.Call{Env: env, Tx: &commands.Tx{Proto: 2, Multi: true},
			Args: commandtest.Args("PUBLISH", "channel", "m"), Out: out, Room: room}
		spec, err := table.Resolve(x.Args)
		sent = 0
		if x.Run(spec, err); sent != want || (out.Buf[0] == '-') != (want == 0) {
			t.Errorf("with room for %d bytes %d were sent: %q", room, sent, out.Buf)
		}
	}
}

// A message that was published before its receiver leaves comes before the reply to that, whichever
// command it leaves with.
func TestMessagesPrecedeTheEnd(t *testing.T) {
	n := start(t, nil)
	for _, proto := range []string{"2", "3"} {
		for _, last := range []string{"UNSUBSCRIBE", "RESET", "QUIT"} {
			for range 100 {
				c := n.dial(t)
				c.call("HELLO", proto)
				c.call("SUBSCRIBE", "c")
				// the first keep the delivery busy
				n.Deliver(slices.Repeat([]commands.Event{{Channel: []byte("c"),
					Payload: []byte("x")}}, 10))
				c.raw(calls(last))
				for i := range 10 {
					if got := c.next(); !strings.Contains(got, "\r\nmessage\r\n") {
						t.Fatalf("%s in RESP%s: %q behind %d messages", last, proto, got, i)
					}
				}
				if got := c.next(); strings.Contains(got, "\r\nmessage\r\n") {
					t.Fatalf("%s in RESP%s: %q", last, proto, got)
				}
				_ = c.Close()
			}
		}
	}
}

// What a transaction publishes, or others do who saw it, reaches the subscriptions that it makes.
func TestSubscriptionsOfTransactions(t *testing.T) {
	n := start(t, nil)
	for _, x := range []struct{ subscribe, publish, message string }{
		{"SUBSCRIBE c", "PUBLISH c x", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"},
		{"PSUBSCRIBE c*", "PUBLISH c x",
			"*4\r\n$8\r\npmessage\r\n$2\r\nc*\r\n$1\r\nc\r\n$1\r\nx\r\n"},
		{"SSUBSCRIBE c", "SPUBLISH c x",
			"*3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\nx\r\n"},
	} {
		c := n.dial(t)
		words := strings.Fields(x.subscribe)
		confirmed := fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(words[0]),
			strings.ToLower(words[0]), len(words[1]), words[1])
		c.raw(calls("SET k before", "GET k", "MULTI", x.subscribe, x.publish, "EXEC"))
		c.want("+OK\r\n", "$6\r\nbefore\r\n", "+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n",
			"*2\r\n"+confirmed+":1\r\n", x.message)
		_ = c.Close()
		eventually(t, "no subscriptions", func() bool { return n.pubsub.size.Load() == 0 })
	}
}

// A transaction that did not run has subscribed to nothing.
func TestSubscriptionsOfTransactionsThatFail(t *testing.T) {
	n := start(t, nil)
	c, other := n.dial(t), n.dial(t)
	c.call("WATCH", "k")
	other.call("SET", "k", "v")
	c.raw(calls("MULTI", "SUBSCRIBE c d", "PUBLISH c x", "EXEC", "PUBSUB NUMSUB c d", "PING"))
	c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*-1\r\n",
		"*4\r\n$1\r\nc\r\n:0\r\n$1\r\nd\r\n:0\r\n", "+PONG\r\n")
	if size := n.pubsub.size.Load(); size != 0 {
		t.Errorf("%d subscriptions are left", size)
	}
}

// A transaction that did not run has received nothing either, while other subscriptions of its
// connection receive the same messages.
func TestMessagesOfTransactionsThatFail(t *testing.T) {
	const down = "CLUSTERDOWN no leader"
	full := "EXECABORT Transaction discarded because of: " + commands.ErrOOM.Error()
	for want, fail := range map[string]func(*node){
		"_\r\n": func(n *node) { n.dial(t).call("SET", "k", "v") },
		"-" + down + "\r\n": func(n *node) {
			n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{NoLeader, down}, true })
		},
		"-" + full + "\r\n": func(n *node) { n.dial(t).call("CONFIG", "SET", "maxmemory", "1") },
	} {
		t.Run(want, func(t *testing.T) {
			n := start(t, nil)
			n.dial(t).call("SET", "held", "v")
			c := n.dial(t)
			c.call("HELLO", "3")
			c.raw(calls("PSUBSCRIBE s*", "WATCH k"))
			c.want(">3\r\n$10\r\npsubscribe\r\n$2\r\ns*\r\n:1\r\n", "+OK\r\n")
			fail(n)
			n.fake.set(func() {
				n.fake.after = func() {
					n.Deliver([]commands.Event{
						{Channel: []byte("stray"), Payload: []byte("x")},
						{Channel: []byte("stray"), Payload: []byte("x"), Shard: true},
					})
					n.pubsub.delivery.settle()
				}
			})
			c.raw(calls("MULTI", "SUBSCRIBE stray", "PSUBSCRIBE *y", "SSUBSCRIBE stray", "SET a b",
				"EXEC", "PING"))
			c.want("+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "+QUEUED\r\n", want,
				"+PONG\r\n", ">4\r\n$8\r\npmessage\r\n$2\r\ns*\r\n$5\r\nstray\r\n$1\r\nx\r\n")
			eventually(t, "nothing is queued", func() bool {
				return n.sessionOf(c).out.waiting() == 0 && n.pubsub.backlog.Load() == 0
			})
		})
	}
}
