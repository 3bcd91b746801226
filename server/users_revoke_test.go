package server

// Who may not receive any more what it does, after a change of users or as another user.

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/detector"
)

// A change of users ends no session of others, nor one of the changed user that may receive what it
// does.
func TestRevocationConcernsChangedUsers(t *testing.T) {
	n := start(t, nil)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all", "&ch")
	c := n.dial(t)
	c.call("HELLO", "3")
	c.call("SUBSCRIBE", "ch")
	const message = ">3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$1\r\nm\r\n"
	n.dial(t).call("PUBLISH", "ch", "m")
	c.want(message) // so the node has dealt with the change of bob
	if got := c.call("AUTH", "bob", "any"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	n.fake.setUser(t, "carol", "on")
	n.fake.setUser(t, "bob", "-get")
	n.dial(t).call("PUBLISH", "ch", "m")
	c.want(message)
	n.fake.setUser(t, "bob", "resetchannels")
	c.ended()
}

// What a connection receives as one user it does not receive as another who may not: it ends, and
// says why. Who may, goes on, as in Redis.
func TestFormerUser(t *testing.T) {
	n := start(t, nil)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all", "~*", "&*")
	for _, x := range []struct{ receives, needs string }{
		{"SUBSCRIBE ch", "&ch"}, {"PSUBSCRIBE c*", "&c*"}, {"SSUBSCRIBE ch", "&ch"},
		{"MONITOR", "+monitor"}, {"CLIENT TRACKING ON", "+client|tracking"},
		{"CLIENT TRACKING ON BCAST", "+client|tracking"},
	} {
		n.fake.setUser(t, "few", "reset", "on", "nopass", "+@all", "-monitor", "-client|tracking",
			"&other")
		n.fake.setUser(t, "enough", "reset", "on", "nopass", "+ping", x.needs)
		for _, as := range [][]string{{"AUTH", "enough", "any"}, {"AUTH", "few", "any"},
			{"HELLO", "3", "AUTH", "few", "any"}} {
			c := n.dial(t)
			c.call("HELLO", "3", "AUTH", "bob", "any")
			c.call(strings.Fields(x.receives)...)
			c.raw(pipeline(as))
			got := c.next()
			for strings.Contains(got, " [0 ") { // a line of MONITOR
				got = c.next()
			}
			if as[1] == "enough" {
				if got != "+OK\r\n" {
					t.Errorf("%s, as enough: %q", x.receives, got)
				}
				n.fake.setUser(t, "enough", "nocommands", "resetchannels")
			} else if got != "-"+string(errFormer)+"\r\n" {
				t.Errorf("%s, %q: %q", x.receives, as, got)
			}
			eventually(t, "the connection ends", func() bool {
				ready, open := c.Ready(waitLimit)
				if ready && open {
					_, err := c.Receive()
					open = err == nil
				}
				return !open
			})
		}
	}
	if list := n.dial(t).call("CLIENT", "LIST"); strings.Contains(list, "user=few") {
		t.Error(list)
	}
}

// What a connection receives is judged once it has another user, as work that takes a turn and is
// bounded: a subscriber that becomes another user with each request holds up nobody.
func TestFormerUserTakesATurn(t *testing.T) {
	detector.Skip(t) // it works much
	n := start(t, nil)
	hard := "*" + strings.Repeat("[ab]", 255) + "c"
	n.fake.setUser(t, "bob", "on", "nopass", "+@all", "&*")
	n.fake.setUser(t, "easy", "on", "nopass", "+@all", "&a*")
	n.fake.setUser(t, "slow", "on", "nopass", "+@all", "&"+hard, "&a*")
	turns := func() (n1 int) {
		n.fake.set(func() { n1, n.fake.scheduled = len(n.fake.scheduled), nil })
		return n1
	}
	for _, x := range []struct {
		from, to, want string
		turns          int
	}{
		{"bob", "bob", "+OK\r\n", 0}, {"bob", "easy", "+OK\r\n", 1},
		{"slow", "slow", "+OK\r\n", 0}, {"bob", "slow", "-" + string(errFormer) + "\r\n", 1},
	} {
		c := n.dial(t)
		c.call("HELLO", "3", "AUTH", x.from, "any")
		for i := range 700 {
			c.call("SUBSCRIBE", strings.Repeat("a", 4000)+fmt.Sprint(i))
		}
		turns()
		if got := c.call("AUTH", x.to, "any"); got != x.want || turns() != x.turns {
			t.Errorf("%s becomes %s: %q", x.from, x.to, got)
		}
	}
}

// A change of a user whose subscriptions take long to judge ends them instead: messages wait for
// it. Those of others, and of the same user with a cheap change, go on.
func TestRevocationIsBounded(t *testing.T) {
	detector.Skip(t) // it works much
	var log bytes.Buffer
	n := start(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	hard := "*" + strings.Repeat("[ab]", 255) + "c"
	n.fake.setUser(t, "bob", "on", "nopass", "+@all", "&*")
	n.fake.setUser(t, "carol", "on", "nopass", "+@all", "&*")
	as := func(user string, channels int) *client {
		c := n.dial(t)
		c.call("HELLO", "3", "AUTH", user, "any")
		for i := range channels {
			c.call("SUBSCRIBE", strings.Repeat("a", 4000)+fmt.Sprint(i))
		}
		return c
	}
	carol, one, bobs := as("carol", 700), as("bob", 1), []*client{}
	for range 3 {
		bobs = append(bobs, as("bob", 700))
	}
	n.fake.setUser(t, "bob", "resetchannels", "&a*")
	for _, c := range append(bobs, one) {
		if got := c.call("PING"); got != "+PONG\r\n" {
			t.Fatal(got)
		}
	}
	n.fake.setUser(t, "carol", "resetchannels", "&a*")
	n.fake.setUser(t, "bob", "resetchannels", "&"+hard, "&a*")
	for _, c := range bobs {
		c.ended()
	}
	if got := carol.call("PING"); got != "+PONG\r\n" {
		t.Fatal(got)
	}
	n.Close()
	if got := strings.Count(log.String(), whyWork); got < len(bobs)-1 {
		t.Errorf("%d sessions ended for their work:\n%s", got, log.String())
	}
}

// Who was protected from eviction as a user who may ask for that is so no more as one who may not.
func TestFormerUserWithoutEviction(t *testing.T) {
	n := start(t, nil)
	n.fake.setUser(t, "bob", "on", "nopass", "+@all")
	n.fake.setUser(t, "few", "on", "nopass", "+ping")
	c := n.dial(t)
	c.call("CLIENT", "NO-EVICT", "ON")
	for name, kept := range map[string]bool{"bob": true, "few": false} {
		c.call("RESET")
		c.call("CLIENT", "NO-EVICT", "ON")
		c.call("AUTH", name, "any")
		if got := n.sessionOf(c).noEvict.Load(); got != kept {
			t.Errorf("%s: protected %v", name, got)
		}
	}
}

// A subscriber that may not receive any more is gone once the change is acknowledged.
func TestRevokedAreGone(t *testing.T) {
	n := start(t, nil)
	admin := n.dial(t)
	for range 20 {
		admin.call("ACL", "SETUSER", "bob", "on", "nopass", "+@all", "allchannels")
		c := n.dial(t)
		c.call("AUTH", "bob", "any")
		c.call("SUBSCRIBE", "ch")
		if got := admin.call("ACL", "SETUSER", "bob", "resetchannels"); got != "+OK\r\n" {
			t.Fatal(got)
		}
		if list := admin.call("CLIENT", "LIST"); strings.Contains(list, "user=bob") {
			t.Fatal(list)
		}
		c.ended()
	}
}
