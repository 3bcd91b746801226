// Nodes are stopped by SIGTERM and restarted under load, one after another, and what clients
// notice.

package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/wait"
)

// visitor is one client of the load: go-redis with its default retries, which dials any available
// node, as behind a load balancer. It takes its own lock, increments a shared counter, and releases
// the lock. All of that can be checked: nobody else takes the lock, so it is refused only if the
// client's own request ran twice.
type visitor struct {
	load    *visitors
	number  int
	rdb     *redis.Client
	lock    string
	counter string
}

// visitors are the load and what it has seen.
type visitors struct {
	addrs []string
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	added [counters]atomic.Int64 // acknowledged INCRs
	acked atomic.Int64           // requests

	mu      sync.Mutex
	failed  []error
	last    time.Time     // of the newest acknowledgement
	gap     time.Duration // the longest between two
	longest time.Duration // of one request
	// requests that took more than half of stallBound, the first of them, for the log
	slow []string
}

const (
	visitorCount = 50
	counters     = 7
	stallBound   = 300 * time.Millisecond // the longest that clients may notice of a restart
)

func startVisitors(t *testing.T, ps []*process) *visitors {
	t.Helper()
	v := &visitors{last: time.Now()}
	v.ctx, v.stop = context.WithCancel(context.Background())
	for _, p := range ps {
		v.addrs = append(v.addrs, p.addr)
	}
	for i := range visitorCount {
		c := &visitor{load: v, number: i, lock: fmt.Sprintf("lock:%d", i),
			counter: fmt.Sprintf("counter:%d", i%counters)}
		var next atomic.Int64
		next.Store(int64(i))
		c.rdb = redis.NewClient(&redis.Options{
			Addr: "any", PoolSize: 1,
			Dialer: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
				d := net.Dialer{Timeout: 5 * time.Second}
				for range v.addrs {
					addr := v.addrs[int(next.Add(1))%len(v.addrs)]
					if conn, err = d.DialContext(ctx, "tcp", addr); err == nil {
						return conn, nil
					}
				}
				return nil, err
			},
		})
		v.wg.Go(func() {
			defer c.rdb.Close()
			for v.ctx.Err() == nil && c.visit() {
			}
		})
	}
	t.Cleanup(func() { v.stop(); v.wg.Wait() })
	return v
}

var release = redis.NewScript(releaseScript)

// visit is one round; false ends the client, after a failure.
func (c *visitor) visit() bool {
	ctx := context.Background()
	return c.step("SET NX PX", func() (any, error) {
		return c.rdb.SetNX(ctx, c.lock, c.number, time.Minute).Result()
	}, true) &&
		c.step("INCR", func() (any, error) {
			_, err := c.rdb.Incr(ctx, c.counter).Result()
			if err == nil {
				c.load.added[c.number%counters].Add(1)
			}
			return nil, err
		}, nil) &&
		c.step("release", func() (any, error) {
			return release.Run(ctx, c.rdb, []string{c.lock}, c.number).Result()
		}, int64(1))
}

// step is one request, which must return want.
func (c *visitor) step(name string, run func() (any, error), want any) bool {
	began := time.Now()
	got, err := run()
	if err == nil && got != want {
		err = fmt.Errorf("got %v, want %v", got, want)
	}
	v, now := c.load, time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	at, took := began.Format("15:04:05.000"), now.Sub(began)
	if err != nil {
		v.failed = append(v.failed, fmt.Errorf("client %d, %s from %s for %v: %w", c.number, name,
			at, took, err))
		return false
	}
	v.acked.Add(1)
	if took > stallBound/2 && len(v.slow) < 10 {
		v.slow = append(v.slow, fmt.Sprintf("client %d: %s from %s for %v", c.number, name, at,
			took))
	}
	v.gap, v.last, v.longest = max(v.gap, now.Sub(v.last)), now, max(v.longest, took)
	return true
}

// stalls returns the longest gap and the longest request since the last call.
func (v *visitors) stalls() (gap, longest time.Duration, slow []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	gap, longest, slow = v.gap, v.longest, v.slow
	v.gap, v.longest, v.slow = 0, 0, nil
	return gap, longest, slow
}

// finish ends the load and checks that no request failed and each ran once.
func (v *visitors) finish(t *testing.T, c *redis.Client) {
	t.Helper()
	v.stop()
	v.wg.Wait()
	for _, err := range v.failed {
		t.Errorf("a request failed: %v", err)
	}
	for i := range counters {
		if n, err := c.Get(context.Background(),
			fmt.Sprintf("counter:%d", i)).Int64(); err != nil || n != v.added[i].Load() {
			t.Errorf("counter %d is %d (%v), after %d acknowledged increments", i, n, err,
				v.added[i].Load())
		}
	}
	if v.acked.Load() == 0 {
		t.Fatal("nothing was acknowledged: the test proves nothing")
	}
}

// caughtUp waits until a node serves and the leader reports that it is almost up to date.
func caughtUp(t *testing.T, p *process, asked *redis.Client) {
	t.Helper()
	p.waitReady()
	upToDate(t, p.id, asked)
}

// upToDate waits until the leader reports that a node is almost up to date.
func upToDate(t *testing.T, id string, asked *redis.Client) {
	t.Helper()
	wait.For(t, 20*time.Second, id+" to catch up", func() bool {
		members, err := asked.Do(context.Background(), "RAFT", "MEMBERS").Slice()
		if err != nil {
			return false
		}
		for _, m := range members {
			fields, _ := m.(map[any]any)
			if fields["id"] == id {
				behind, ok := fields["entries-behind"].(int64)
				return ok && behind >= 0 && behind < 100
			}
		}
		return false
	})
}

// rollOver restarts every node once, and returns the longest stalls.
func rollOver(t *testing.T, ps []*process, v *visitors) (gap, longest time.Duration) {
	t.Helper()
	for i, p := range ps {
		role, began := p.role(), time.Now()
		p.stop()
		stopped := time.Since(began)
		p.start()
		caughtUp(t, p, ps[(i+1)%len(ps)].client())
		back := time.Since(began)
		had := v.acked.Load()
		wait.For(t, 20*time.Second, "load on all nodes", func() bool {
			return v.acked.Load() > had+1000
		})
		g, l, slow := v.stalls()
		t.Logf("%s (%s) at %s: stopped after %v, caught up after %v; longest gap %v, longest "+
			"request %v %s",
			p.id, role, began.Format("15:04:05.000"), stopped, back, g, l, strings.Join(slow, "\n"))
		gap, longest = max(gap, g), max(longest, l)
	}
	return gap, longest
}

// TestRollingRestart restarts three nodes under the load of 50 clients: no request fails, and each
// runs once. The longest stall depends on the load of the machine, so TestRollingRestartStalls
// asserts it, which make chaos runs. With two of three nodes up, a leader steps down if one of them
// does not answer for 3/4 of the heartbeat timeout, and requests in flight become UNKNOWN. On a
// machine that runs other tests a process may be delayed for so long. A leadership transfer needs
// no timeout, so the timeout is longer here.
func TestRollingRestart(t *testing.T) { rollRounds(t, 1, "--heartbeat-timeout", "2s") }

// TestRollingRestartStalls restarts every node three times; no client may notice for longer than
// stallBound.
func TestRollingRestartStalls(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	if gap, longest := rollRounds(t, 3); max(gap, longest) > stallBound {
		t.Errorf("the longest time without a reply was %v, the longest request %v: at most %v", gap,
			longest, stallBound)
	}
}

func rollRounds(t *testing.T, rounds int, flags ...string) (gap, longest time.Duration) {
	ps := startProcesses(t, 3, flags...)
	v := startVisitors(t, ps)
	for range rounds {
		had := v.acked.Load()
		wait.For(t, 20*time.Second, "load", func() bool { return v.acked.Load() > had+2000 })
		g, l, _ := v.stalls()
		t.Logf("nobody stops: longest gap %v, longest request %v", g, l)
		g, l = rollOver(t, ps, v)
		gap, longest = max(gap, g), max(longest, l)
	}
	v.finish(t, ps[0].client())
	t.Logf("%d restarts: %d requests, none failed: %v; longest gap %v, longest request %v; load %s",
		rounds*len(ps), v.acked.Load(), !t.Failed(), gap, longest, loadAverage())
	return gap, longest
}

// loadAverage returns how busy the machine is, for figures that depend on it.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}
