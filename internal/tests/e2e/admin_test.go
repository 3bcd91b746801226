// The commands that control a node, on real processes.

package e2e

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestFailoverAndShutdown transfers leadership to a named node and then to any other, and stops the
// nodes one after another, while a client of all nodes writes.
func TestFailoverAndShutdown(t *testing.T) {
	tier.Check(t)
	ctx := context.Background()
	ps := startProcesses(t, 3)
	first, others := leader(t, ps)
	if err := others[0].client().Do(ctx, "FAILOVER").Err(); err == nil ||
		!strings.Contains(err.Error(), "replica") {
		t.Errorf("FAILOVER on a follower: %v", err)
	}
	host, port, _ := net.SplitHostPort(others[1].addr)
	if err := first.client().Do(ctx, "FAILOVER", "TO", host, "1").Err(); err == nil {
		t.Error("FAILOVER accepts an address of no node")
	}
	if err := first.client().Do(ctx, "FAILOVER", "TO", host, port, "TIMEOUT",
		5000).Err(); err != nil {
		t.Fatalf("FAILOVER TO: %v", err)
	}
	wait.For(t, 10*time.Second, "the named node leads", func() bool {
		return others[1].role() == "master"
	})
	wait.For(t, 10*time.Second, "FAILOVER", func() bool {
		return others[1].client().Do(ctx, "FAILOVER").Err() == nil
	})
	wait.For(t, 10*time.Second, "another node leads", func() bool {
		return others[1].role() == "slave"
	})

	now, rest := leader(t, ps)
	wait.For(t, 10*time.Second, "a write", func() bool {
		return rest[0].client().Set(ctx, "before", "x", 0).Err() == nil
	})
	if err := now.client().Do(ctx, "SHUTDOWN", "NOSAVE").Err(); err == nil {
		t.Error("SHUTDOWN returned a reply")
	}
	select {
	case <-now.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the node did not stop")
	}
	if code := now.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it exited with %d", code)
	}
	wait.For(t, 10*time.Second, "the others serve", func() bool {
		return rest[1].client().Get(ctx, "before").Val() == "x"
	})
	now.start()
	now.waitReady()
	if got := now.client().Get(ctx, "before").Val(); got != "x" {
		t.Errorf("after the stop: %q", got)
	}
}

// TestSnapshotCommands makes a node write snapshots and report them.
func TestSnapshotCommands(t *testing.T) {
	ctx := context.Background()
	begun := time.Now().Unix()
	p := startProcesses(t, 1)[0]
	c := p.client()
	before := time.Now().Unix()
	if got, err := c.LastSave(ctx).Result(); err != nil || got < begun ||
		got > time.Now().Unix() {
		t.Errorf("LASTSAVE at first: %d, %v, the test began at %d", got, err, begun)
	}
	c.Set(ctx, "a", "1", 0)
	if err := c.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if got := c.LastSave(ctx).Val(); got < before || got > time.Now().Unix() {
		t.Errorf("LASTSAVE: %d", got)
	}
	c.Set(ctx, "b", "1", 0)
	if err := c.BgSave(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	wait.For(t, 10*time.Second, "two snapshots", func() bool {
		return strings.Contains(c.Info(ctx, "persistence").Val(), "rdb_saves:2\r\n")
	})
	p.kill()
	p.start()
	p.waitReady()
	if got := c.MGet(ctx, "a", "b").Val(); got[0] != "1" || got[1] != "1" {
		t.Errorf("after a restart: %v", got)
	}
}

// TestMonitorShowsScriptsOfItsNode monitors the leader and a follower: each shows the calls of its
// own clients' scripts, once.
func TestMonitorShowsScriptsOfItsNode(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	_, others := leader(t, ps)
	p := others[0]
	m, err := commandtest.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got, err := m.Do(commandtest.Args("MONITOR")); string(got) != "+OK\r\n" {
		t.Fatalf("%q, %v", got, err)
	}
	script := "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
	call := func(q *process, key string) {
		c := q.client()
		defer c.Close() // its calls are shown although it has gone
		got, err := c.Eval(ctx, script, []string{key}, q.id).Result()
		if got != q.id || err != nil {
			t.Fatal(got, err)
		}
	}
	for _, q := range ps {
		call(q, "k")
	}
	// A follower shows calls when it applies them, which may be after the reply: the calls of a
	// last script are behind those of all others.
	call(p, "end")
	shown := ""
	for !strings.Contains(shown, ` lua] "GET" "end"`) {
		line, err := m.Receive()
		if err != nil {
			t.Fatalf("%v after\n%s", err, shown)
		}
		shown += string(line)
	}
	if strings.Count(shown, " lua] ") != 4 ||
		!strings.Contains(shown, ` lua] "SET" "k" "`+p.id+`"`) {
		t.Errorf("got\n%s", shown)
	}
}
