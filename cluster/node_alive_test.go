// Tests of liveness: what the watchdog must see, and what it must not.

package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestWedgedNodeIsNotAlive stops Raft's main loop on an observer that takes nothing.
func TestWedgedNodeIsNotAlive(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		alive := func(n *Node, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			return n.CheckAlive(ctx)
		}
		for id, n := range c.nodes {
			if err := alive(n, 20*time.Second); err != nil {
				t.Error(id, err)
			}
		}
		n := c.followers()[0]
		stuck := make(chan raft.Observation)
		o := raft.NewObserver(stuck, true, func(o *raft.Observation) bool {
			_, votes := o.Data.(raft.RequestVoteRequest)
			_, state := o.Data.(raft.RaftState)
			return votes || state
		})
		n.raft.RegisterObserver(o)
		gone := c.leader().cfg.ID
		c.close(gone) // an election follows
		eventually(t, "the node does not answer", func() bool {
			return alive(n, 100*time.Millisecond) != nil
		})
		if err := alive(n, 100*time.Millisecond); err == nil {
			t.Error("it answers, while its loop stands")
		}
		// the others elect a leader, who stays that, however often he is asked whether he lives
		c.reopen(gone)
		var lead *Node
		eventually(t, "another leads", func() bool {
			for _, other := range c.nodes {
				if other != n && other.route.Load().lead != nil {
					lead = other
				}
			}
			return lead != nil
		})
		term := lead.raft.CurrentTerm()
		for range 10 {
			if err := alive(lead, 20*time.Second); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if lead.raft.CurrentTerm() != term || lead.raft.State() != raft.Leader {
			t.Errorf("the leader of term %d is %v in term %d", term, lead.raft.State(),
				lead.raft.CurrentTerm())
		}
		go func() {
			for range stuck {
			}
		}()
		n.raft.DeregisterObserver(o) // waits for the loop
		defer close(stuck)
		if err := alive(n, 20*time.Second); err != nil {
			t.Error("it went on:", err)
		}
	})
}
