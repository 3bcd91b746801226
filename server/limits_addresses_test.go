package server

import "testing"

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
