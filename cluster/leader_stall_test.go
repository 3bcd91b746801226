// Tests of leaders that make no progress, and of those that only seem so.

package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// slowMachine takes its time for each entry.
type slowMachine struct{ *toy }

func (s *slowMachine) Apply(l *raft.Log) any {
	time.Sleep(20 * time.Millisecond)
	return s.toy.Apply(l)
}

// TestLeaderWaitsForASlowFollower elects a leader whose only follower has much to catch up with
// before the first entry of the term is committed: it goes on leading, in that term.
func TestLeaderWaitsForASlowFollower(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, slow, other := c.leader(), c.followers()[0], c.followers()[1]
		c.converged()
		c.close(slow.cfg.ID)
		for i := range 700 {
			c.write(lead, fmt.Sprint(i))
		}
		c.close(other.cfg.ID)
		eventually(t, "the leader steps down", func() bool { return !lead.leadsRaft() })
		c.machine = func(y *toy) Machine { return &slowMachine{y} }
		c.reopen(slow.cfg.ID)
		eventually(t, "it leads Raft", lead.leadsRaft)
		term, began := lead.raft.CurrentTerm(), time.Now()
		for !lead.Status().Ready {
			if lead.stalledLeader.Load() || lead.raft.CurrentTerm() != term {
				t.Fatalf("it gave up after %v, when the follower had %d of %d entries",
					time.Since(began), c.nodes[slow.cfg.ID].raft.LastIndex(), lead.raft.LastIndex())
			}
			if time.Since(began) > 5*time.Minute {
				t.Fatal("it is not ready")
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}
