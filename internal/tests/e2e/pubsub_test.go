// PUBSUB over the nodes of a cluster.

package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestPubsubCounts subscribes on each of three nodes. Every node counts all subscribers, and goes
// on to answer while another hangs, and after it is gone.
func TestPubsubCounts(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	for _, p := range ps {
		sub := p.client().Subscribe(ctx, "servers")
		defer sub.Close()
		if _, err := sub.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	count := func(p *process) int64 {
		n, err := p.client().PubSubNumSub(ctx, "servers").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n["servers"]
	}
	for _, p := range ps {
		wait.For(t, 5*time.Second, "all subscribers on "+p.id, func() bool { return count(p) == 3 })
	}
	_, rest := leader(t, ps)
	hung, asked := rest[0], rest[1]
	hung.signal(syscall.SIGSTOP)
	if n := count(asked); n != 2 { // or it fails: the client waits for 3 s
		t.Errorf("%d subscribers while a node hangs", n)
	}
	hung.signal(syscall.SIGCONT)
	wait.For(t, 5*time.Second, "all again", func() bool { return count(asked) == 3 })
	hung.kill()
	wait.For(t, 5*time.Second, "those of the others", func() bool { return count(asked) == 2 })
}
