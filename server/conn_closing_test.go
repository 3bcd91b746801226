// Tests of closing a server: what it accepts, what it answers, and where it ends connections.

package server

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/ports"
)

// closeBehind starts Close and returns when it has notified the sessions. The returned function
// waits for the end of Close.
func (n *node) closeBehind(t testing.TB) (wait func()) {
	t.Helper()
	closed := make(chan struct{})
	go func() { n.Close(); close(closed) }()
	eventually(t, "the server closes", n.closing.Load)
	return func() { t.Helper(); receive(t, "the end of Close", closed) }
}

// Retire rejects new connections, not existing ones.
func TestRetire(t *testing.T) {
	n := start(t, nil)
	old, fresh := n.dial(t), n.dial(t)
	old.call("PING")
	n.Retire()
	n.Retire()
	if got := fresh.call("SET", "a", "1"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	eventually(t, "connections are refused", func() bool {
		c, err := net.Dial("tcp", n.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	w := httptest.NewRecorder()
	if n.HealthHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz",
		nil)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("/readyz answers %d", w.Code)
	}
	if got := old.call("GET", "a"); got != "$1\r\n1\r\n" {
		t.Fatal(got)
	}
}

// Requests that arrived before Close are all answered, even unread ones.
func TestCloseAnswersWhatCame(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	begun, gate := make(chan struct{}), make(chan struct{})
	n.fake.set(func() { n.fake.begun, n.fake.gate = begun, gate })
	c.raw(calls("INCR a"))
	receive(t, "the request runs", begun)
	c.raw(calls("INCR a", "PING", "INCR a"))
	wait := n.closeBehind(t)
	n.fake.set(func() { n.fake.begun, n.fake.gate = nil, nil })
	close(gate)
	c.want(":1\r\n", ":2\r\n", "+PONG\r\n", ":3\r\n")
	c.ended()
	wait()
}

// idling is a connection that runs a function before its first read, or before its deadline is
// first cleared.
type idling struct {
	*net.TCPConn
	beforeRead, beforeClear func()
	read, clear             sync.Once
}

func (c *idling) Read(b []byte) (int, error) {
	c.read.Do(c.beforeRead)
	return c.TCPConn.Read(b)
}

func (c *idling) SetReadDeadline(at time.Time) error {
	if at.IsZero() {
		c.clear.Do(c.beforeClear)
	}
	return c.TCPConn.SetReadDeadline(at)
}

// A session about to wait for its client when the server closes does not wait, even without an
// idle timeout.
func TestCloseIsNotMissed(t *testing.T) {
	t.Run("before the first read", func(t *testing.T) {
		testCloseIsNotMissed(t, func(_ *node, c *idling, end func()) {
			c.beforeRead, c.beforeClear = end, func() {}
		})
	})
	t.Run("before a deadline is taken away", func(t *testing.T) {
		testCloseIsNotMissed(t, func(n *node, c *idling, end func()) {
			// an interrupt for the session
			c.beforeRead = func() { _ = c.TCPConn.SetReadDeadline(past) }
			c.beforeClear = end
		})
	})
}

func testCloseIsNotMissed(t *testing.T, prepare func(*node, *idling, func())) {
	n := start(t, func(c *Config) {
		c.IdleTimeout, c.DrainTimeout = 10*time.Minute, 10*time.Minute
	})
	ln := ports.Listen(t)
	defer func() { _ = ln.Close() }()
	theirs, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = theirs.Close() }()
	ours, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	conn := &idling{TCPConn: ours.(*net.TCPConn)}
	prepare(n, conn, func() {
		go func() { n.Close(); close(closed) }()
		eventually(t, "the server closes", n.closing.Load)
		n.all() // Close has notified the sessions when it releases this
	})
	n.accept(conn, n.httpGate)
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		_ = theirs.Close() // ends the session
		t.Fatal("Close waits for a client that is idle")
	}
}

// A client may finish what it has begun on its connection.
func TestCloseLetsClientsEnd(t *testing.T) {
	for _, x := range []struct {
		name, before string
		replies      []string
		after        string
		ends         []string
	}{
		{"transaction", calls("MULTI", "INCR a"), []string{"+OK\r\n", "+QUEUED\r\n"}, calls("EXEC"),
			[]string{"*1\r\n:1\r\n"}},
		{"watched keys", calls("WATCH a"), []string{"+OK\r\n"}, calls("MULTI", "INCR a", "EXEC"),
			[]string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n:1\r\n"}},
		{"half a request", "*2\r\n$4\r\nINCR\r\n$", nil, "1\r\na\r\n", []string{":1\r\n"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := start(t, nil)
			c := n.dial(t)
			c.call("PING") // creates the session
			c.raw(x.before)
			c.want(x.replies...)
			wait := n.closeBehind(t)
			c.raw(x.after)
			c.want(x.ends...)
			c.ended()
			wait()
		})
	}
}

// A client that does not finish is waited for less long than one with requests in flight, and
// nothing of it runs.
func TestCloseWaitsNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.DrainTimeout = time.Hour })
		c := n.dial(t)
		c.raw(calls("MULTI", "INCR a"))
		c.want("+OK\r\n", "+QUEUED\r\n")
		wait := n.closeBehind(t)
		c.ended()
		wait()
		if got := n.fake.takeCalls(); got != "" {
			t.Errorf("the backend was asked: %s", got)
		}
	})
}

// A request that is never answered delays Close by DrainTimeout, no more and no less.
func TestCloseIsBounded(t *testing.T) {
	hanging := func(limit time.Duration) (*node, *client) {
		n := start(t, func(c *Config) { c.DrainTimeout = limit })
		c := n.dial(t)
		begun := make(chan struct{})
		n.fake.set(func() { n.fake.begun, n.fake.gate = begun, make(chan struct{}) })
		c.raw(calls("SET a 1"))
		receive(t, "the request runs", begun)
		return n, c
	}
	patient, waits := hanging(time.Hour)
	var over atomic.Bool
	wait := patient.closeBehind(t)
	go func() { wait(); over.Store(true) }()
	n, c := hanging(20 * time.Millisecond)
	n.Close()
	c.ended()
	if over.Load() {
		t.Error("who may wait for an hour was closed before who may wait for 20 ms")
	}
	patient.fake.set(func() { close(patient.fake.gate); patient.fake.gate = nil })
	waits.want("+OK\r\n")
	waits.ended()
	eventually(t, "what is answered ends Close", over.Load)
}

// Blocked clients and subscribers see the connection end, and nothing before.
func TestCloseEndsWhoWaits(t *testing.T) {
	n := start(t, nil)
	waiter, subscriber := n.popping(t, "BLPOP", "l", "0"), n.dial(t)
	subscriber.call("SUBSCRIBE", "a")
	n.Close()
	waiter.ended()
	subscriber.ended()
	n.idle(t)
}

// A session that is being cut off sends nothing more, however far that has got.
func TestCutSessionsSendNothing(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("PING")
	n.sessionOf(c).cut.Store(true)
	if err := c.Send(commandtest.Args("PING")); err != nil {
		t.Fatal(err)
	}
	c.ended()
}
