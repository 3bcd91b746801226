// The subscribers of all nodes of a cluster, as each of them counts.

package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestPubsubCounts subscribes on each of three nodes. Every node counts all subscribers as soon as
// their subscriptions are confirmed, in scripts too, while a node hangs, and after it is gone or
// was started again.
func TestPubsubCounts(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	subscribe := func(p *process) {
		t.Helper()
		sub := p.client().Subscribe(ctx, "servers")
		t.Cleanup(func() { _ = sub.Close() })
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
	for i, p := range ps {
		subscribe(p)
		for _, asked := range ps {
			if n := count(asked); n != int64(i+1) {
				t.Errorf("%s counts %d of %d", asked.id, n, i+1)
			}
			n, err := asked.client().Eval(ctx, "return redis.call('publish', 'servers', 'x')",
				nil).Int()
			if err != nil || n != i+1 {
				t.Errorf("a script on %s publishes to %d of %d: %v", asked.id, n, i+1, err)
			}
		}
	}
	_, rest := leader(t, ps)
	hung, asked := rest[0], rest[1]
	hung.signal(syscall.SIGSTOP)
	wait.For(t, 10*time.Second, "those of the others", func() bool { return count(asked) == 2 })
	hung.signal(syscall.SIGCONT)
	wait.For(t, 10*time.Second, "all again", func() bool { return count(asked) == 3 })
	hung.kill()
	hung.start()
	hung.waitReady()
	wait.For(t, 10*time.Second, "none of before", func() bool { return count(asked) == 2 })
	subscribe(hung)
	if n := count(asked); n != 3 {
		t.Errorf("%d subscribers, with one on a node that was started again", n)
	}
}

// TestSubscribersThroughFailovers has clients subscribe and leave on all nodes, each to a channel
// of its own and to one of all, while leaders are killed. What a client knows of its own channel,
// all nodes must count: 1 from the confirmation on, 0 from that of its end. Once a leader was
// killed, soon after it: a node that reached no leader for 2 s has confirmed what does not count
// yet, and a leader that has not heard of a node for 1 s has dropped its counts.
func TestSubscribersThroughFailovers(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ps := startProcesses(t, 3)
	workers, kills := 20, 2
	if tier.Checking() {
		workers, kills = 200, 6
	}
	var checked, broken, late atomic.Int64
	var killed atomic.Bool
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				// A node that was killed may count for a second.
				own := fmt.Sprint("own", i, ".", n)
				countsOwn(ctx, t, ps[n%3], ps[(n/3)%3], own, &checked, &broken, &late, &killed)
			}
		})
	}
	more := func(what string) {
		before := checked.Load()
		wait.For(t, time.Minute, what, func() bool {
			return checked.Load() > before+int64(5*workers)
		})
	}
	for range kills {
		more("counts before a failover")
		led, _ := leader(t, ps)
		killed.Store(true)
		led.kill()
		more("counts without a node")
		led.start()
		led.waitReady()
	}
	cancel()
	wg.Wait()
	t.Logf("%d counts compared, %d connections broken, %d counts late", checked.Load(),
		broken.Load(), late.Load())
	wait.For(t, 20*time.Second, "nobody is left", func() bool {
		all, err := ps[0].client().PubSubChannels(context.Background(), "*").Result()
		return err == nil && len(all) == 0
	})
}

// countsOwn subscribes on one node, and compares what another one counts. After any error the
// client knows nothing, and ends.
func countsOwn(ctx context.Context, t *testing.T, on, asked *process, own string,
	checked, broken, late *atomic.Int64, killed *atomic.Bool) {
	sub := redis.NewClient(&redis.Options{Addr: on.addr, MaxRetries: -1,
		DialTimeout: time.Second, DialerRetries: 1})
	ask := redis.NewClient(&redis.Options{Addr: asked.addr, MaxRetries: -1,
		DialTimeout: time.Second, DialerRetries: 1})
	defer func() { _, _ = sub.Close(), ask.Close() }()
	ps := sub.Subscribe(ctx)
	defer ps.Close()
	compare := func(want int64) bool {
		n, err := ask.PubSubNumSub(ctx, own, "all").Result()
		if err == nil && n[own] != want && killed.Load() {
			late.Add(1)
			for until := time.Now().Add(10 * time.Second); err == nil && n[own] != want &&
				time.Now().Before(until); time.Sleep(time.Millisecond) {
				n, err = ask.PubSubNumSub(ctx, own, "all").Result()
			}
		}
		if err != nil {
			broken.Add(1)
			return false
		}
		// the connection is there still: its node did not end, nor was it cut off
		if ps.Ping(ctx) != nil {
			broken.Add(1)
			return false
		}
		if _, err := ps.ReceiveTimeout(ctx, 2*time.Second); err != nil {
			broken.Add(1)
			return false
		}
		if n[own] != want || n["all"] < want {
			t.Errorf("%s counts %d subscribers of %s on %s, want %d; %d of all", asked.id, n[own],
				own, on.id, want, n["all"])
		}
		checked.Add(1)
		return true
	}
	for _, change := range []struct {
		make func() error
		want int64
	}{
		{func() error { return ps.Subscribe(ctx, own, "all") }, 1},
		{func() error { return ps.Unsubscribe(ctx, own, "all") }, 0},
	} {
		if change.make() != nil {
			broken.Add(1)
			return
		}
		for range 2 {
			if _, err := ps.ReceiveTimeout(ctx, 5*time.Second); err != nil {
				broken.Add(1)
				return
			}
		}
		if !compare(change.want) {
			return
		}
	}
}
