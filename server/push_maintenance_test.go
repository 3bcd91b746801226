package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const maintOn = "CLIENT MAINT_NOTIFICATIONS ON MOVING-ENDPOINT-TYPE "

// dialMover connects as a client that moves, with RESP3.
func dialMover(t *testing.T, n *node) *client {
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "SETINFO", "LIB-NAME", "node-redis")
	return c
}

// Clients that asked for it are told where to move, and waited for: until they are gone if they are
// in use, until they had the time to come back if they were given no address.
func TestMoveClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		plain, fast, slow := n.dial(t), dialMover(t, n), dialMover(t, n)
		if got := fast.call(strings.Fields(maintOn + "internal-ip")...); got != "+OK\r\n" {
			t.Fatalf("%q", got)
		}
		if got := slow.call(strings.Fields(maintOn + "none")...); got != "+OK\r\n" {
			t.Fatalf("%q", got)
		}
		moved := make(chan struct{})
		go func() { n.MoveClients(); close(moved) }()
		const moving = ">4\r\n$6\r\nMOVING\r\n"
		if got := fast.next(); !strings.HasPrefix(got, moving) ||
			!strings.HasSuffix(got, ":6\r\n$13\r\n10.0.0.2:7001\r\n") {
			t.Errorf("%q", got)
		}
		if got := slow.next(); !strings.HasPrefix(got, moving) ||
			!strings.HasSuffix(got, ":6\r\n_\r\n") {
			t.Errorf("%q", got)
		}
		late := dialMover(t, n)
		late.raw("CLIENT MAINT_NOTIFICATIONS ON\r\n")
		if got := late.next(); got != "+OK\r\n" {
			t.Errorf("%q", got)
		}
		if got := late.next(); !strings.HasPrefix(got, moving) {
			t.Errorf("%q", got)
		}
		named := n.dial(t)
		named.call("HELLO", "3")
		named.raw(calls("CLIENT MAINT_NOTIFICATIONS ON", "CLIENT SETINFO LIB-NAME node-redis(app)",
			"CLIENT SETINFO LIB-VER 6"))
		named.want("+OK\r\n", "+OK\r\n")
		if got := named.next(); got != "+OK\r\n" {
			t.Errorf("%q", got)
		}
		if got := named.next(); !strings.HasPrefix(got, moving) {
			t.Errorf("a client that names its library last: %q", got)
		}
		named.call("QUIT")
		if got := plain.call("PING"); got != "+PONG\r\n" {
			t.Errorf("a node that is about to stop answers %q", got)
		}
		select {
		case <-moved:
			t.Error("nobody was waited for")
		default:
		}
		fast.call("QUIT")
		late.call("CLIENT", "MAINT_NOTIFICATIONS", "OFF")
		slow.call("RESET")
		select {
		case <-moved:
		case <-time.After(movingWait - time.Second):
			t.Error("waited for clients that have left")
		}
	})
}

// A node that presents itself as standalone names no other.
func TestMoveFromAStandaloneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, func(c *Config) { c.PresentAs = PresentStandalone })
		c := dialMover(t, n)
		c.call(strings.Fields(maintOn + "internal-ip")...)
		moved := make(chan struct{})
		go func() { n.MoveClients(); close(moved) }()
		if got := c.next(); !strings.HasSuffix(got, ":6\r\n_\r\n") {
			t.Errorf("%q", got)
		}
		c.call("RESET")
		receive(t, "nobody is waited for", moved)
	})
}

// A client whose library is not known to move well is not told to, and not waited for. It is asked
// to be patient as others are.
func TestGoRedisStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		n.follow(t)
		for _, identity := range []string{"CLIENT SETINFO LIB-NAME go-redis(,go1.26)", "PING"} {
			c := n.dial(t)
			c.call("HELLO", "3")
			c.call(strings.Fields(maintOn + "internal-ip")...)
			c.call(strings.Fields(identity)...)
			began := time.Now()
			n.MoveClients()
			if took := time.Since(began); took > movingWait/2 {
				t.Errorf("%s: waited %v", identity, took)
			}
			n.lead("")
			if got := c.next(); !strings.HasPrefix(got, ">4\r\n$12\r\nFAILING_OVER\r\n") {
				t.Errorf("%s: %q", identity, got)
			}
			n.lead("n2")
			if got := c.next(); !strings.HasPrefix(got, ">3\r\n$11\r\nFAILED_OVER\r\n") {
				t.Errorf("%s: %q", identity, got)
			}
		}
	})
}

// Without clients that asked for it nobody waits, and without another node nobody is told.
func TestMoveNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		for _, bad := range []string{maintOn + "x", "CLIENT MAINT_NOTIFICATIONS x",
			"CLIENT MAINT_NOTIFICATIONS ON x", maintOn + "none",
			"CLIENT MAINT_NOTIFICATIONS OFF x"} {
			if got := c.call(strings.Fields(bad)...); !strings.HasPrefix(got, "-ERR ") {
				t.Errorf("%s: %q", bad, got) // the fourth for lack of RESP3
			}
		}
		n.fake.set(func() { n.fake.st.Members = n.fake.st.Members[:1] })
		c = dialMover(t, n)
		c.call(strings.Fields(maintOn + "internal-ip")...)
		began := time.Now()
		n.MoveClients()
		if took := time.Since(began); took > movingWait/2 {
			t.Errorf("waited %v", took)
		}
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestPatienceWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startSimulated(t, nil)
		c := n.dial(t)
		c.call("HELLO", "3")
		c.call(strings.Fields(maintOn + "internal-ip")...)
		n.follow(t)
		n.lead("")
		if got := c.next(); !strings.HasPrefix(got, ">4\r\n$12\r\nFAILING_OVER\r\n") ||
			!strings.HasSuffix(got, ":10\r\n*0\r\n") {
			t.Errorf("%q", got)
		}
		late := n.dial(t)
		late.call("HELLO", "3")
		if got := late.call(strings.Fields(maintOn + "internal-ip")...); got != "+OK\r\n" {
			t.Errorf("%q", got)
		}
		if got := late.next(); !strings.HasPrefix(got, ">4\r\n$12\r\nFAILING_OVER\r\n") {
			t.Errorf("a client that comes later: %q", got)
		}
		n.lead("n2")
		if got := c.next(); !strings.HasPrefix(got, ">3\r\n$11\r\nFAILED_OVER\r\n") {
			t.Errorf("%q", got)
		}
	})
}
