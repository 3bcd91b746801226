// Tests of keyspace notifications that depend on time, or that a scenario cannot express.

package server

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// tick advances the clock and applies an empty entry, as a leader does when a deadline passes.
func (n *node) tick(t *testing.T, ms int64) {
	t.Helper()
	n.fake.set(func() {
		n.fake.clockMs += ms
		if _, err := n.fake.apply(); err != nil {
			t.Error(err)
		}
	})
}

func messageFrame(channel, payload string) string {
	var f commands.RESP
	f.Array(4)
	for _, s := range []string{"pmessage", "*", channel, payload} {
		f.BulkString(s)
	}
	return string(f.Buf)
}

func TestExpiryIsNotified(t *testing.T) {
	n := start(t, nil)
	main, s := n.dial(t), n.dial(t)
	main.call("CONFIG", "SET", "notify-keyspace-events", "KEx")
	s.call("PSUBSCRIBE", "*")
	main.call("SET", "k", "v", "PX", "10")
	main.call("SELECT", "3")
	main.call("SET", "other", "v", "PX", "20")
	n.tick(t, 11)
	s.want(messageFrame("__keyspace@0__:k", "expired"), messageFrame("__keyevent@0__:expired", "k"))
	n.tick(t, 10)
	s.want(messageFrame("__keyspace@3__:other", "expired"),
		messageFrame("__keyevent@3__:expired", "other"))
	main.call("CONFIG", "SET", "notify-keyspace-events", "KEgh")
	main.call("HSET", "h", "f", "v", "g", "w")
	s.want(messageFrame("__keyspace@3__:h", "hset"), messageFrame("__keyevent@3__:hset", "h"))
	main.call("HPEXPIRE", "h", "10", "FIELDS", "1", "f")
	s.want(messageFrame("__keyspace@3__:h", "hexpire"), messageFrame("__keyevent@3__:hexpire", "h"))
	main.call("HPEXPIRE", "h", "20", "FIELDS", "1", "g")
	s.want(messageFrame("__keyspace@3__:h", "hexpire"), messageFrame("__keyevent@3__:hexpire", "h"))
	n.tick(t, 11)
	s.want(messageFrame("__keyspace@3__:h", "hexpired"),
		messageFrame("__keyevent@3__:hexpired", "h"))
	n.tick(t, 10)
	s.want(messageFrame("__keyspace@3__:h", "hexpired"),
		messageFrame("__keyevent@3__:hexpired", "h"),
		messageFrame("__keyspace@3__:h", "del"), messageFrame("__keyevent@3__:del", "h"))
}

// A client receives invalidations of expired keys, whoever wrote them.
func TestExpiryInvalidates(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON", "NOLOOP")
	c.call("SET", "k", "v", "PX", "10")
	c.call("GET", "k")
	n.tick(t, 11)
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n")
	c.call("HSET", "h", "f", "v")
	c.call("HPEXPIRE", "h", "10", "FIELDS", "1", "f")
	c.call("HGET", "h", "f")
	n.tick(t, 11)
	c.want(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nh\r\n")
}

// A snapshot that replaced the state may hide changes of any key.
func TestReplacedStateInvalidates(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("CLIENT", "TRACKING", "ON")
	c.call("GET", "k")
	n.Deliver([]commands.Event{{Kind: commands.StateReplaced}})
	c.want(">2\r\n$10\r\ninvalidate\r\n_\r\n")
}

// Without a leader nothing is set on any node, and CONFIG SET says why.
func TestNotifyNeedsALeader(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	n.fake.set(func() {
		n.fake.fail = &Error{NoLeader, "CLUSTERDOWN the command did not run: no leader"}
	})
	if got := c.call("CONFIG", "SET", "notify-keyspace-events", "KEA", "timeout",
		"7"); !strings.Contains(got, "CLUSTERDOWN") || got[0] != '-' {
		t.Errorf("CONFIG SET without a leader: %q", got)
	}
	n.fake.set(func() { n.fake.fail = nil })
	if got := c.call("CONFIG", "GET", "notify-keyspace-events", "timeout"); strings.Contains(got,
		"A") || strings.Contains(got, "\r\n7\r\n") {
		t.Errorf("it was set: %q", got)
	}
}
