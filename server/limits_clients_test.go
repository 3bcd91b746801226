// Tests of the memory of connections, and of idle ones.

package server

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// byHand disables cron: the test does its work.
func byHand(c *Config) { c.cronPeriod, c.trimAfter = time.Hour, trimAfter }

// number returns the session of a client.
func (n *node) number(t *testing.T, c *client) *session {
	t.Helper()
	var id uint64
	if _, err := fmt.Sscanf(c.call("CLIENT", "ID"), ":%d", &id); err != nil {
		t.Fatal(err)
	}
	return n.connection(id)
}

func TestNamesOfClientsCount(t *testing.T) {
	s := unservedSession(start(t, nil))
	s.measure()
	before := s.memory.bytes()
	s.name, s.libName, s.libVer = strings.Repeat("n", 1000), strings.Repeat("l", 200), "1.0"
	if s.measure(); s.memory.bytes() != before+1203 {
		t.Errorf("%d bytes more", s.memory.bytes()-before)
	}
}

func setOf(bytes int) string {
	return fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", bytes)
}

func TestClientMemoryClosesTheBiggest(t *testing.T) {
	n := start(t, byHand)
	small, shielded, big := n.dial(t), n.dial(t), n.dial(t)
	small.call("PING")
	if got := shielded.call("CLIENT", "NO-EVICT", "ON"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	half := setOf(4<<20) + strings.Repeat("x", 3<<20)
	shielded.raw(half)
	big.raw(half)
	eventually(t, "both are received", func() bool { return n.clientMemory.total.Load() > 6<<20 })
	id := n.idOf(n.sessionOf(big))
	if got := field(small.call("CLIENT", "LIST", "ID", id), "tot-mem"); len(got) != 7 {
		t.Errorf("tot-mem is %s", got)
	}
	if got := small.call("CONFIG", "SET", "maxmemory-clients", "5mb"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	big.ended()
	eventually(t, "the closed one is counted", func() bool {
		return strings.Contains(small.call("INFO", "everything"), "evicted_clients:1\r\n") &&
			n.clientMemory.total.Load() < 5<<20
	})
	// with more, small would lose its connection
	small.call("CONFIG", "SET", "maxmemory-clients", "0")
	shielded.raw(strings.Repeat("x", 1<<20) + "\r\n")
	shielded.want("+OK\r\n")
	_ = shielded.Close()
	eventually(t, "it has gone", func() bool { return n.clientMemory.total.Load() < 100<<10 })
	for set, shown := range map[string]string{"0": "0", "10%": "10%", "2kb": "2048",
		"1MB": "1048576", "3m": "3000000"} {
		small.call("CONFIG", "SET", "maxmemory-clients", set)
		if got, want := small.call("CONFIG", "GET", "maxmemory-clients"),
			fmt.Sprintf("\r\n%s\r\n", shown); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %q", set, got)
		}
	}
	for _, wrong := range []string{"x", "-1", "-0%", "99999999999999999gb"} {
		if got := small.call("CONFIG", "SET", "maxmemory-clients",
			wrong); got != "-ERR CONFIG SET failed (possibly related to argument "+
			"'maxmemory-clients') - argument must be a memory or percent value\r\n" {
			t.Errorf("%s: %q", wrong, got)
		}
	}
}

// The sum of the accounts is that of the existing connections, also after connections ended in the
// middle of anything.
func TestAccountsAreClosed(t *testing.T) {
	n := start(t, byHand)
	for i := range 20 {
		c := n.dial(t)
		switch i % 4 {
		case 0:
			c.raw(setOf(4<<20) + strings.Repeat("x", 2<<20))
		case 1:
			c.raw(calls("SUBSCRIBE a", "PING"))
		case 2:
			c.raw(calls("MULTI", "SET a "+strings.Repeat("x", 100_000)))
		case 3:
			c.raw(calls("HELLO 3", "CLIENT TRACKING ON BCAST", "SET b 1"))
		}
		eventually(t, "it is there", func() bool {
			return n.clientMemory.total.Load() > int64(i%2*sessionBytes)
		})
		_ = c.Close()
	}
	eventually(t, "all have gone", func() bool {
		return len(n.all()) == 0 && n.clientMemory.total.Load() == 0
	})
	n.intake.mu.Lock()
	defer n.intake.mu.Unlock()
	if n.intake.held != 0 || n.intake.spare != 0 || len(n.intake.turns) != 0 {
		t.Errorf("%d and %d bytes, %d turns are left", n.intake.held, n.intake.spare,
			len(n.intake.turns))
	}
}

func TestIdleClientsGiveBuffersBack(t *testing.T) {
	n := start(t, byHand)
	c := n.dial(t)
	s := n.number(t, c)
	value := strings.Repeat("v", 1000)
	for range 3 {
		var b strings.Builder
		for i := range 1000 {
			b.WriteString(calls(fmt.Sprintf("SET k%d %s", i, value)))
		}
		for i := range 1000 {
			b.WriteString(calls(fmt.Sprintf("GET k%d", i)))
		}
		c.raw(b.String())
		for range 1000 {
			c.want("+OK\r\n")
		}
		for range 1000 {
			c.want("$1000\r\n" + value + "\r\n")
		}
	}
	if held := s.memory.bytes(); held < 1<<20 {
		t.Fatalf("the connection holds %d bytes: nothing to give back", held)
	}
	eventually(t, "the session waits", func() bool { return s.state.Load() == waitsForInput })
	now := time.Now()
	n.checkIdle(s, now)
	n.checkIdle(s, now.Add(trimAfter))
	eventually(t, "the buffers are given back", func() bool { return s.memory.bytes() < trimBytes })
	n.intake.mu.Lock()
	if n.intake.spare != 0 {
		t.Errorf("%d bytes of room are left", n.intake.spare)
	}
	n.intake.mu.Unlock()
	if got := c.call("GET", "k1"); got != "$1000\r\n"+value+"\r\n" {
		t.Fatal(got)
	}
	c.raw("*2\r\n$4\r\nECHO\r\n$40000\r\n" + strings.Repeat("x", 30000)) // half a request remains
	eventually(t, "it has come", func() bool { return s.memory.bytes() > 30000 })
	eventually(t, "the session waits", func() bool { return s.state.Load() == waitsForInput })
	n.checkIdle(s, now.Add(time.Hour))
	n.checkIdle(s, now.Add(time.Hour+trimAfter))
	c.raw(strings.Repeat("x", 10000) + "\r\n")
	c.want("$40000\r\n" + strings.Repeat("x", 40000) + "\r\n")
}

// Half-sent large requests take no more than the intake and the oldest's share; small requests are
// read meanwhile, and all complete.
func TestLargeRequestsTakeTurns(t *testing.T) {
	n := start(t, func(c *Config) { byHand(c); c.MaxRequestBytes = 4 << 20 })
	n.intake.limit = 8 << 20
	const clients, size = 12, 3 << 20
	var all []*client
	for range clients {
		c := n.dial(t)
		c.raw(setOf(size) + strings.Repeat("x", 100_000)) // more than a connection's own share
		all = append(all, c)
	}
	waits := func() (waiting int) {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		for _, turn := range n.intake.turns {
			if turn.wants > 0 {
				waiting++
			}
		}
		if n.intake.held > n.intake.limit+4<<20 {
			t.Errorf("%d bytes are lent", n.intake.held)
		}
		return waiting
	}
	few := n.intake.limit / (size - 1<<20)
	eventually(t, "most wait", func() bool { return waits() >= clients-few })
	if total := n.clientMemory.total.Load(); total > int64(n.intake.limit+4<<20+clients*(200<<10)) {
		t.Errorf("all take %d bytes", total)
	}
	if got := n.dial(t).call("PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	gone := all[clients-1] // a waiting one may leave
	_ = gone.Close()
	for i, c := range all[:clients-1] {
		go c.raw(strings.Repeat("x", size-100_000) + "\r\n")
		if i == 0 {
			waits()
		}
	}
	for _, c := range all[:clients-1] {
		c.want("+OK\r\n")
	}
	waits()
}

// A client that sends a large request in drips does not delay others forever.
func TestDripsAreClosed(t *testing.T) {
	n := start(t, func(c *Config) { byHand(c); c.MaxRequestBytes = 4 << 20 })
	n.intake.limit = 8 << 20
	lent := func() (turns, waiting int) {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		for _, turn := range n.intake.turns {
			if turn.wants > 0 {
				waiting++
			}
		}
		return len(n.intake.turns), waiting
	}
	var drips []*client
	for range 3 {
		c := n.dial(t)
		c.raw(setOf(4<<20-100) + strings.Repeat("x", 100_000))
		drips = append(drips, c)
		eventually(t, "it has its turn", func() bool {
			turns, _ := lent()
			return turns == len(drips)
		})
	}
	eventually(t, "one waits", func() bool {
		turns, waiting := lent()
		return turns == 3 && waiting == 1
	})
	quick := n.dial(t)
	go quick.raw(setOf(2<<20) + strings.Repeat("x", 2<<20) + "\r\n")
	eventually(t, "another waits", func() bool {
		turns, waiting := lent()
		return turns == 4 && waiting == 2
	})
	n.intake.closeSlow(time.Now())
	if turns, _ := lent(); turns != 4 {
		t.Fatal("a client was closed at once")
	}
	eventually(t, "those with room wait for input", func() bool {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		return n.intake.turns[0].s.state.Load() == waitsForInput &&
			n.intake.turns[1].s.state.Load() == waitsForInput
	})
	n.intake.closeSlow(time.Now().Add(time.Minute))
	for _, c := range drips[:2] { // the third was not slow: the node did not read from it
		c.ended()
	}
	quick.want("+OK\r\n")
}

// The half requests of one user leave room for those of others, however many they are, and what
// they leave goes to others first.
func TestHalfRequestsLeaveRoom(t *testing.T) {
	n := start(t, func(c *Config) { byHand(c); c.MaxRequestBytes = 4 << 20 })
	n.intake.limit = 4 << 20
	n.fake.setUser(t, "greedy", "on", "nopass", "+ping")
	spare := func() int {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		return n.intake.spare
	}
	const clients, size = 240, 100_000 // 96 get room of 64 KiB
	for i := range clients {
		c := n.dial(t)
		c.call("AUTH", "greedy", "x")
		c.raw(setOf(size) + strings.Repeat("x", 70_000))
		if i == 0 {
			eventually(t, "the first has room", func() bool { return spare() > 0 })
		}
	}
	eventually(t, "all hold room or wait", func() bool {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		of := n.intake.shares[owner{user: "greedy"}]
		return of != nil && of.sessions == clients
	})
	if got := spare(); got > n.intake.limit/2 {
		t.Errorf("one user holds %d of %d bytes", got, n.intake.limit)
	}
	if got := n.dial(t).call("SET", "k", strings.Repeat("x", size)); got != "+OK\r\n" {
		t.Fatal(got)
	}
	c := n.dial(t)
	large := n.sessionOf(c)
	go c.raw(setOf(2<<20) + strings.Repeat("x", 2<<20) + "\r\n")
	eventually(t, "a larger request waits", func() bool {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		return large.turn.wants > 0
	})
	eventually(t, "those with room wait for input", func() bool {
		n.intake.mu.Lock()
		defer n.intake.mu.Unlock()
		return !slices.ContainsFunc(n.intake.turns, func(t *turn) bool {
			return t.wants == 0 && t.s.state.Load() != waitsForInput
		})
	})
	n.intake.closeSlow(time.Now().Add(time.Minute))
	c.want("+OK\r\n")
}

func TestTimeouts(t *testing.T) {
	n := start(t, byHand)
	watcher := n.dial(t)
	idle, busy, subscriber, monitor, blocked := n.dial(t), n.dial(t), n.dial(t), n.dial(t),
		n.dial(t)
	sessions := map[string]*session{
		"idle": n.number(t, idle), "busy": n.number(t, busy), "subscriber": n.number(t, subscriber),
		"monitor": n.number(t, monitor), "blocked": n.number(t, blocked),
	}
	subscriber.call("SUBSCRIBE", "a")
	monitor.call("MONITOR")
	blocked.raw(calls("BLPOP nothing 0"))
	eventually(t, "it waits", func() bool { return n.waitQueues.blocked.Load() == 1 })
	rest := func(name string) {
		eventually(t, name+" waits for input", func() bool {
			return sessions[name].state.Load() == waitsForInput
		})
	}
	now := time.Now()
	look := func(at time.Time) {
		for name := range sessions {
			if name != "blocked" && !sessions[name].killed.Load() {
				rest(name)
			}
		}
		for _, c := range sessions {
			n.checkIdle(c, at)
		}
	}
	set := func(timeout string) {
		if got := watcher.call("CONFIG", "SET", "timeout", timeout); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
	set("10")
	look(now)
	set("0")
	look(now.Add(time.Hour))
	set("7200") // counts from the last command, not from the setting
	look(now.Add(time.Hour + 1))
	if got := busy.call("PING") + idle.call("PING"); got != "+PONG\r\n+PONG\r\n" {
		t.Fatal(got)
	}
	look(now.Add(2 * time.Hour))
	busy.call("PING")
	look(now.Add(3 * time.Hour))
	set("600")
	look(now.Add(3*time.Hour + 5*time.Minute))
	idle.ended()
	for _, c := range []*client{busy} {
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
	}
	watcher.call("PUBLISH", "a", "x")
	subscriber.want("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n")
	watcher.call("RPUSH", "nothing", "x")
	blocked.want("*2\r\n$7\r\nnothing\r\n$1\r\nx\r\n")
	if n.session(sessions["monitor"].id) == nil {
		t.Error("the monitor was closed")
	}
}

// A client that does not read its replies is idle, one that reads slowly is not.
func TestTimeoutOfClientsThatDoNotRead(t *testing.T) {
	n := start(t, func(c *Config) { byHand(c); c.IdleTimeout = 10 * time.Second })
	n.dial(t).call("SET", "big", strings.Repeat("x", 8<<20))
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte(calls("GET big", "GET big", "GET big"))); err != nil {
		t.Fatal(err)
	}
	s := n.sessionOf(&client{t: t, local: c.LocalAddr().String()})
	eventually(t, "the session waits for its client", func() bool {
		return s.state.Load() == waitsForOutput
	})
	for last := s.beats.Load() + 1; last != s.beats.Load(); {
		last = s.beats.Load()
		for range 1000 {
			n.all()
		}
	}
	now := time.Now()
	n.checkIdle(s, now)
	took := make([]byte, 2<<20)
	for got := 0; got < len(took); {
		m, err := c.Read(took)
		if err != nil {
			t.Fatal(err)
		}
		got += m
	}
	eventually(t, "more was written", func() bool { return s.beats.Load() != s.attention.beats })
	n.checkIdle(s, now.Add(11*time.Second))
	if s.killed.Load() {
		t.Fatal("a client was closed that takes its replies")
	}
	// The socket may take a little more, at any time.
	later := now.Add(11 * time.Second)
	eventually(t, "the client is closed that does not take its replies", func() bool {
		later = later.Add(12 * time.Second)
		n.checkIdle(s, later)
		return s.killed.Load()
	})
	eventually(t, "it is gone", func() bool { return n.session(s.id) == nil })
}

// Spurious interrupts are harmless.
func TestSpuriousInterrupts(t *testing.T) {
	n := start(t, byHand)
	c := n.dial(t)
	s := n.number(t, c)
	for i := range 100 {
		s.interrupt()
		if got := c.call("ECHO", fmt.Sprint(i)); got != fmt.Sprintf("$%d\r\n%d\r\n",
			len(fmt.Sprint(i)), i) {
			t.Fatal(got)
		}
	}
	if !os.IsTimeout(errInterrupted) {
		t.Error("a wait for room that is interrupted is no timeout")
	}
}

// An idle connection holds no read buffer, and has one as long as a part of a request is in it.
func TestIdleClientsHoldNoBuffer(t *testing.T) {
	n := start(t, byHand)
	c := n.dial(t)
	c.call("PING")
	s := n.number(t, c)
	idle := func() bool {
		return s.state.Load() == waitsForInput &&
			s.memory.bytes() < int64(sessionBytes+minReadBuffer/2)
	}
	for range 2 {
		eventually(t, "the buffer is given back", idle)
		c.raw("*2\r\n$4\r\nECHO\r\n$5\r\nhe")
		eventually(t, "a part has come", func() bool {
			return s.state.Load() == waitsForInput && s.memory.bytes() > int64(minReadBuffer)
		})
		c.raw("llo\r\n")
		c.want("$5\r\nhello\r\n")
	}
}
