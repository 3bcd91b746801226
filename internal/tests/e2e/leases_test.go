// Leases that end with connections, on three nodes of which some end.

package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestLeasesOfConnections: a lease ends soon after its connection, whether that is closed, its node
// killed, started again or hung, and not before. A change of leader frees nothing, and a connection
// to another node takes a lease over.
func TestLeasesOfConnections(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	led, rest := leader(t, ps)
	const graceMs = 3000
	keys := 0
	connect := func(p *process) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, PoolSize: 1})
		t.Cleanup(func() { _ = c.Close() }) // it must live as long as the test
		return c
	}
	grant := func(p *process) (c *redis.Client, id int64, key string) {
		t.Helper()
		c = connect(p)
		id, err := c.Do(ctx, "LEASE", "GRANT", 600_000, "CONNECTION", "GRACE", graceMs).Int64()
		if err != nil {
			t.Fatal(err)
		}
		keys++
		key = fmt.Sprint("k", keys)
		if err := c.Do(ctx, "SET", key, "v", "LEASE", id).Err(); err != nil {
			t.Fatal(err)
		}
		return c, id, key
	}
	left := func(p *process, key string) time.Duration {
		for {
			ttl, err := p.client().PTTL(ctx, key).Result()
			if err == nil {
				return ttl
			}
		}
	}
	shortened := func(p *process, key, why string) {
		t.Helper()
		wait.For(t, 10*time.Second, why, func() bool {
			ttl := left(p, key)
			return ttl <= graceMs*time.Millisecond
		})
		wait.For(t, 10*time.Second, why+" ends", func() bool { return left(p, key) < 0 })
	}
	whole := func(p *process, key string) bool { return left(p, key) > time.Minute }

	closed, _, key := grant(rest[0])
	_ = closed.Close()
	shortened(led, key, "that of a connection that is closed")

	_, _, ofLeader := grant(led)
	_, _, taken := grant(rest[0])
	_, _, stays := grant(rest[1])
	led.kill()
	var now *process
	wait.For(t, 20*time.Second, "a new leader", func() bool {
		for _, p := range rest {
			if p.client().Set(ctx, "new", "leader", 0).Err() == nil {
				now = p
				return true
			}
		}
		return false
	})
	if !whole(now, taken) || !whole(now, stays) {
		t.Error("a change of leader shortens leases")
	}
	shortened(now, ofLeader, "that of a node that was killed")
	if !whole(now, taken) || !whole(now, stays) {
		t.Error("a new leader shortens leases of nodes that it reaches")
	}
	led.start()
	led.waitReady()

	_, others := leader(t, ps)
	hung := others[0]
	_, id, taken := grant(hung)
	_, hungID, ofHung := grant(hung)
	asked := others[1]
	hung.signal(syscall.SIGSTOP)
	wait.For(t, 10*time.Second, "that of a node that hangs", func() bool {
		return !whole(asked, taken) && !whole(asked, ofHung)
	})
	took := connect(asked)
	if got, err := took.Do(ctx, "LEASE", "KEEPALIVE", id).Int64Slice(); err != nil || got[0] == 0 {
		t.Errorf("another connection renews it: %v, %v", got, err)
	}
	hung.signal(syscall.SIGCONT)
	wait.For(t, 10*time.Second, "it comes back", func() bool { return whole(asked, ofHung) })
	if !whole(asked, taken) {
		t.Error("what was taken over is shortened")
	}
	_ = took.Close()
	shortened(asked, taken, "that of the other connection")
	if got, err := asked.client().Do(ctx, "LEASE", "KEEPALIVE", hungID).Int64Slice(); err != nil ||
		got[0] != 600_000 {
		t.Errorf("a lease of the node that hung: %v, %v", got, err)
	}
	hung.kill()
	hung.start()
	hung.waitReady()
}

// TestPausedLeaderEndsNoLease: a leader that was paused, and does not know yet that another leads,
// has heard of nobody. That ends no lease.
func TestPausedLeaderEndsNoLease(t *testing.T) {
	ctx := context.Background()
	ps := startProcesses(t, 3)
	grant := func(p *process) (c *redis.Client, id int64) {
		t.Helper()
		c = redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, PoolSize: 1})
		t.Cleanup(func() { _ = c.Close() }) // it must live as long as the test
		id, err := c.Do(ctx, "LEASE", "GRANT", 600_000, "CONNECTION", "GRACE", 0).Int64()
		if err != nil {
			t.Fatal(err)
		}
		return c, id
	}
	clients := map[*process]*redis.Client{}
	for _, p := range ps {
		clients[p] = p.client()
	}
	ended := func(p *process, id int64) bool {
		return errorWord(clients[p].Do(ctx, "LEASE", "INFO", id).Err()) == "NOLEASE"
	}
	for range 3 {
		paused, rest := leader(t, ps)
		_, ofPaused := grant(paused)
		var ids []int64
		for _, p := range rest {
			_, id := grant(p)
			ids = append(ids, id)
		}
		paused.signal(syscall.SIGSTOP)
		wait.For(t, 20*time.Second, "a new leader ends that of the paused one", func() bool {
			return ended(rest[0], ofPaused)
		})
		paused.signal(syscall.SIGCONT)
		wait.For(t, 20*time.Second, "the former leader follows", func() bool {
			return paused.role() == "slave" && clients[paused].Set(ctx, "k", "v", 0).Err() == nil
		})
		for i, id := range ids {
			if ended(rest[i], id) {
				t.Errorf("the lease of a connection to %s, which is there, has ended", rest[i].id)
			}
		}
	}
}
