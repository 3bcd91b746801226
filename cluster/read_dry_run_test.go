// This file holds the tests of tries and of who holds the log, as far as the way to the leader
// goes: what a try does is the machine's.

package cluster

import (
	"context"
	"slices"
	"testing"
)

// A try is a read to a leader that knows tries; one of an older version is not asked, and the
// caller logs all of it.
func TestTryAsksWhoKnowsIt(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, follower := c.leader(), c.followers()[0]
		c.write(lead, "a")
		for _, n := range []*Node{lead, follower} {
			if got, err := n.dryRun(context.Background(), []byte("a")); err != nil ||
				string(got) != "1" {
				t.Errorf("%s: %q %v", n.cfg.ID, got, err)
			}
		}
		l := follower.link(lead.cfg.ID)
		l.mu.Lock()
		l.peer.abilities = 0
		l.mu.Unlock()
		if got, err := follower.dryRun(context.Background(), []byte("a")); err != nil ||
			len(got) != 0 {
			t.Errorf("a leader of an older version was asked: %q %v", got, err)
		}
		if got := c.read(follower, "a"); got != "1" {
			t.Errorf("a read: %q", got)
		}
	})
}

// Every node gets to know who holds the log, and Barrier goes on to work by the same answer.
func TestHolders(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, followers := c.leader(), c.followers()
		held := func(n *Node, index uint64) int {
			h, err := n.Replication(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if h.Index < index {
				t.Fatalf("%s: index %d, but %d was acknowledged", n.cfg.ID, h.Index, index)
			}
			return len(slices.DeleteFunc(h.Others, func(i uint64) bool { return i < index }))
		}
		for _, n := range []*Node{lead, followers[0]} {
			c.write(n, "a")
			index := lead.raft.AppliedIndex()
			eventually(t, "both followers to hold a write",
				func() bool { return held(n, index) == 2 })
		}
		c.net.isolate(followers[1].cfg.ID)
		c.write(lead, "b")
		index := lead.machine.appliedIndex.Load()
		for _, n := range []*Node{lead, followers[0]} {
			eventually(t, "one follower to hold a write",
				func() bool { return held(n, index) == 1 })
		}
		c.net.heal(followers[1].cfg.ID)
		eventually(t, "the other one to hold it too", func() bool { return held(lead, index) == 2 })
		if err := followers[1].Barrier(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
