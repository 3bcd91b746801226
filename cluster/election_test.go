// This file holds tests of when a node stands for election.
package cluster

import (
	"fmt"
	"testing"
)

// TestNodeThatReplaysDoesNotStand stops the machine of a follower that has more to apply than passing load explains, and loses the leader: the
// follower asks for no votes, and does once it has caught up.
func TestNodeThatReplaysDoesNotStand(t *testing.T) {
	c := newCluster(t, 3, nil)
	lead, slow := c.leader(), c.followers()[0]
	c.write(lead, "first")
	c.converged()
	if !slow.mayStand() {
		t.Fatal("a follower that has applied everything may not stand")
	}
	toy := c.toys[slow.cfg.ID]
	toy.mu.Lock()
	for i := range 2 * nearlyApplied {
		c.write(lead, fmt.Sprint("w", i))
	}
	eventually(t, "the follower knows that it is behind", func() bool { return slow.replays() && !slow.mayStand() })
	other := c.followers()[1]
	c.close(lead.cfg.ID)
	eventually(t, "the other follower leads", func() bool { return other.Status().Ready })
	toy.mu.Unlock()
	eventually(t, "the slow one has caught up", func() bool { return slow.mayStand() })
	c.close(other.cfg.ID)
	c.reopen(lead.cfg.ID)
	c.ready(slow.cfg.ID)
	c.converged()
}
