package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/cluster"
)

// syncBuffer is a buffer that one goroutine writes and another reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestDev starts the throwaway cluster as a user does, follows what it prints, and looks that it leaves nothing behind.
func TestDev(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, errs syncBuffer
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"dev", "--port", "0"}, noEnv, &out, &errs) }()
	waitFor(t, 20*time.Second, "the line to try", func() bool { return strings.Contains(out.String(), "Ctrl-C") })

	addrs := regexp.MustCompile(`redis://(\S+)`).FindAllStringSubmatch(out.String(), -1)
	if len(addrs) != devNodes || !strings.Contains(out.String(), "redis-cli -p ") {
		t.Fatalf("it printed %q", out.String())
	}
	for i, a := range addrs {
		c := redis.NewClient(&redis.Options{Addr: a[1], MaxRetries: -1})
		ok, err := c.SetNX(ctx, "lock:1", a[1], 30*time.Second).Result()
		if err != nil || ok != (i == 0) {
			t.Errorf("SET NX on %s: %v %v", a[1], ok, err)
		}
		_ = c.Close()
	}
	if dirs, _ := filepath.Glob(filepath.Join(tmp, "coordd-dev-*", "n*", "*")); len(dirs) == 0 {
		t.Error("the cluster keeps no files")
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("it left %v behind", left)
	}
}

// skewedClock is the system's clock with a wall clock that can jump.
type skewedClock struct {
	cluster.Clock
	mu   sync.Mutex
	skew time.Duration
}

func (c *skewedClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Clock.Wall().Add(c.skew)
}

func (c *skewedClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew += d
}

// TestWallClockJump moves the wall clock of one node after the other by an hour, the leader's among them, forwards and back:
// neither a lock's remaining life nor TIME notices.
func TestWallClockJump(t *testing.T) {
	var clocks []*skewedClock
	nodes, err := startDevNodes(0, t.TempDir(), io.Discard, func(c *config) {
		clock := &skewedClock{Clock: cluster.SystemClock{}}
		clocks = append(clocks, clock)
		c.clock = clock
	})
	t.Cleanup(func() {
		for _, n := range nodes {
			_ = n.close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if err := nodes[0].waitReady(ctx); err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: nodes[1].addr(), MaxRetries: -1})
	defer c.Close()
	const life = time.Minute
	start := time.Now()
	if ok, err := c.SetNX(ctx, "lock", "me", life).Result(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, d := range []time.Duration{time.Hour, -2 * time.Hour} {
		for i, clock := range clocks {
			clock.jump(d)
			if ok, err := c.SetNX(ctx, "lock", "thief", life).Result(); err != nil || ok {
				t.Fatalf("after node %d's wall clock moved by %v the lock was given away: %v %v", i, d, ok, err)
			}
			left, err := c.PTTL(ctx, "lock").Result()
			if spent := time.Since(start); err != nil || left < life-spent-time.Second || left > life {
				t.Fatalf("after node %d's wall clock moved by %v and %v spent, %v are left, %v", i, d, spent, left, err)
			}
		}
	}
	// TIME goes on with the cluster clock.
	if now := c.Time(ctx).Val(); time.Since(now).Abs() > time.Second {
		t.Errorf("TIME is %v, %v ago: it followed a wall clock", now, time.Since(now))
	}
}
