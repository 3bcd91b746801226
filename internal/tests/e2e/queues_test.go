// The queue for a lock over three real nodes: turns come in the order of arrival, and equally
// often.

package e2e

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// TestTurnsAreInOrderAndEqual: of many who queue on all nodes each gets the lock behind those who
// came before. Those who queue again and again get it equally often. (A queue of each node, or one
// that wakes whoever is the quickest, would not.)
func TestTurnsAreInOrderAndEqual(t *testing.T) {
	waiters := 60
	if tier.Checking() {
		waiters = 200
	}
	const rounds, least = 10, 0.99
	ctx := context.Background()
	ps := startProcesses(t, 3)
	main := ps[0].client()
	if err := main.Do(ctx, "LOCK.ACQUIRE", "l", "first", "PX", 600_000).Err(); err != nil {
		t.Fatal(err)
	}
	acquire := func(owner int) [][]byte {
		return commandtest.Args("LOCK.ACQUIRE", "l", strconv.Itoa(owner), "PX", "600000",
			"WAIT", "0")
	}
	clients := make([]*rawClient, waiters)
	for i := range clients {
		clients[i] = dialRaw(t, ps[i%3].addr)
		if err := clients[i].Send(acquire(i)); err != nil {
			t.Fatal(err)
		}
		wait.For(t, 20*time.Second, "it queues", func() bool {
			info, _ := main.Do(ctx, "LOCK.INFO", "l").Result()
			of, ok := info.(map[any]any)
			return ok && of["waiters"] == int64(i+1)
		})
	}
	var (
		handovers atomic.Int64
		turns     = make([]int64, waiters)
		place     = make([]int64, waiters) // of the first turn
		ended     sync.WaitGroup
	)
	for i, c := range clients {
		ended.Go(func() {
			for {
				reply, err := c.Receive()
				if err != nil || !strings.HasPrefix(string(reply), "*4\r\n:") ||
					strings.HasPrefix(string(reply), "*4\r\n:0\r\n") {
					t.Errorf("waiter %d: %q, %v", i, reply, err)
					return
				}
				if turns[i]++; turns[i] == 1 {
					place[i] = handovers.Load()
				}
				handovers.Add(1)
				release := commandtest.Args("LOCK.RELEASE", "l", strconv.Itoa(i))
				if got, err := c.Do(release); err != nil || string(got) != ":1\r\n" {
					t.Errorf("waiter %d releases: %q, %v", i, got, err)
					return
				}
				if handovers.Load() >= int64(waiters*rounds) {
					return // the next in the queue have one turn more
				}
				if err := c.Send(acquire(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if err := main.Do(ctx, "LOCK.RELEASE", "l", "first").Err(); err != nil {
		t.Fatal(err)
	}
	ended.Wait()
	for i := range place {
		if place[i] != int64(i) {
			t.Errorf("waiter %d had the lock as number %d", i, place[i])
		}
	}
	index := jain(turns)
	t.Logf("Jain's index of the turns of %d waiters: %.4f", waiters, index)
	if index < least {
		t.Errorf("turns are not equal: %d", turns)
	}
}
