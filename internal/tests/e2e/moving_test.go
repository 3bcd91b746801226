// A client that knows one address, and is told to move before its node stops.

package e2e

import (
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/coordd/coordd/internal/tests/wait"
)

// TestClientsMoveBeforeARestart restarts every node in turn under a go-redis with maintenance
// notifications and without retries: no request fails. Without notifications some do.
func TestClientsMoveBeforeARestart(t *testing.T) {
	ps := startProcesses(t, 3)
	failed := func(mode maintnotifications.Mode) int64 {
		rdb := redis.NewClient(&redis.Options{Addr: ps[0].addr, MaxRetries: -1, PoolSize: 8,
			ReadTimeout: 10 * time.Second,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: mode,
				EndpointType: maintnotifications.EndpointTypeInternalIP}})
		defer rdb.Close()
		ctx, end := context.WithCancel(context.Background())
		defer end()
		var done, errors atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := rdb.Incr(context.Background(), "moving").Err(); err != nil {
						if errors.Add(1) < 10 {
							t.Logf("%s: %v", mode, err)
						}
						time.Sleep(10 * time.Millisecond)
					} else {
						done.Add(1)
					}
				}
			})
		}
		more := func() {
			t.Helper()
			before := done.Load()
			wait.For(t, 20*time.Second, "requests to go on", func() bool {
				return done.Load() > before+100 || errors.Load() > 100
			})
		}
		more()
		for i, p := range ps {
			p.stop()
			more()
			p.start()
			caughtUp(t, p, ps[(i+1)%3].client())
			if mode == maintnotifications.ModeDisabled {
				break
			}
		}
		end()
		wg.Wait()
		return errors.Load()
	}
	if n := failed(maintnotifications.ModeEnabled); n != 0 {
		t.Errorf("%d requests failed", n)
	}
	if failed(maintnotifications.ModeDisabled) == 0 {
		t.Error("no request failed without notifications: the test proves nothing")
	}
}

// TestNodeRedisMoves is TestClientsMoveBeforeARestart with node-redis.
func TestNodeRedisMoves(t *testing.T) {
	if i := slices.IndexFunc(needNode, lacks); i >= 0 {
		t.Skipf("SKIPPED: %s not found", needNode[i])
	}
	ps := startProcesses(t, 3)
	run := func(kind string) *seeker {
		s := newSeeker(kind, "", nil, nodeProgram(kind)...)
		s.begin(t, append(os.Environ(), "COORDD_ADDRS="+ps[0].addr), s.note)
		return s
	}
	more := func(s *seeker) {
		t.Helper()
		before := s.count()
		wait.For(t, seekerLimit, "writes to go on", func() bool { return s.count() > before+200 })
	}
	s := run("redis-moving")
	more(s)
	for i, p := range ps {
		p.stop()
		more(s)
		p.start()
		caughtUp(t, p, ps[(i+1)%3].client())
	}
	s.finish(t, ps[0])
	if len(s.errs) > 0 {
		t.Errorf("%d requests failed: %q", len(s.errs), s.errs[0])
	}

	s = run("redis-still")
	more(s)
	ps[0].stop()
	wait.For(t, seekerLimit, "a request to fail without notifications", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.errs) > 0
	})
	ps[0].start()
	ps[0].waitReady()
	s.finish(t, ps[0])
}
