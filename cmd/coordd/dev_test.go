package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestDev starts the throwaway cluster as a user does, follows what it prints, and looks that it
// leaves nothing behind.
func TestDev(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, errs wait.Buffer
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"dev", "--port", "0"}, noEnv, &out, &errs) }()
	wait.For(t, 20*time.Second, "the line to try", func() bool {
		return strings.Contains(out.String(), "Ctrl-C")
	})

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
	if code := exitCode(t, done); code != 0 {
		t.Errorf("exit %d: %s", code, errs.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("it left %v behind", left)
	}
}

// TestDevNodesStop stops the nodes of a throwaway cluster one after the other, each on its own.
func TestDevNodesStop(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, errs wait.Buffer
	done := make(chan int, 1)
	go func() { done <- run(ctx, []string{"dev", "--port", "0"}, noEnv, &out, &errs) }()
	wait.For(t, 20*time.Second, "the line to try", func() bool {
		return strings.Contains(out.String(), "Ctrl-C")
	})
	for _, found := range regexp.MustCompile(`redis://(\S+)`).FindAllStringSubmatch(out.String(),
		-1) {
		addr := found[1]
		c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		wait.For(t, 10*time.Second, "SHUTDOWN of "+addr, func() bool {
			_ = c.Do(ctx, "SHUTDOWN").Err()
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
		_ = c.Close()
	}
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("it ended with %d: %s", code, errs.String())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on without a node")
	}
}
