// Tests of when a node stands for election.

package cluster

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestNodeThatReplaysDoesNotStand stops the machine of a follower for longer than passing load
// explains, and closes the leader: the follower asks for no votes until it has caught up.
func TestNodeThatReplaysDoesNotStand(t *testing.T) {
	simulated(t, func(t *testing.T) {
		// no other leader on a busy machine
		c := newCluster(t, 3, func(cfg *Config) { cfg.HeartbeatTimeout = time.Second })
		lead, slow, other := c.leader(), c.followers()[0], c.followers()[1]
		c.write(lead, "first")
		c.converged()
		if !slow.fitToLead() {
			t.Fatal("a follower that has applied everything may not stand")
		}
		toy := c.toys[slow.cfg.ID]
		toy.apply.Lock()
		goOn := sync.OnceFunc(toy.apply.Unlock)
		t.Cleanup(goOn) // before the nodes are closed
		for i := range 2 * nearlyApplied {
			c.write(lead, fmt.Sprint("w", i))
		}
		eventually(t, "the follower knows that it is behind", func() bool {
			return slow.replays() && !slow.fitToLead()
		})
		c.close(lead.cfg.ID)
		eventually(t, "the other follower leads", func() bool { return other.Status().Ready })
		goOn()
		eventually(t, "the slow one has caught up", func() bool { return slow.fitToLead() })
		c.close(other.cfg.ID)
		c.reopen(lead.cfg.ID)
		c.ready(slow.cfg.ID)
		c.converged()
	})
}
