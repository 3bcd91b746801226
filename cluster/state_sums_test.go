// Tests of the comparison of states: who ends, who goes on, and who decides.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// failed waits until a node ends by itself, and closes it.
func (c *testCluster) failed(id string) error {
	c.t.Helper()
	err := received(c.t, id+" ends", c.nodes[id].Failed())
	c.close(id)
	return err
}

// sound writes until all open nodes know that their states are equal, and fails the test if one has
// ended.
func (c *testCluster) sound() {
	c.t.Helper()
	c.write(c.leader(), "sound")
	c.converged()
	eventually(c.t, "all states are equal", func() bool {
		for _, n := range c.nodes {
			if n.heard.equalTo() < newestOf(n) {
				return false
			}
			for _, m := range n.Status().Members {
				if m.Connected && m.State != membership.Equal {
					return false
				}
			}
		}
		return true
	})
	for id, n := range c.nodes {
		select {
		case err := <-n.Failed():
			c.t.Errorf("%s ended: %v", id, err)
		default:
		}
	}
}

// newestOf returns the index of the newest sum of a node.
func newestOf(n *Node) uint64 {
	s := &n.machine.sums
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest.index
}

// stateOf returns what a node knows of the state of a member.
func stateOf(n *Node, member string) string {
	for _, m := range n.Status().Members {
		if m.ID == member {
			return m.State
		}
	}
	return ""
}

// TestWrongNodeEnds: a node whose state differs from a majority's ends, be it the leader or one
// without a vote. The others go on, also after a restart, and so does the wrong one if its log
// gives a right state.
func TestWrongNodeEnds(t *testing.T) {
	for role, choose := range map[string]func(*testCluster) *Node{
		"leader":   (*testCluster).leader,
		"follower": func(c *testCluster) *Node { return c.followers()[0] },
		"learner":  func(c *testCluster) *Node { return c.nodes["n4"] },
	} {
		runSimulated(t, role, func(t *testing.T) {
			c := newCluster(t, 4, func(cfg *Config) { cfg.Learner = cfg.ID == "n4" })
			eventually(t, "n4 has no vote", func() bool {
				s, ok := c.leader().member("n4")
				return ok && s.Suffrage != raft.Voter
			})
			c.sound()
			wrong := choose(c)
			id := wrong.cfg.ID
			c.toys[id].flip("bit")
			c.write(wrong, "after")
			err := received(t, id+" ends", wrong.Failed())
			if !strings.Contains(err.Error(), "differs from that of a majority") {
				t.Errorf("it ends with %q", err)
			}
			for name, ask := range map[string]func() ([]byte, error){
				"a write": func() ([]byte, error) {
					return wrong.write(context.Background(), []byte("late"), 1)
				},
				"a read": func() ([]byte, error) {
					return wrong.read(context.Background(), []byte("all"))
				},
				"a local read": func() ([]byte, error) { return wrong.readLocal([]byte("all")) },
			} {
				if reply, err := ask(); !errors.Is(err, ErrNotRun) {
					t.Errorf("%s on the wrong node: %q, %v", name, reply, err)
				}
			}
			eventually(t, "the wrong node does not lead", func() bool {
				return wrong.Status().Role != membership.Leader
			})
			c.close(id)
			c.write(c.leader(), "others")
			for _, m := range c.members {
				if m.ID != id {
					c.close(m.ID)
				}
			}
			for _, m := range c.members {
				if m.ID != id {
					c.reopen(m.ID)
				}
			}
			c.sound()
			c.reopen(id)
			c.sound()
			if c.toys[id].batches()[1] != "after" {
				t.Errorf("the repaired node has %q", c.toys[id].batches())
			}
		})
	}
}

// TestWrongSnapshotEndsAgain: a node whose snapshot is wrong ends at each start, and harms nobody.
func TestWrongSnapshotEndsAgain(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
		c.sound()
		id := c.followers()[0].cfg.ID
		c.toys[id].flip("bit")
		wrong := c.nodes[id]
		if err := wrong.Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.write(c.leader(), "after")
		_ = c.failed(id)
		for range 2 {
			c.reopen(id)
			c.write(c.leader(), "again")
			_ = c.failed(id)
			c.sound()
		}
	})
}

// TestNoMajorityEndsNobody: two nodes that differ, and three that are all different, cannot know
// who is wrong. They say so and go on.
func TestNoMajorityEndsNobody(t *testing.T) {
	for _, size := range []int{2, 3} {
		runSimulated(t, fmt.Sprint(size), func(t *testing.T) {
			c := newCluster(t, size, nil)
			c.sound()
			for _, m := range c.members[1:] {
				c.toys[m.ID].flip(m.ID)
			}
			for i := range 2 * markEvery {
				c.write(c.leader(), fmt.Sprint(i))
			}
			eventually(t, "each sees that the others differ", func() bool {
				for id, n := range c.nodes {
					for _, m := range c.members {
						if m.ID != id && stateOf(n, m.ID) != membership.Differs {
							return false
						}
					}
				}
				return true
			})
			for id, n := range c.nodes {
				c.write(n, "on "+id)
				if n.failure.Load() {
					t.Errorf("%s ended: %v", id, n.lost)
				}
			}
		})
	}
}

// TestOneMemberEndsNobody: what a single member says, or what two say that are not of one mind,
// ends no other.
func TestOneMemberEndsNobody(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.sound()
		n := c.nodes["n1"]
		say := func(member string, sum uint64) {
			at := newestOf(n)
			n.heard.note(member, 1<<60, sumsReport{1, stateSum{at, sum}, nil})
			eventually(t, "n1 has compared", func() bool {
				return stateOf(n, member) == membership.Differs && len(n.heard.wake) == 0
			})
		}
		say("n2", 1)
		say("n3", 2)
		c.write(n, "it goes on")
		if n.failure.Load() {
			t.Fatalf("n1 ended: %v", n.lost)
		}
		at := newestOf(n)
		n.heard.note("n3", 1<<60, sumsReport{1, stateSum{at, 3}, nil})
		n.heard.note("n2", 1<<60, sumsReport{1, stateSum{at, 3}, nil})
		if err := c.failed("n1"); !strings.Contains(err.Error(), "n2 and n3") {
			t.Errorf("n1 ended with %v", err)
		}
		c.sound()
	})
}

// TestLearnersDoNotDecide: the sole voter is not ended by members without a vote, nor ends one.
func TestLearnersDoNotDecide(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Learner = cfg.ID != "n1" })
		c.sound()
		lead := c.nodes["n1"]
		eventually(t, "n1 alone votes", func() bool {
			_, need := lead.quorum()
			return lead.leads() && need == 0
		})
		for _, f := range c.followers() {
			c.toys[f.cfg.ID].flip("both alike")
		}
		for i := range 10 {
			c.write(lead, fmt.Sprint(i))
		}
		for _, f := range c.followers() {
			eventually(t, "the difference is seen", func() bool {
				return stateOf(lead, f.cfg.ID) == membership.Differs &&
					stateOf(f, lead.cfg.ID) == membership.Differs
			})
		}
		for id, n := range c.nodes {
			if n.failure.Load() {
				t.Errorf("%s ended: %v", id, n.lost)
			}
		}
	})
}

// TestSumsAfterSnapshot: a member that loaded a snapshot is compared from there on.
func TestSumsAfterSnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
		behind := c.followers()[0].cfg.ID
		c.close(behind)
		for i := range 30 {
			c.write(c.leader(), fmt.Sprint("a", i))
		}
		for _, n := range c.nodes {
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		c.reopen(behind)
		c.ready(behind)
		c.sound()
	})
}

// TestMarksAreCommon: nodes of which each has applied another entry last have marks in common,
// also with one that loaded a snapshot. A state that was replaced says nothing.
func TestMarksAreCommon(t *testing.T) {
	var whole, restored ownSums
	sum := func(index uint64) uint64 { return index * 7 }
	for index := uint64(1); index <= 1000; index += 3 {
		whole.note(index, sum(index))
		switch {
		case index == 301:
			restored.restart(index, sum(index))
		case index > 301 && index < 900:
			restored.note(index, sum(index))
		}
	}
	var told toldSums
	r, ok := restored.since(&told)
	if !ok || len(r.marks) < 500/markEvery {
		t.Fatalf("it tells %+v", r)
	}
	if _, ok := restored.since(&told); ok {
		t.Error("it tells the same again")
	}
	m := &memberSums{newest: stateSum{5000, 1}, marks: r.marks}
	if differ := whole.compare(m); len(differ) > 0 || m.compared != r.marks[len(r.marks)-1].index {
		t.Errorf("they differ: %v, compared to %d", differ, m.compared)
	}
	m.marks = slices.Clone(m.marks)
	m.marks[2].sum++
	if differ := whole.compare(m); len(differ) != 1 || differ[0].at != m.marks[2] {
		t.Errorf("the difference: %v", differ)
	}
	whole.restart(2000, 1)
	if differ := whole.compare(m); len(differ) > 0 || m.compared > 0 {
		t.Errorf("a state that was replaced is compared: %v", differ)
	}
}

// TestReportsOfOldConnections: what arrives late of an earlier connection, or is of a state that
// was replaced, is not mixed with what is known.
func TestReportsOfOldConnections(t *testing.T) {
	h := heardSums{wake: make(chan struct{}, 1), of: map[string]*memberSums{}}
	h.note("n2", 5, sumsReport{1, stateSum{70, 1}, []stateSum{{64, 1}}})
	h.note("n2", 4, sumsReport{1, stateSum{71, 2}, []stateSum{{65, 2}}})
	if m := h.of["n2"]; m.newest.index != 70 || len(m.marks) != 1 {
		t.Errorf("%+v", m)
	}
	h.note("n2", 5, sumsReport{1, stateSum{130, 1}, []stateSum{{128, 1}}})
	if m := h.of["n2"]; m.newest.index != 130 || len(m.marks) != 2 {
		t.Errorf("%+v", m)
	}
	h.note("n2", 5, sumsReport{2, stateSum{140, 1}, nil})
	if m := h.of["n2"]; m.newest.index != 140 || len(m.marks) != 0 {
		t.Errorf("%+v", m)
	}
	for i := range uint64(2 * marksKept) {
		h.note("n2", 6, sumsReport{1, stateSum{i, 1}, []stateSum{{i, 1}}})
	}
	if m := h.of["n2"]; len(m.marks) != marksKept {
		t.Errorf("%d marks are kept", len(m.marks))
	}
}
