// How long a cluster takes no writes after kill -9 of its leader.

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	kills = 20
	// of the time to the first acknowledged write through any survivor
	medianBound = 300 * time.Millisecond
	worstBound  = 2 * time.Second
)

// firstWrite returns the time from began to the first acknowledged write through any of the
// processes.
func firstWrite(t *testing.T, ps []*process, began time.Time) time.Duration {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	var first time.Duration
	var once sync.Once
	var wg sync.WaitGroup
	for _, p := range ps {
		wg.Go(func() {
			c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1,
				ReadTimeout: 20 * time.Second})
			defer c.Close()
			for ctx.Err() == nil {
				if c.Set(ctx, "killed:"+p.id, 1, 0).Err() == nil {
					once.Do(func() { first = time.Since(began); done() })
				}
			}
		})
	}
	wg.Wait()
	if first == 0 {
		t.Fatal("no survivor acknowledged a write within 20 s")
	}
	return first
}

// TestKilledLeaders kills the leader 20 times, with the default timeouts, in idle clusters and in
// one under writes.
func TestKilledLeaders(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	for _, of := range []struct{ nodes, writers int }{{3, 0}, {3, 4}, {5, 0}} {
		t.Run(fmt.Sprintf("%d nodes, %d writers a node", of.nodes, of.writers),
			func(t *testing.T) { killLeaders(t, of.nodes, of.writers) })
	}
}

func killLeaders(t *testing.T, nodes, writers int) {
	ps := startProcesses(t, nodes)
	w := startWriters(ps, writers)
	var took []time.Duration
	for range kills {
		lead, rest := leader(t, ps)
		if err := lead.client().Set(t.Context(), "k", 1, 0).Err(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lead.kill()
		took = append(took, firstWrite(t, rest, began))
		t.Logf("%s killed at %s: %v", lead.id, began.Format("15:04:05.000"), took[len(took)-1])
		lead.start()
		caughtUp(t, lead, rest[0].client())
	}
	if writers > 0 {
		w.finish(t, ps[0].client())
	}
	slices.Sort(took)
	median, worst := (took[kills/2-1]+took[kills/2])/2, took[kills-1]
	t.Logf("first write after the kill: median %v, worst %v of %d; load %s", median, worst, kills,
		loadAverage())
	if median > medianBound || worst > worstBound {
		t.Errorf("the median may be %v, the worst %v", medianBound, worstBound)
	}
}
