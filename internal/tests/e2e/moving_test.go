// A client that knows one address, and is told to move before its node stops.

package e2e

import (
	"context"
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
