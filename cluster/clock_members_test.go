// Tests of the time of day that follows the wall clocks of the members.

package cluster

import (
	"fmt"
	"testing"
	"time"
)

// offset returns how far the time of day is ahead of the cluster clock.
func (c *testCluster) offset() time.Duration {
	c.t.Helper()
	var ms int64
	if _, err := fmt.Sscan(c.read(c.leader(), "wall"), &ms); err != nil {
		c.t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// restartTwo restarts n1 and n2 of three nodes, with wall clocks that are ahead by as much.
func (c *testCluster) restartTwo(n1, n2 time.Duration) {
	c.t.Helper()
	c.write(c.leader(), "w")
	c.closeAll()
	c.clock("n1").shiftWall(n1)
	c.clock("n2").shiftWall(n2)
	c.reopen("n1")
	c.reopen("n2")
	c.leader()
}

// TestLateJumpKeepsLeases: of three nodes two have restarted, and a lease runs, when the wall clock
// of the third shows that one of them is an hour behind. TIME jumps, the lease ends when it would.
func TestLateJumpKeepsLeases(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.restartTwo(2*time.Hour, time.Hour)
		c.clock("n3").shiftWall(2 * time.Hour)
		const ttl = 5 * time.Second
		before, began := c.offset(), time.Now()
		c.write(c.leader(), fmt.Sprintf("ttl:%d", ttl.Milliseconds()))
		c.reopen("n3")
		eventually(t, "the time of day jumps", func() bool {
			return c.offset()-before > 50*time.Minute
		})
		toy := c.toys[c.leader().cfg.ID]
		held := func() bool { toy.mu.Lock(); defer toy.mu.Unlock(); return len(toy.Expired) == 0 }
		if !held() || time.Since(began) >= ttl {
			t.Fatalf("the time of day jumped %v after the lease began", time.Since(began))
		}
		eventually(t, "the lease ends", func() bool { return !held() })
		if took := time.Since(began); took < ttl || took > ttl+2*time.Second {
			t.Errorf("a lease of %v ended after %v", ttl, took)
		}
	})
}
