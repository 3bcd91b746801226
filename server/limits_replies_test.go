// Tests of the limit on replies, and that clients that do not read delay nobody forever.

package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// state counts the holders of room and the waiting sessions.
func (r *replyRoom) state() (held int64, holders, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held, len(r.holders), len(r.waiting[quickClients]) + len(r.waiting[slowClients])
}

// However many clients request large values and do not read, no more is built than there is room
// for; small replies pass, and slow clients are closed when others have waited long.
func TestLargeRepliesTakeTurns(t *testing.T) {
	for _, get := range []string{"GET k", "EVAL \"return redis.call('GET', KEYS[1])\" 1 k",
		"GETEX k", "LRANGE l 0 -1"} {
		n := start(t, byHand)
		n.replies.limit = 1 << 20
		const size = 3 << 17
		c := n.dial(t)
		c.call("SET", "k", strings.Repeat("x", size))
		c.call("RPUSH", "l", strings.Repeat("x", size))
		c.raw(get + "\r\n") // from here on the node knows the size of the script's reply
		for len(c.next()) < size {
		}
		const clients = 10
		for range clients {
			n.stuckConn(t, get+"\r\n")
		}
		eventually(t, get+": all hold room or wait", func() bool {
			held, holders, waiting := n.replies.state()
			if held > n.replies.limit {
				t.Fatalf("%s: %d bytes are held", get, held)
			}
			return holders+waiting == clients && waiting >= clients-int(n.replies.limit/size)
		})
		if got := c.call("STRLEN", "k"); got != fmt.Sprintf(":%d\r\n", size) {
			t.Errorf("%s: %q", get, got)
		}
		n.replies.closeSlow(time.Now())
		if len(n.all()) != clients+1 {
			t.Errorf("%s: a client was closed at once", get)
		}
		for left := clients; left > 0; {
			eventually(t, "the holders wait for their clients", func() bool {
				n.replies.mu.Lock()
				defer n.replies.mu.Unlock()
				for s := range n.replies.holders {
					if s.state.Load() != waitsForOutput {
						return false
					}
				}
				return len(n.replies.holders) > 0
			})
			if _, _, waiting := n.replies.state(); waiting == 0 {
				break
			}
			for range 2 { // records what has moved, then that nothing did
				n.replies.closeSlow(time.Now().Add(time.Minute))
			}
			n.replies.closeSlow(time.Now().Add(time.Hour))
			eventually(t, "some were closed", func() bool { return len(n.all())-1 < left })
			left = len(n.all()) - 1
		}
		for _, s := range n.all()[1:] {
			s.kill()
		}
		eventually(t, "nothing is held", func() bool {
			held, holders, waiting := n.replies.state()
			return held == 0 && holders == 0 && waiting == 0 && len(n.all()) == 1
		})
		n.Close()
	}
}

// Who wants a list of all connections asks no other node before there is room for it. A list of few
// ids needs none.
func TestListsOfClientsTakeTurns(t *testing.T) {
	n := start(t, byHand)
	n.replies.limit = 4 << 20 // half of it for clients not known to be quick
	const size = 1 << 20
	var asked atomic.Int32
	line := clientLine{5_000_000_000, "id=5000000000 " + strings.Repeat("x", size) + "\n"}
	n.asks("n2", func([]byte) []byte {
		asked.Add(1)
		return appendLines([]clientLine{line})
	})
	c := n.dial(t)
	c.call("CLIENT", "LIST") // from here on the node knows the size
	eventually(t, "its room is free", func() bool { return n.replies.size() == 0 })
	asked.Store(0)
	const clients = 10
	for range clients {
		n.stuckConn(t, "CLIENT LIST\r\n")
	}
	eventually(t, "one has room, all others wait", func() bool {
		_, holders, waiting := n.replies.state()
		return holders == 1 && waiting == clients-1
	})
	if asked.Load() > 1 {
		t.Errorf("%d asked the other node", asked.Load())
	}
	if got := c.call("CLIENT", "LIST", "ID", c.id()); !strings.Contains(got, "node=n1") {
		t.Errorf("a list of one: %q", got)
	}
	for _, s := range n.all()[1:] {
		s.kill()
	}
	eventually(t, "nothing is held", func() bool {
		held, holders, waiting := n.replies.state()
		return held == 0 && holders == 0 && waiting == 0
	})
}

// While others wait, a user who opens more connections gets no more room.
func TestRepliesShareByUser(t *testing.T) {
	n := start(t, byHand)
	n.replies.limit = 16 << 20 // half of it for clients not known to be quick
	root := n.dial(t)
	root.call("SET", "k", strings.Repeat("x", 2<<20-1000))
	root.call("ACL", "SETUSER", "crowd", "on", ">pw", "+@all", "~*")
	const crowd = 8
	for range crowd {
		n.stuckConn(t, "CLIENT REPLY SKIP\r\nAUTH crowd pw\r\nGET k\r\n")
	}
	eventually(t, "the crowd has all the room", func() bool {
		_, holders, waiting := n.replies.state()
		return holders > 1 && waiting > 0 && holders+waiting == crowd
	})
	_, before, _ := n.replies.state()
	n.stuckConn(t, "GET k\r\n")
	eventually(t, "another one waits", func() bool {
		_, holders, waiting := n.replies.state()
		return holders+waiting == crowd+1
	})
	n.replies.mu.Lock()
	for s := range n.replies.holders {
		s.kill() // whoever comes next
		break
	}
	n.replies.mu.Unlock()
	eventually(t, "the other one comes first", func() bool {
		n.replies.mu.Lock()
		defer n.replies.mu.Unlock()
		by := map[string]int{}
		for s := range n.replies.holders {
			by[s.userName()]++
		}
		if by["crowd"] > before {
			t.Fatalf("%v hold room", by)
		}
		return by["default"] == 1
	})
}

// Nor may many quick clients of one user keep a slow one of another waiting, or slow ones a quick
// one: each of them waits behind it once its own reply is read. But slow clients whose share is
// used up delay no quick ones.
func TestRepliesShareByUserAmongQuickAndSlow(t *testing.T) {
	const reply = 10 << 20
	client := func(user string, slow bool) *session {
		s := &session{}
		s.user.Store(&identity{name: []byte(user)})
		s.answering.signal, s.answering.slow = make(chan struct{}, 1), slow
		return s
	}
	for _, slow := range []bool{false, true} {
		var r replyRoom
		r.init(MinReplyBytes)
		var crowd []*session
		for room := r.limit; room >= reply; room -= reply {
			s := client("crowd", slow && len(crowd)%2 == 0) // half of the room is for slow ones
			if !r.tryReserve(s, reply) {
				t.Fatalf("%d of the crowd have room", len(crowd))
			}
			crowd = append(crowd, s)
		}
		admitted := make(chan error, 1)
		go func() {
			admitted <- r.await(client("lone", !slow), func() int64 { return 3 * reply })
		}()
		eventually(t, "the lone one waits", func() bool {
			_, _, waiting := r.state()
			return waiting == 1
		})
		for _, s := range crowd[:3] {
			r.hold(s, 0) // its reply is read
			if _, _, waiting := r.state(); waiting > 0 && r.tryReserve(s, reply) {
				t.Errorf("slow %v: one of the crowd takes room while another user, who holds "+
					"nothing, waits", s.answering.slow)
			}
		}
		if _, _, waiting := r.state(); waiting > 0 {
			t.Fatalf("slow %v: the lone one waits on", !slow)
		}
		if err := <-admitted; err != nil {
			t.Error(err)
		}
	}

	var r replyRoom
	r.init(MinReplyBytes)
	if !r.tryReserve(client("slow", true), r.limit/2) {
		t.Fatal("an empty room has no room")
	}
	last := client("late", true)
	go func() { _ = r.await(last, func() int64 { return reply }) }()
	eventually(t, "a slow one waits", func() bool {
		_, _, waiting := r.state()
		return waiting == 1
	})
	if !r.tryReserve(client("quick", false), reply) {
		t.Error("a quick client waits for slow ones")
	}
	last.killed.Store(true)
	last.cut.Store(true)
	last.answering.wake()
}

// A session that waits for room ends when killed, and those after it go on.
func TestWaitingForRoomEnds(t *testing.T) {
	n := start(t, byHand)
	n.replies.limit = 16 << 20 // half of it for clients not known to be quick
	n.dial(t).call("SET", "k", strings.Repeat("x", 2<<20-1000))
	for range 4 {
		n.stuckConn(t, "GET k\r\n")
	}
	eventually(t, "four hold room", func() bool {
		_, holders, waiting := n.replies.state()
		return holders == 4 && waiting == 0
	})
	first := n.stuckConn(t, "GET k\r\n")
	eventually(t, "one waits", func() bool {
		_, _, waiting := n.replies.state()
		return waiting == 1
	})
	c := n.dial(t)
	c.raw("GET k\r\n")
	eventually(t, "two wait", func() bool {
		_, _, waiting := n.replies.state()
		return waiting == 2
	})
	first.kill()
	eventually(t, "the first has gone", func() bool {
		_, _, waiting := n.replies.state()
		return waiting == 1
	})
	n.all()[1].kill() // the first that holds some
	if got := c.next(); len(got) < 2<<20-1000 {
		t.Errorf("%d bytes", len(got))
	}
}

// A large request that is answered, or blocks in its command, delays no other.
func TestAnsweredRequestsLeaveTheIntake(t *testing.T) {
	const size = 3 << 20
	keys := func(tail string) string {
		words := []string{"BLPOP"}
		for i := range 300 {
			words = append(words, fmt.Sprintf("%d%s", i, strings.Repeat("k", 10_000)))
		}
		return pipeline(append(words, "0")) + tail
	}
	for name, request := range map[string]string{
		"a reply that is not read": pipeline([]string{"ECHO", strings.Repeat("x", size)}),
		"a command that waits":     keys(""),
		"… with others behind it":  keys("PING\r\n"),
		"WAIT behind it": pipeline([]string{"SET", "k", strings.Repeat("x", size), "EX",
			"100"}, []string{"WAIT", "9", "0"}),
	} {
		n := start(t, func(c *Config) {
			byHand(c)
			c.MaxRequestBytes, c.DrainTimeout = 4<<20, 10*time.Millisecond
		})
		s := n.stuckConn(t, request)
		eventually(t, name, func() bool {
			n.intake.mu.Lock()
			defer n.intake.mu.Unlock()
			return len(n.intake.turns) == 0 &&
				(s.state.Load() == waitsForOutput || n.waitQueues.blocked.Load() == 1)
		})
		if name == "a command that waits" && s.in.bytes() > minReadBuffer {
			t.Errorf("its buffers have %d bytes", s.in.bytes())
		}
		c := n.dial(t)
		if got := c.call("SET", "other", strings.Repeat("x", size)); got != "+OK\r\n" {
			t.Errorf("%s: %q", name, got)
		}
		if n.waitQueues.blocked.Load() == 1 { // it still knows its keys
			key := "7" + strings.Repeat("k", 10_000)
			c.call("RPUSH", key, "x")
			eventually(t, "it is served", func() bool { return n.waitQueues.blocked.Load() == 0 })
			if got := c.call("LLEN", key); got != ":0\r\n" {
				t.Errorf("%s: %q", name, got)
			}
		}
		n.Close()
	}
}

// What a user may not read does not decide whether its request waits for room: its denial would
// tell how large values are, and whether there are any.
func TestDeniedRequestsReserveNothing(t *testing.T) {
	n := start(t, byHand)
	n.replies.limit = 1 << 20
	admin := n.dial(t)
	large := strings.Repeat("x", 300_000)
	admin.call("SET", "mine", strings.Repeat("x", 400_000))
	admin.call("SET", "secret", large)
	admin.call("RPUSH", "list", large)
	for _, words := range []string{"GET secret", "LRANGE list 0 -1", "GETEX secret"} {
		for len(admin.call(strings.Fields(words)...)) < len(large) { // the node knows their sizes
			t.Fatal(words)
		}
	}
	admin.call("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "~mine")
	bob := n.dial(t)
	bob.call("AUTH", "bob", "any")
	eventually(t, "no other holds room", func() bool { // a client has a reply before its node knows
		_, holders, waiting := n.replies.state()
		return holders+waiting == 0
	})
	for range 2 {
		n.stuckConn(t, "CLIENT REPLY SKIP\r\nAUTH bob pw\r\nGET mine\r\n")
	}
	eventually(t, "bob holds room", func() bool {
		_, holders, waiting := n.replies.state()
		return holders+waiting == 2
	})
	_, _, before := n.replies.state()
	for _, pipelined := range []string{"GET secret", "GET absent", "LRANGE list 0 -1",
		"LRANGE absent 0 -1", "GETEX secret", "MGET secret secret secret",
		"MGET mine secret", "GET secret|GET secret|GET absent", "SORT list"} {
		calls := strings.Split(pipelined, "|")
		var all [][]string
		for _, c := range calls {
			all = append(all, strings.Fields(c))
		}
		bob.raw(pipeline(all...))
		eventually(t, pipelined+": it is denied or waits", func() bool {
			ready, _ := bob.Ready(5 * time.Millisecond)
			_, _, waiting := n.replies.state()
			return ready || waiting > before
		})
		if _, _, waiting := n.replies.state(); waiting > before {
			t.Fatalf("%s: it waits for room", pipelined)
		}
		for range calls {
			if got := bob.next(); got != deniedKey {
				t.Errorf("%s: %q", pipelined, got)
			}
		}
	}
	for _, s := range n.all() {
		s.kill()
	}
}
