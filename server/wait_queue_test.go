// Tests of blocking commands: how waits end, order, and the cost of a change.

package server

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/detector"
)

// waiting waits until n commands are blocked.
func (n *node) waiting(t testing.TB, want int64) {
	t.Helper()
	eventually(t, fmt.Sprint(want, " commands wait"), func() bool {
		return n.waitQueues.blocked.Load() == want
	})
}

// popping returns a client blocked on a list, one more than before.
func (n *node) popping(t testing.TB, words ...string) *client {
	t.Helper()
	before := n.waitQueues.blocked.Load()
	c := n.dial(t)
	if err := c.Send(commandtest.Args(words...)); err != nil {
		t.Fatal(err)
	}
	n.waiting(t, before+1)
	return c
}

// idle fails unless nobody waits, and nothing is kept of earlier waiters.
func (n *node) idle(t testing.TB) {
	t.Helper()
	eventually(t, "nobody waits", func() bool {
		n.waitQueues.mu.Lock()
		defer n.waitQueues.mu.Unlock()
		m := &n.machineWaits
		m.mu.Lock()
		defer m.mu.Unlock()
		return n.waitQueues.blocked.Load() == 0 && n.waitQueues.count.Load() == 0 &&
			len(n.waitQueues.byKey)+len(m.waiting)+len(m.left)+len(m.gone) == 0 &&
			len(n.fake.WaitingNodes()) == 0
	})
}

func TestClientUnblock(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c := n.dial(t)
	id := strings.Trim(c.call("CLIENT", "ID"), ":\r\n")
	const refused = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
	for _, x := range []struct{ command, reason, reply string }{
		{"BLPOP a b 0", "", "*-1\r\n"}, {"BLPOP a b 0", "timeout", "*-1\r\n"},
		{"BLPOP a b 0", "ERROR", refused}, {"WAIT 9 0", "", ":1\r\n"},
		{"WAIT 9 60000", "TIMEOUT", ":1\r\n"}, {"WAIT 9 0", "ERROR", refused},
		{"WAITAOF 1 9 0", "", "*2\r\n:1\r\n:1\r\n"}, {"WAITAOF 1 9 0", "ERROR", refused},
	} {
		if got := main.call("CLIENT", "UNBLOCK", id); got != ":0\r\n" {
			t.Fatalf("nobody waits: %q", got)
		}
		c.raw(pipeline(strings.Fields(x.command)))
		n.waiting(t, 1)
		call := []string{"CLIENT", "UNBLOCK", id}
		if x.reason != "" {
			call = append(call, x.reason)
		}
		if got := main.call(call...); got != ":1\r\n" {
			t.Fatalf("%s %q: %q", x.command, x.reason, got)
		}
		c.want(x.reply)
	}
	n.idle(t)
}

// CLIENT LIST and INFO show a blocked command, and commands sent after it run afterwards.
func TestWaitingIsShown(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c := n.dial(t)
	c.raw(pipeline([]string{"SET", "k", "v"}, []string{"BLPOP", "l", "0"}, []string{"GET", "k"}))
	c.want("+OK\r\n")
	n.waiting(t, 1)
	c.raw(pipeline([]string{"ECHO", "later"}))
	list := main.call("CLIENT", "LIST")
	if !strings.Contains(list, " flags=b ") || !strings.Contains(list, " cmd=blpop ") {
		t.Errorf("CLIENT LIST: %s", list)
	}
	if info := main.call("INFO", "clients"); !strings.Contains(info, "blocked_clients:1\r\n") {
		t.Errorf("INFO: %s", info)
	}
	main.call("RPUSH", "l", "x")
	c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n", "$1\r\nv\r\n", "$5\r\nlater\r\n")
	if list := main.call("CLIENT", "LIST"); strings.Contains(list, " flags=b ") {
		t.Errorf("CLIENT LIST after the wait: %s", list)
	}
	n.idle(t)
}

// Much input after a blocked command is neither read without limit nor lost. The client's end of a
// pipe shows what was read.
func TestMuchBehindAWait(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c, end := net.Pipe()
	defer c.Close()
	n.accept(end, n.httpGate)
	const times = 3 * maxAhead / 1000
	text := strings.Repeat("x", 1000)
	calls := pipeline([]string{"BLPOP", "l", "0"}) +
		strings.Repeat(pipeline([]string{"ECHO", text}), times)
	var read atomic.Int64
	sent := make(chan error, 1)
	go func() {
		for piece := range slices.Chunk([]byte(calls), 256) {
			if _, err := c.Write(piece); err != nil {
				sent <- err
				return
			}
			read.Add(int64(len(piece)))
		}
		sent <- nil
	}()
	eventually(t, "much is read", func() bool { return read.Load() >= maxAhead })
	for range 200 { // no condition shows that nothing more is read, so give it the opportunity
		main.call("PING")
	}
	if got := read.Load(); got > maxAhead+1024 {
		t.Errorf("%d bytes were read behind a command that waits, want about %d", got, maxAhead)
	}
	main.call("RPUSH", "l", "x")
	want := "*2\r\n$1\r\nl\r\n$1\r\nx\r\n" + strings.Repeat("$1000\r\n"+text+"\r\n", times)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("%v, other replies than expected", err)
	}
	if err := receive(t, "all is sent", sent); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
}

// A client with a full input buffer still wakes on timeout or when killed.
func TestFullWaiterWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		for _, timeout := range []string{"0.2", "0"} {
			c := n.dial(t)
			id := strings.Trim(c.call("CLIENT", "ID"), ":\r\n")
			c.raw(pipeline([]string{"BLPOP", "l", timeout}))
			c.raw(strings.Repeat(" \r\n", maxAhead))
			if timeout == "0" {
				n.waiting(t, 1)
				if got := main.call("CLIENT", "KILL", "ID", id); got != ":1\r\n" {
					t.Fatalf("CLIENT KILL: %q", got)
				}
				c.ended()
			} else {
				c.want("*-1\r\n")
			}
		}
		n.idle(t)
	})
}

// The waits of those that find something are observed, not of those that give up, or find it at
// once.
func TestWaitsAreObserved(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	c := n.popping(t, "BLPOP", "l", "0")
	observed := func() uint64 { return n.cfg.Locks.Snapshot()[0].Blocked.Count }
	before := observed()
	main.call("RPUSH", "l", "a", "b")
	c.want("*2\r\n$1\r\nl\r\n$1\r\na\r\n")
	main.call("BLPOP", "l", "0")
	main.call("BLPOP", "l", "0.001")
	if got := observed() - before; got != 1 {
		t.Errorf("%d waits", got)
	}
	n.idle(t)
}

func TestWaitersAreServedInOrder(t *testing.T) {
	n := start(t, nil)
	main := n.dial(t)
	const clients = 20
	var cs []*client
	for range clients {
		cs = append(cs, n.popping(t, "BLPOP", "other", "l", "0"))
	}
	for i := range clients / 2 {
		main.call("RPUSH", "l", fmt.Sprint(2*i), fmt.Sprint(2*i+1))
	}
	for i, c := range cs {
		c.want(fmt.Sprintf("*2\r\n$1\r\nl\r\n$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	n.idle(t)
}

// Each element costs one attempt, however many wait, and a useless change costs one attempt in
// all.
func TestRetriesDoNotDependOnTheNumberOfWaiters(t *testing.T) {
	detector.Skip(t) // its runtime fails beside so many clients in one bubble
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		main := n.dial(t)
		const clients = 300
		for range clients {
			n.popping(t, "BLPOP", "l", "0")
		}
		n.fake.takeCalls()
		const pushes = 50
		for i := range pushes {
			main.call("RPUSH", "l", "x")
			n.waiting(t, clients-1-int64(i))
		}
		if calls := strings.Count(n.fake.takeCalls(), "write"); calls > 3*pushes {
			t.Errorf("%d entries for %d pushes to %d waiters", calls, pushes, clients)
		}
		main.call("SET", "l", "not a list")
		main.call("DEL", "l")
		if calls := strings.Count(n.fake.takeCalls(), "write"); calls > 6 {
			t.Errorf("%d entries for two changes that bring nothing", calls)
		}
		main.call("FLUSHALL")
		n.waiting(t, clients-pushes)
	})
}

// A disconnected client takes nothing, and the next in the queue is served.
func TestVanishedWaiterTakesNothing(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
	main := n.dial(t)
	var cs []*client
	for range 20 {
		cs = append(cs, n.popping(t, "BLPOP", "l", "0"))
	}
	for i, c := range cs {
		if i%2 == 0 {
			_ = c.Close()
		}
	}
	main.call("RPUSH", "l", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	for i, c := range cs {
		if i%2 == 1 {
			c.want(fmt.Sprintf("*2\r\n$1\r\nl\r\n$1\r\n%d\r\n", i/2))
		}
	}
	if got := main.call("LLEN", "l"); got != ":0\r\n" {
		t.Errorf("left in the list: %q", got)
	}
	n.idle(t)
}

// While there is no leader a woken waiter keeps waiting, and is served when one is back.
func TestWaiterSurvivesTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, outcome := range []Outcome{NoLeader, NotRun} {
			n := startSimulated(t, nil)
			n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
			c := n.popping(t, "BLPOP", "l", "0")
			timed := n.popping(t, "BLPOP", "other", "0.3")
			n.fake.set(func() {
				n.fake.fail = &Error{outcome, "TRYAGAIN not now"}
				n.fake.calls = nil
			})
			push := func(key string) {
				n.fake.set(func() {
					batch := commands.AppendRequest(nil,
						&commands.Request{Proto: 2,
							Cmds: [][][]byte{commandtest.Args("RPUSH", key, "x")}})
					if _, err := n.fake.apply(batch); err != nil {
						t.Error(err)
					}
				})
			}
			push("l")
			push("other")
			timed.want("*-1\r\n")
			eventually(t, "two tries", func() bool {
				n.fake.mu.Lock()
				defer n.fake.mu.Unlock()
				return len(n.fake.calls) >= 2
			})
			n.fake.set(func() { n.fake.fail = nil })
			c.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
			if got := c.call("LLEN", "other"); got != ":1\r\n" {
				t.Errorf("the list whose waiter's time was over has %q", got)
			}
			n.idle(t)
		}
	})
}

// The connection of a blocking command whose outcome is unknown ends, after the replies to earlier
// commands, and the outcome is counted.
func TestUnknownOutcomeEndsAConnection(t *testing.T) {
	n := start(t, nil)
	large := strings.Repeat("x", maxBatchBytes+1)
	c := n.dial(t)
	if got := c.call("SET", "large", large); got != "+OK\r\n" {
		t.Fatal(got)
	}
	n.fake.set(func() { n.fake.fail, n.fake.failWrites = &Error{Unknown, "UNKNOWN lost"}, true })
	for _, words := range []string{"PING", "GET large", "BLPOP l 0", "PING"} {
		if err := c.Send(commandtest.Args(strings.Fields(words)...)); err != nil {
			t.Fatal(err)
		}
	}
	c.want("+PONG\r\n", fmt.Sprintf("$%d\r\n%s\r\n", len(large), large))
	c.ended()
	c = n.dial(t)
	c.call("SET", "k", "v") // whose error is a reply
	n.fake.set(func() { n.fake.fail = nil })
	info := c.call("INFO", "errorstats", "commandstats")
	for _, part := range []string{"errorstat_UNKNOWN:count=2", "cmdstat_blpop:calls=1"} {
		if !strings.Contains(info, part) {
			t.Errorf("no %s in %q", part, info)
		}
	}
}

// An unknown outcome ends a wait; the next in the queue has its turn.
func TestUnknownOutcomeEndsAWait(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
	c := n.popping(t, "BLPOP", "l", "0")
	next := n.popping(t, "BLPOP", "l", "0")
	n.fake.set(func() {
		n.fake.fail = &Error{Unknown, "UNKNOWN the command may or may not have run"}
		batch := commands.AppendRequest(nil, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("RPUSH", "l", "x")}})
		if _, err := n.fake.apply(batch); err != nil {
			t.Error(err)
		}
	})
	c.ended()
	next.ended()
	n.idle(t)
}

// A snapshot that replaced the state may hide changes: all waiters look.
func TestReplacedStateWakesWaiters(t *testing.T) {
	n := start(t, nil)
	a, b := n.popping(t, "BLPOP", "l", "0"), n.popping(t, "BZPOPMIN", "z", "0")
	n.fake.set(func() {
		n.fake.wants = nil // as when entries were skipped
		var batch []byte
		for _, call := range [][]string{{"RPUSH", "l", "x"}, {"ZADD", "z", "1", "m"}} {
			batch = commands.AppendRequest(batch,
				&commands.Request{Proto: 2, Cmds: [][][]byte{commandtest.Args(call...)}})
		}
		if _, err := n.fake.apply(batch); err != nil {
			t.Error(err)
		}
	})
	n.Deliver([]commands.Event{{Kind: commands.StateReplaced}})
	a.want("*2\r\n$1\r\nl\r\n$1\r\nx\r\n")
	b.want("*3\r\n$1\r\nz\r\n$1\r\nm\r\n$1\r\n1\r\n")
	n.idle(t)
}

// The end of the server ends waiters without a reply.
func TestCloseEndsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.popping(t, "BLPOP", "l", "0")
		full := n.dial(t)
		full.raw(pipeline([]string{"BLPOP", "l", "0"}))
		full.raw(strings.Repeat(" \r\n", maxAhead))
		n.waiting(t, 2)
		done := make(chan struct{})
		go func() { n.Close(); close(done) }()
		c.ended()
		if _, err := full.Receive(); err == nil || err == io.ErrUnexpectedEOF {
			t.Errorf("the second client: %v", err)
		}
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			t.Error("Close waits for clients that wait")
		}
	})
}

// Observing stops when nobody waits.
func TestObservingEnds(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
	observed := func() bool {
		n.fake.mu.Lock()
		defer n.fake.mu.Unlock()
		return n.fake.wants != nil
	}
	if observed() {
		t.Error("observed although nobody waits")
	}
	c := n.popping(t, "BLPOP", "l", "0")
	if !observed() {
		t.Error("not observed")
	}
	_ = c.Close()
	eventually(t, "the end of observing", func() bool { return !observed() })
	c = n.dial(t)
	c.call("CLIENT", "TRACKING", "ON")
	if !observed() {
		t.Error("not observed for a client that tracks")
	}
	c.call("CLIENT", "TRACKING", "OFF")
	if observed() {
		t.Error("observed after CLIENT TRACKING OFF")
	}
	c.call("CLIENT", "TRACKING", "ON")
	_ = c.Close()
	eventually(t, "the end of observing", func() bool { return !observed() })
}

// A newcomer does not take an element that is due to an earlier waiter not yet notified; it
// receives errors immediately.
func TestNewcomersDoNotOvertake(t *testing.T) {
	n := start(t, nil)
	n.fake.restart(commands.LevelFirst) // where commands wait on their nodes
	first := n.popping(t, "BLPOP", "l", "0")
	var late []commands.Event
	n.fake.set(func() {
		deliver := n.fake.deliver
		n.fake.deliver = func(events []commands.Event) { late = append(late, events...) }
		batch := commands.AppendRequest(nil, &commands.Request{Proto: 2,
			Cmds: [][][]byte{commandtest.Args("RPUSH", "l", "1", "2")}})
		if _, err := n.fake.apply(batch); err != nil {
			t.Error(err)
		}
		n.fake.deliver = deliver
	})
	second := n.popping(t, "BRPOP", "l", "0")
	third := n.popping(t, "BLMOVE", "l", "to", "LEFT", "LEFT", "0")
	other := n.dial(t)
	if got := other.call("BLMPOP", "0", "1", "l", "UP"); got != "-ERR syntax error\r\n" {
		t.Errorf("an error behind others: %q", got)
	}
	n.Deliver(late)
	first.want("*2\r\n$1\r\nl\r\n$1\r\n1\r\n")
	second.want("*2\r\n$1\r\nl\r\n$1\r\n2\r\n")
	other.call("RPUSH", "l", "3")
	third.want("$1\r\n3\r\n")
	n.idle(t)
}
