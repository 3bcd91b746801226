package server

import (
	"net"
	"os"
	"testing"
	"time"
)

// A change of the addresses ends the connections of those that may not connect any more.
func TestAllowFromChanges(t *testing.T) {
	n := start(t, func(c *Config) { c.Unprotected = true })
	admin, far := n.dial(t), n.listenFrom(t, "192.0.2.7")
	c := dialAt(t, far)
	if got := c.call("PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	if got := admin.call("CONFIG", "SET", "coordd-allow-from", "192.0.2.0/24"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	if got := c.call("PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	want := "-ERR CONFIG SET failed (possibly related to argument 'coordd-allow-from') - " +
		"\"192.0.2.1/24\" has more bits than its length: the network is 192.0.2.0/24\r\n"
	if got := admin.call("CONFIG", "SET", "coordd-allow-from", "192.0.2.1/24"); got != want {
		t.Error(got)
	}
	if got := admin.call("CONFIG", "SET", "coordd-allow-from", "fd00::/8"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	c.ended()
	if got := admin.call("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
}

// browserConn is the page's connection for a browser on another machine.
type browserConn struct{ net.Conn }

func (browserConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7)} }

// So it does for the page's sessions, whose gate is that of the HTTP port.
func TestHTTPAllowFromChanges(t *testing.T) {
	n := start(t, func(c *Config) { c.Unprotected = true })
	admin := n.dial(t)
	for _, option := range []string{"coordd-http-allow-from", "coordd-allow-from"} {
		ours, theirs := net.Pipe()
		n.accept(browserConn{theirs}, n.httpGate)
		c := newClient(t, ours, nil)
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
		if got := admin.call("CONFIG", "SET", option, "fd00::/8"); got != "+OK\r\n" {
			t.Fatal(got)
		}
		_ = ours.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Receive(); err == nil || os.IsTimeout(err) {
			t.Errorf("%s: it goes on: %v", option, err)
		}
		if got := admin.call("CONFIG", "SET", option, ""); got != "+OK\r\n" {
			t.Fatal(got)
		}
	}
}
