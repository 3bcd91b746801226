// Tests of the time of day as clients see it: windows that scripts count by TIME, and absolute
// times.

package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/wait"
)

// slidingWindow is the limiter of Redis's tutorial, to the microsecond: TIME names a call's member.
const slidingWindow = `local t = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, t[1] * 1000000 + t[2] - ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', KEYS[1], t[1] * 1000000 + t[2], t[1] .. '.' .. t[2])
return 1`

// TestWindowByScriptCountsEveryCall: of 400 calls against a limit of 100 a window by script lets
// 100 through, as on redis-server, however they come.
func TestWindowByScriptCountsEveryCall(t *testing.T) {
	const calls, limit = 400, 100
	ctx := t.Context()
	_, _, clients := startThree(t)
	servers := map[string][]*redis.Client{"coordd": clients}
	if socket := commandtest.StartRedis(t); socket != "" {
		c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, PoolSize: 60})
		t.Cleanup(func() { _ = c.Close() })
		servers["redis-server"] = []*redis.Client{c}
	}
	ask := func(c redis.Cmdable, key string) *redis.Cmd {
		return c.Eval(ctx, slidingWindow, []string{key}, int64(time.Hour/time.Microsecond), limit)
	}
	together := func(parallel int) func(string, []*redis.Client) (int64, error) {
		return func(key string, clients []*redis.Client) (int64, error) {
			var admitted atomic.Int64
			var failed atomic.Pointer[error]
			var wg sync.WaitGroup
			for k := range parallel {
				wg.Go(func() {
					for range calls / parallel {
						n, err := ask(clients[k%len(clients)], key).Int64()
						if err != nil {
							failed.Store(&err)
						}
						admitted.Add(n)
					}
				})
			}
			wg.Wait()
			if err := failed.Load(); err != nil {
				return 0, *err
			}
			return admitted.Load(), nil
		}
	}
	count := func(cmds []redis.Cmder, err error) (admitted int64, _ error) {
		for _, c := range cmds {
			if c, ok := c.(*redis.Cmd); ok && err == nil {
				n, _ := c.Int64()
				admitted += n
			}
		}
		return admitted, err
	}
	all := func(key string) func(redis.Pipeliner) error {
		return func(p redis.Pipeliner) error {
			for range calls {
				ask(p, key)
			}
			return nil
		}
	}
	ways := map[string]func(string, []*redis.Client) (int64, error){
		"10 clients": together(10),
		"50 clients": together(50),
		"a pipeline": func(key string, c []*redis.Client) (int64, error) {
			return count(c[0].Pipelined(ctx, all(key)))
		},
		"a MULTI": func(key string, c []*redis.Client) (int64, error) {
			return count(c[len(c)-1].TxPipelined(ctx, all(key)))
		},
	}
	for server, clients := range servers {
		for way, run := range ways {
			if got, err := run("window:"+way, clients); err != nil || got != limit {
				t.Errorf("%s, %s: %d calls of %d were let through, the limit is %d; %v", server,
					way, got, calls, limit, err)
			}
		}
	}
	two, err := clients[0].Eval(ctx,
		`local a, b = redis.call('TIME'), redis.call('TIME') return a[1] == b[1] and a[2] == b[2] and 1 or 0`, nil).Int()
	if err != nil || two != 1 {
		t.Errorf("within a script time does not stand still: %v", err)
	}
}

// admission is a call that a window let through.
type admission struct{ asked, heard time.Time }

// TestWindowByScriptIsTrue: while wall clocks jump by a minute and leadership goes from node to
// node, a window by script lets no more through in any span of its length than its limit.
func TestWindowByScriptIsTrue(t *testing.T) {
	const window, limit = 100 * time.Millisecond, 5
	nodes, clocks, clients := startThree(t)
	var mu sync.Mutex
	var let []admission
	var calls atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a := admission{asked: time.Now()}
				n, err := c.Eval(context.Background(), slidingWindow, []string{"w"},
					window.Microseconds(), limit).Int()
				a.heard = time.Now()
				if calls.Add(1); err == nil && n == 1 {
					mu.Lock()
					let = append(let, a)
					mu.Unlock()
				}
			}
		})
	}
	admitted := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(let)
	}
	for i, d := range []time.Duration{time.Minute, -time.Minute, -time.Minute, time.Minute,
		2 * time.Minute, -3 * time.Minute} {
		had := admitted()
		wait.For(t, 20*time.Second, "windows to be filled", func() bool {
			return admitted() >= had+2*limit
		})
		for k, n := range nodes {
			if n.cluster.Status().Role == membership.Leader {
				clocks[k].jump(d)
				if i%2 == 1 {
					_ = n.cluster.TransferLeadership("")
				}
				break
			}
		}
	}
	close(stop)
	wg.Wait()
	slices.SortFunc(let, func(a, b admission) int { return a.asked.Compare(b.asked) })
	for i := range len(let) - limit {
		some := let[i : i+limit+1]
		last := slices.MaxFunc(some, func(a, b admission) int { return a.heard.Compare(b.heard) })
		if span := last.heard.Sub(some[0].asked); span < window {
			t.Fatalf("%d calls were let through within %v, the limit is %d in %v", limit+1, span,
				limit, window)
		}
	}
	t.Logf("%d of %d calls were let through", len(let), calls.Load())
}

// TestWindowByScriptOpensAgain: a window that is full lets a call through once it is over, also
// where nobody else writes: the calls that it turns away are served as reads.
func TestWindowByScriptOpensAgain(t *testing.T) {
	_, _, clients := startThree(t)
	for _, c := range clients {
		let := func() bool {
			n, err := c.Eval(t.Context(), slidingWindow, []string{"w"},
				(100 * time.Millisecond).Microseconds(), 1).Int()
			if err != nil {
				t.Fatal(err)
			}
			return n == 1
		}
		for range 3 {
			// in which it is asked less than 1000 times
			wait.For(t, 4*time.Second, "the window to open", let)
		}
	}
}

// TestAbsoluteTimesComeBack: as long as no wall clock jumps, a key that is to expire at a time
// shows that time, by whichever node and leader, in reads of the log's state, behind a write, and
// in a node's own state.
func TestAbsoluteTimesComeBack(t *testing.T) {
	ctx := t.Context()
	nodes, _, clients := startThree(t)
	for round := range 3 {
		for i := range 30 {
			c := clients[i%len(clients)]
			key := fmt.Sprintf("k%d.%d", round, i)
			untilMs := time.Now().Add(time.Hour).UnixMilli() + int64(i)
			var reads []*redis.Cmd
			cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Do(ctx, "SET", key, "v", "PXAT", untilMs)
				p.Do(ctx, "HSET", "h:"+key, "f", "v")
				p.Do(ctx, "HPEXPIREAT", "h:"+key, untilMs, "FIELDS", 1, "f")
				reads = append(reads, p.Do(ctx, "PEXPIRETIME", key))
				return nil
			})
			if err != nil {
				t.Fatal(err, cmds)
			}
			for range 5 {
				for _, c := range clients {
					reads = append(reads, c.Do(ctx, "PEXPIRETIME", key))
				}
			}
			for _, r := range reads {
				if got, err := r.Int64(); err != nil || got != untilMs {
					t.Fatalf("%v: %d, want %d; %v", r.Args(), got, untilMs, err)
				}
			}
			if got, err := c.HPExpireTime(ctx, "h:"+key, "f").Result(); err != nil ||
				got[0] != untilMs {
				t.Fatalf("HPEXPIRETIME: %v, want %d; %v", got, untilMs, err)
			}
		}
		for _, n := range nodes {
			if n.cluster.Status().Role == membership.Leader {
				wait.For(t, 20*time.Second, "another leader", func() bool {
					return n.cluster.TransferLeadership("") == nil
				})
				break
			}
		}
	}
	last := fmt.Sprintf("k%d.%d", 2, 29)
	want := clients[0].Do(ctx, "PEXPIRETIME", last).Val()
	for _, c := range clients {
		conn := c.Conn()
		if err := conn.Do(ctx, "READONLY").Err(); err != nil {
			t.Fatal(err)
		}
		var got any
		wait.For(t, 20*time.Second, "the node has the newest key", func() bool {
			got = conn.Do(ctx, "PEXPIRETIME", last).Val()
			return got != int64(-2)
		})
		if got != want {
			t.Errorf("by its own state a node shows %v, want %v", got, want)
		}
		_ = conn.Close()
	}
}

// TestWallClockJump moves the wall clock of one node after the other by an hour, the leader's among
// them, forwards and back: neither a lock's TTL nor TIME notices.
func TestWallClockJump(t *testing.T) {
	ctx := t.Context()
	_, clocks, clients := startThree(t)
	c := clients[1]
	const ttl = time.Minute
	start := time.Now()
	if ok, err := c.SetNX(ctx, "lock", "me", ttl).Result(); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, d := range []time.Duration{time.Hour, -2 * time.Hour} {
		for i, clock := range clocks {
			clock.jump(d)
			if ok, err := c.SetNX(ctx, "lock", "thief", ttl).Result(); err != nil || ok {
				t.Fatalf("after node %d's wall clock moved by %v the lock was given away: %v %v", i,
					d, ok, err)
			}
			left, err := c.PTTL(ctx, "lock").Result()
			if spent := time.Since(start); err != nil || left < ttl-spent-time.Second ||
				left > ttl {
				t.Fatalf("after node %d's wall clock moved by %v and %v spent, %v are left, %v", i,
					d, spent, left, err)
			}
		}
	}
	// TIME goes on with the cluster clock.
	if now := c.Time(ctx).Val(); time.Since(now).Abs() > time.Second {
		t.Errorf("TIME is %v, %v ago: it followed a wall clock", now, time.Since(now))
	}
}
