package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/internal/observe"
	"github.com/coordd/coordd/internal/tests/wait"
)

// startNode starts a node in this process and returns its address and a client.
func startNode(t *testing.T) (string, *redis.Client) {
	t.Helper()
	cfg, err := parseConfig([]string{"--listen", "127.0.0.1:0", "--data-dir", t.TempDir()}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	var logs wait.Buffer
	n, err := node.Start(cfg.Config, node.Listeners{}, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return n.Addr(), c
}

// calling returns a function that runs coordd, and checks its exit code and words of its output.
func calling(t *testing.T, addr string) func(code int, words string, args ...string) string {
	return func(code int, words string, args ...string) string {
		t.Helper()
		var out, errs wait.Buffer
		got := run(t.Context(), append(args, "--node", addr), noEnv, &out, &errs)
		if all := out.String() + errs.String(); got != code || !strings.Contains(all, words) {
			t.Errorf("%v: exit %d:\n%s", args, got, all)
		}
		return out.String()
	}
}

func TestLocksCommand(t *testing.T) {
	addr, c := startNode(t)
	ctx := t.Context()
	call := calling(t, addr)
	wait.For(t, 10*time.Second, "LOCKS", func() bool {
		return c.Do(ctx, "LOCKS", "LIST").Err() == nil
	})
	for i, name := range []string{"a", "b\x1b[2J", "c"} {
		ttl := time.Duration(i+1) * time.Minute
		if err := c.SetNX(ctx, "lock:"+name, "me", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.Do(ctx, "RPUSH", "queue", 1, 2)
	call(0, `lock:b\u{1b}[2J  string  me`, "locks", "list")
	call(0, "queue  list  2", "locks", "list", "--group", "queues")
	call(0, "there are more", "locks", "list", "--limit", "2")
	call(1, "nobody holds x", "locks", "show", "x")
	call(2, "requires list, show, release or extend", "locks")
	call(2, "requires KEY", "locks", "show")
	call(2, "--token is required", "locks", "release", "lock:a")
	call(0, "releases or extends one", "locks", "--help")

	var e observe.Entry
	if err := json.Unmarshal([]byte(call(0, "", "locks", "show", "lock:a", "--json")),
		&e); err != nil || e.Owner != "me" || e.Kind != "string" || e.TTLMs > 60_000 {
		t.Fatalf("%+v %v", e, err)
	}
	call(1, "nothing was done", "locks", "release", "lock:a", "--token", "7")
	call(2, "no duration", "locks", "extend", "lock:a", "long", "--token", e.Token)
	call(0, "held by me, ends in 1h0m0s", "locks", "extend", "lock:a", "1h", "--token", e.Token)
	if ttl := c.PTTL(ctx, "lock:a").Val(); ttl < 50*time.Minute {
		t.Error(ttl)
	}
	call(0, "released lock:a, held by me", "locks", "release", "lock:a", "--token", e.Token)
	call(1, "nothing was done", "locks", "release", "lock:a", "--token", e.Token)
	call(0, "HELD BEFORE BY", "locks", "show", "lock:a")
	c.SetNX(ctx, "lock:c", "you", time.Minute)
	call(0, "WAITING", "locks", "show", "lock:c")
}

// Locks that several hold, with leases, and who is in their queue.
func TestLocksThatSeveralHold(t *testing.T) {
	addr, c := startNode(t)
	ctx := t.Context()
	call := calling(t, addr)
	var lease int64
	wait.For(t, 10*time.Second, "LEASE", func() bool {
		var err error
		lease, err = c.Do(ctx, "LEASE", "GRANT", 60_000).Int64()
		return err == nil
	})
	c.Do(ctx, "LOCK.ACQUIRE", "l", "a", "LEASE", lease, "SHARED")
	c.Do(ctx, "LOCK.ACQUIRE", "l", "b", "PX", 60_000, "SHARED")
	go c.Do(ctx, "LOCK.ACQUIRE", "l", "writer", "PX", 60_000, "WAIT", 60_000, "PRIORITY", 7)
	var l observe.Lock
	wait.For(t, 10*time.Second, "a queue", func() bool {
		l = observe.Lock{}
		err := json.Unmarshal([]byte(call(0, "", "locks", "show", "l", "--json")), &l)
		return err == nil && len(l.Queue) == 1
	})
	if len(l.Holds) != 2 || l.Lease != fmt.Sprint(lease) || l.Queue[0].Owner != "writer" ||
		l.Holds[1].Owner != "b" || l.TTLMs > 60_000 || l.TTLMs < 50_000 {
		t.Fatalf("%+v", l)
	}
	call(0, "writer        string  7", "locks", "show", "l")
	call(0, "HELD BY", "locks", "show", "l")
	call(0, "held by b, ends in 1h0m0s", "locks", "extend", "l", "1h", "--token", l.Holds[1].Token)
	call(0, fmt.Sprintf("held by a, ends in 1h0m0s: renewals of its lease %d do not prolong it "+
		"any more", lease), "locks", "extend", "l", "1h", "--token", l.Holds[0].Token)
	call(0, "released l, held by b", "locks", "release", "l", "--token", l.Holds[1].Token)
	call(0, "released l, held by a", "locks", "release", "l", "--token", l.Holds[0].Token)
	wait.For(t, 10*time.Second, "the next", func() bool {
		return c.Get(ctx, "l").Val() == "writer"
	})
}

// Not on a terminal, top prints one sample with rates.
func TestTop(t *testing.T) {
	addr, c := startNode(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.Incr(ctx, "n")
		}
	}()
	out := calling(t, addr)(0, "✓ Serving, as a single node", "top")
	stop()
	wait.Receive(t, 30*time.Second, "its end", done)
	for _, words := range []string{"n1      leader", "COMMAND", "INCR", "p99", "log entries"} {
		if !strings.Contains(out, words) {
			t.Errorf("no %q in\n%s", words, out)
		}
	}
	calling(t, "127.0.0.1:1")(1, "connection refused", "top")
}

// What top draws fits the terminal, and takes the place of what was there.
func TestDrawTop(t *testing.T) {
	var b wait.Buffer
	drawTop(&b, "title\n\n▲ something is wrong\nrow 1\nrow 2\nrow 3\n", 5, 5, true)
	want := screenHome + "title" + eraseLine + eraseLine + marks[observe.Warn].color + "▲ som" +
		"\x1b[0m" + eraseLine + "row 1" + eraseLine + eraseRest
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}
