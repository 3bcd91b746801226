// Tests of messages of a leadership that has ended.

package cluster

import (
	"context"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
)

// part cuts the links between the nodes of a side and all others, join has them back.
func (c *testCluster) part(side ...string) (join func(id string)) {
	cut := func(id string, f func(from, to string)) {
		for _, m := range c.members {
			if m.ID != id && !slices.Contains(side, m.ID) {
				f(id, m.ID)
				f(m.ID, id)
			}
		}
	}
	for _, id := range side {
		cut(id, c.net.refuse)
	}
	return func(id string) {
		cut(id, func(from, to string) {
			c.net.mu.Lock()
			defer c.net.mu.Unlock()
			delete(c.net.dead, [2]string{from, to})
		})
	}
}

// TestNoMessageOutlivesItsLeadership: Raft reads the entries of a message one after the other. If
// the leadership ends meanwhile, and the next leader replaces some, these are of two logs, and one
// who still is in the former term would take them for one: with another entry at the place of a
// committed one.
func TestNoMessageOutlivesItsLeadership(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 4, func(cfg *Config) { cfg.Learner = cfg.ID == "n4" })
		eventually(t, "three vote", func() bool {
			return len(voters(c.leader().configuration())) == 3
		})
		c.converged()
		old, learner := c.leader(), c.nodes["n4"]
		term, first := old.raft.CurrentTerm(), old.raft.LastIndex()+1
		join := c.part(old.cfg.ID, "n4")
		go func() { _, _ = old.write(context.Background(), []byte("lost"), 1) }()
		eventually(t, "the learner has what is lost", func() bool {
			return learner.raft.LastIndex() >= first
		})
		entry := func(n *Node, index uint64) (l raft.Log) {
			if err := n.logs.GetLog(index, &l); err != nil {
				t.Error(err)
			}
			return l
		}
		before := entry(old, first) // as Raft's replication reads it, which goes on below
		var lead *Node
		eventually(t, "another leader", func() bool {
			for _, n := range c.nodes {
				if n != old && n.Status().Ready && n.raft.State() == raft.Leader {
					lead = n
				}
			}
			return lead != nil
		})
		for _, batch := range []string{"a", "b", "c"} {
			c.write(lead, batch)
		}
		join(old.cfg.ID)
		last := lead.raft.LastIndex()
		eventually(t, "the former leader follows", func() bool {
			return old.raft.LastIndex() >= last
		})
		if is := learner.raft.CurrentTerm(); is != term {
			t.Fatalf("the learner is in term %d", is)
		}
		addr, err := old.ServerAddr("n4")
		if err != nil {
			t.Fatal(err)
		}
		req := &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
			ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(old.cfg.ID)}, Term: term,
			PrevLogEntry: before.Index, PrevLogTerm: before.Term}
		for i := first + 1; i <= last; i++ {
			l := entry(old, i)
			req.Entries = append(req.Entries, &l)
		}
		sent := *req
		if err := old.transport.AppendEntries("n4", addr, &sent,
			&raft.AppendEntriesResponse{}); err == nil {
			t.Error("a message of a leadership that has ended is sent")
		}
		third := raft.ServerID("")
		for _, id := range voters(lead.configuration()) {
			if id != lead.cfg.ID && id != old.cfg.ID {
				third = raft.ServerID(id)
			}
		}
		// One who had other entries at its election would send those again.
		if err := lead.TransferLeadership(string(third)); err != nil {
			t.Fatal(err)
		}
		lead = c.nodes[string(third)]
		eventually(t, "the last leader", func() bool {
			return lead.raft.State() == raft.Leader && lead.Status().Ready
		})
		join("n4")
		c.converged()
		for i := first; i <= last; i++ {
			if is, want := entry(learner, i), entry(lead, i); is.Term != want.Term {
				t.Errorf("entry %d has term %d, the leader's %d", i, is.Term, want.Term)
			}
		}
	})
}
