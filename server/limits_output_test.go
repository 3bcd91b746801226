// Tests of output limits, and of who is closed when delivery falls behind.

package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
)

// The flag changes the classes that it names.
func TestOutputBufferLimitsByFlag(t *testing.T) {
	n := start(t, func(c *Config) {
		var err error
		if c.OutputLimits, err = ParseOutputLimits("normal 1mb 512kb 10"); err != nil {
			t.Fatal(err)
		}
	})
	const want = "normal 1048576 524288 10 slave 268435456 67108864 60 " +
		"pubsub 33554432 8388608 60\r\n"
	got := n.dial(t).call("CONFIG", "GET", "client-output-buffer-limit")
	if !strings.HasSuffix(got, want) {
		t.Error(got)
	}
}

// The values and errors are Redis 7.0's.
func TestOutputBufferLimits(t *testing.T) {
	n := start(t, byHand)
	c := n.dial(t)
	const (
		wrongNumber = "Wrong number of arguments in buffer limit configuration."
		wrongClass  = "Invalid client class specified in buffer limit configuration."
		wrongValue  = "Error in hard, soft or soft_seconds setting in buffer limit configuration."
	)
	shown := "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60"
	for _, x := range []struct{ set, fails, shows string }{
		{set: "normal 1 2", fails: wrongNumber},
		{set: ""},
		{set: "master 0 0 0", fails: wrongClass},
		{set: "foo 1 1 1", fails: wrongClass},
		{set: "normal x 0 0", fails: wrongValue},
		{set: "normal 0 0 -1", fails: wrongValue},
		{set: "normal 0 0 1x", fails: wrongValue},
		{set: "normal -1 0 0", fails: wrongValue},
		{set: " pubsub  33554432 8388608 60 ", fails: wrongNumber},
		{set: "normal 1mb 512kb 10 pubsub 0 0 0",
			shows: "normal 1048576 524288 10 slave 268435456 67108864 60 pubsub 0 0 0"},
		{set: "REPLICA 1 2 3", shows: "normal 1048576 524288 10 slave 1 2 3 pubsub 0 0 0"},
		{set: "slave 1g 2g 3",
			shows: "normal 1048576 524288 10 slave 1000000000 2000000000 3 pubsub 0 0 0"},
		{set: "normal 0 0 0 normal 5000000 6 7",
			shows: "normal 5000000 6 7 slave 1000000000 2000000000 3 pubsub 0 0 0"},
	} {
		want := "+OK\r\n"
		if x.fails != "" {
			want = "-ERR CONFIG SET failed (possibly related to argument " +
				"'client-output-buffer-limit') - " + x.fails + "\r\n"
		}
		if got := c.call("CONFIG", "SET", "client-output-buffer-limit", x.set); got != want {
			t.Errorf("%q: %q", x.set, got)
		}
		if x.shows != "" {
			shown = x.shows
		}
		if got := c.call("CONFIG", "GET", "client-output-buffer-limit"); !strings.HasSuffix(got,
			"\r\n"+shown+"\r\n") {
			t.Errorf("%q: %q", x.set, got)
		}
	}
}

// A reply over the hard limit ends the connection, and so does exceeding the soft limit for too
// long.
func TestOutputBufferLimitsHold(t *testing.T) {
	n := start(t, byHand)
	c, big := n.dial(t), n.dial(t)
	c.call("SET", "k", strings.Repeat("x", 200_000))
	c.call("CONFIG", "SET", "client-output-buffer-limit", "normal 100kb 0 0")
	big.raw(calls("GET k"))
	big.ended()
	c.call("CONFIG", "SET", "client-output-buffer-limit", "normal 0 100kb 10 pubsub 0 50kb 20")
	reader, sub := n.stuckConn(t, calls("GET k")), n.stuckSubscriber(t, "c")
	c.call("PUBLISH", "c", strings.Repeat("x", 60_000))
	eventually(t, "both have something to take", func() bool {
		return sub.outputWaits() > 60_000 && reader.outputWaits() > 200_000
	})
	now := time.Now()
	for _, x := range []struct {
		after       time.Duration
		reader, sub bool
	}{{0, false, false}, {10 * time.Second, false, false}, {11 * time.Second, true, false},
		{20 * time.Second, true, false}, {21 * time.Second, true, true}} {
		for _, s := range []*session{reader, sub} {
			if !s.killed.Load() {
				n.checkIdle(s, now.Add(x.after))
			}
		}
		if reader.killed.Load() != x.reader || sub.killed.Load() != x.sub {
			t.Fatalf("after %v: %v, %v", x.after, reader.killed.Load(), sub.killed.Load())
		}
	}
	if got := c.call("PING"); got != "+PONG\r\n" {
		t.Error(got)
	}
}

// If patterns below the limit of one message make delivery fall behind, their owner is closed, and
// the others go on.
func TestOwnerOfCostlyPatternsIsClosed(t *testing.T) {
	n := start(t, byHand)
	n.pubsub.delivery.limit = 4 << 20
	owner, sub, pat, plain := n.dial(t), n.dial(t), n.dial(t), n.dial(t)
	words := []string{"PSUBSCRIBE"}
	for i := range 200 {
		words = append(words, fmt.Sprintf("a*%s%d", strings.Repeat("?a*", 20), i))
	}
	owner.raw(pipeline(words))
	for range words[1:] {
		owner.next()
	}
	channel := []byte(strings.Repeat("a", 1000))
	sub.call("SUBSCRIBE", string(channel))
	pat.call("PSUBSCRIBE", "a*")
	plain.call("SUBSCRIBE", "other")
	culprit := n.sessionOf(owner)
	sent := 0
	eventually(t, "the owner is closed", func() bool {
		for !culprit.killed.Load() && sent < 1_000_000 {
			n.pubsub.delivery.mu.Lock()
			room := n.pubsub.delivery.bytes < n.pubsub.delivery.limit*3/4
			n.pubsub.delivery.mu.Unlock()
			if !room {
				return false
			}
			n.Deliver([]commands.Event{{Channel: channel, Payload: []byte(fmt.Sprint(sent))}})
			sent++
		}
		return culprit.killed.Load()
	})
	last := fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(sent-1)), sent-1)
	for _, c := range []*client{sub, pat} {
		for !strings.HasSuffix(c.next(), last) {
		}
	}
	n.Deliver([]commands.Event{{Channel: []byte("other"), Payload: []byte("x")}})
	plain.want("*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n")
}
