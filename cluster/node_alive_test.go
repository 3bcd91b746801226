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

// TestFollowerAsksForWhoLooks: a follower asks the others nothing while it knows a leader, which
// may serve nothing. Who asks it for the members must not read that the others are silent.
func TestFollowerAsksForWhoLooks(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		c.converged()
		n, other := c.followers()[0], c.followers()[1].cfg.ID
		silent := func() time.Duration {
			for _, m := range n.Status().Members {
				if m.ID == other {
					return m.LastContact
				}
			}
			return -1
		}
		sent := func() uint64 {
			l := n.link(other)
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.confirms.sent
		}
		eventually(t, "nobody asks", func() bool { return silent() > 2*heardLately })
		before := sent()
		for range 9 {
			n.AskMembers()
		}
		if now := sent(); now != before+1 {
			t.Errorf("it asked %d times, want once", now-before)
		}
		eventually(t, "the answer", func() bool { return silent() < heardLately })
		eventually(t, "it asks again", func() bool { n.AskMembers(); return sent() > before+1 })

		lead := c.leader()
		l := lead.link(other)
		l.mu.Lock()
		before = l.confirms.sent
		l.mu.Unlock()
		lead.AskMembers()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.confirms.sent != before {
			t.Error("the leader asks by itself")
		}
	})
}
