// Tests of changes of the voters that are under way, or that need a voter that stores nothing.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/detector"
)

// TestMajorityElectsBesideAChange loses the leader while a change of the voters is under way, and
// some of those that may have its entry have it. If the others are a majority by the configurations
// that there are, the old and the new one, they elect a leader. In the end all know the same
// voters.
func TestMajorityElectsBesideAChange(t *testing.T) {
	detector.Skip(t)
	for _, row := range []struct {
		voters   int  // before
		promotes bool // a learner, else a voter loses its vote
		longer   bool // the learner has one entry more than others
	}{
		{voters: 4}, {voters: 3}, {voters: 5}, {voters: 2, promotes: true},
		{voters: 3, promotes: true}, {voters: 3, promotes: true, longer: true},
	} {
		others := row.voters // besides the leader, with the learner
		if !row.promotes {
			others -= 2 // without the one that leaves
		}
		for have := range 1 << others {
			if row.longer && have&1 == 0 {
				continue
			}
			name := fmt.Sprintf("%+v have %b", row, have)
			runSimulated(t, name, func(t *testing.T) {
				electsBesideAChange(t, row.voters, row.promotes, row.longer, have)
			})
		}
	}
}

func electsBesideAChange(t *testing.T, size int, promotes, longer bool, have int) {
	nodes := size
	if promotes {
		nodes++
	}
	learner := fmt.Sprint("n", nodes)
	c := newCluster(t, nodes, func(cfg *Config) { cfg.Learner = promotes && cfg.ID == learner })
	eventually(t, "the voters are those", func() bool {
		return len(voters(c.leader().configuration())) == size
	})
	lead := c.leader()
	c.write(lead, "a")
	c.converged()
	lead.changing <- struct{}{} // it makes no other change
	others, who := c.followers(), c.followers()[0]
	if promotes {
		who = c.nodes[learner]
	} else {
		others = others[1:]
	}
	slices.Reverse(others) // the learner has the first bit
	var holders, rest []*Node
	for i, n := range others {
		if have>>i&1 == 1 {
			holders = append(holders, n)
		} else {
			c.net.refuse(lead.cfg.ID, n.cfg.ID)
		}
		rest = append(rest, n)
	}
	contact := who.raft.LastContact()
	heard := func() bool { return who.raft.LastContact().Sub(contact) > commitTimeout }
	s, _ := lead.member(who.cfg.ID)
	if promotes {
		lead.raft.AddVoter(s.ID, s.Address, 0, 0)
	} else {
		lead.raft.DemoteVoter(s.ID, 0, 0)
		rest = append(rest, who)
	}
	has := func(n *Node) bool {
		return len(voters(n.configuration())) != size
	}
	eventually(t, "they have the entry, and who leaves has had the time to get it", func() bool {
		return !slices.ContainsFunc(holders, func(n *Node) bool { return !has(n) }) &&
			(promotes || heard())
	})
	if longer {
		for _, n := range holders {
			if n != who {
				c.net.refuse(lead.cfg.ID, n.cfg.ID)
			}
		}
		last := who.raft.LastIndex()
		go func() { _, _ = lead.write(context.Background(), []byte("b"), 1) }()
		eventually(t, "the learner has more", func() bool { return who.raft.LastIndex() > last })
	}
	after := voters(lead.configuration())
	c.net.isolate(lead.cfg.ID)

	old, new, know := 0, 0, len(holders) // of the rest, those with a vote, and with the entry
	for _, n := range rest {
		if !promotes || n != who {
			old++
		}
		if slices.Contains(after, n.cfg.ID) {
			new++
		}
	}
	byOld, byNew := old > size/2 || know == len(rest), new > len(after)/2 || know == 0
	if !byOld || !byNew {
		return // it needs the leader
	}
	lead2 := c.leader()
	c.write(lead2, "c")
	<-lead.changing
	c.close(lead.cfg.ID)
	c.converged()
	want := voters(lead2.configuration())
	eventually(t, "all know the voters", func() bool {
		return !slices.ContainsFunc(rest, func(n *Node) bool {
			return !slices.Equal(voters(n.configuration()), want)
		})
	})
}

// TestWithheld: a message ends before the first entry by which the member has no vote and which is
// not committed, also one that is sent without a pipeline.
func TestWithheld(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, n := c.leader(), c.followers()[0]
		c.write(lead, "a")
		c.converged()
		id, last := raft.ServerID(n.cfg.ID), lead.committed()
		with := raft.EncodeConfiguration(lead.configuration())
		without := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: id,
			Suffrage: raft.Nonvoter}}})
		config := func(index uint64, data []byte) *raft.Log {
			return &raft.Log{Type: raft.LogConfiguration, Index: index, Data: data,
				Term: lead.raft.CurrentTerm()}
		}
		command := &raft.Log{Type: raft.LogCommand, Data: without, Index: last + 1}
		earlier := config(last+1, without)
		earlier.Term--
		for what, test := range map[string]struct {
			entries []*raft.Log
			left    int
		}{
			"it keeps its vote":      {[]*raft.Log{config(last+1, with)}, 1},
			"it loses its vote":      {[]*raft.Log{config(last+1, without)}, 0},
			"that is committed":      {[]*raft.Log{config(last, without)}, 1},
			"of an earlier term":     {[]*raft.Log{earlier}, 1}, // and it has one now
			"it has not had one":     {[]*raft.Log{config(1, without)}, 1},
			"it loses it in between": {[]*raft.Log{command, config(last+2, without), command}, 1},
			"no configuration":       {[]*raft.Log{command}, 1},
		} {
			req := &raft.AppendEntriesRequest{Term: lead.raft.CurrentTerm(), Entries: test.entries}
			cut := lead.transport.withhold(id, req)
			if len(req.Entries) != test.left || cut != (test.left < len(test.entries)) {
				t.Errorf("%s: %d entries are left, %v", what, len(req.Entries), cut)
			}
		}
		req := &raft.AppendEntriesRequest{Term: lead.raft.CurrentTerm(), PrevLogEntry: last,
			PrevLogTerm: lead.raft.CurrentTerm(), Entries: []*raft.Log{config(last+1, without)},
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
				ID: []byte(lead.cfg.ID), Addr: []byte(lead.mux.Addr().String())}}
		var resp raft.AppendEntriesResponse
		if err := lead.transport.AppendEntries(id, raft.ServerAddress(n.mux.Addr().String()), req,
			&resp); err != nil || !resp.Success || n.raft.LastIndex() != last {
			t.Errorf("sent: %+v, %v, the member has %d entries, want %d", resp, err,
				n.raft.LastIndex(), last)
		}
	})
}

// unwritable is a log whose disk is full at times.
type unwritable struct {
	raft.LogStore
	full *atomic.Bool
}

func (u unwritable) StoreLogs(logs []*raft.Log) error {
	if u.full.Load() {
		return errors.New("no space left on device")
	}
	return u.LogStore.StoreLogs(logs)
}

// unwritables returns what fills the disks of nodes.
func unwritables() (full map[string]*atomic.Bool, change func(*Config)) {
	full = map[string]*atomic.Bool{}
	return full, func(cfg *Config) {
		if full[cfg.ID] == nil {
			full[cfg.ID] = &atomic.Bool{}
		}
		f := full[cfg.ID]
		cfg.wrapLog = func(s raft.LogStore) raft.LogStore { return unwritable{s, f} }
	}
}

// refusedFor checks that a change is refused and that the answer names who does not store.
func refusedFor(t *testing.T, id string, err error) {
	t.Helper()
	if !errors.Is(err, ErrRefused) || !strings.HasSuffix(err.Error(), "a new one: "+id) {
		t.Errorf("the change: %v, want it refused for %s", err, id)
	}
}

// late is a log that stores what it is given when its disk is no longer full.
type late struct{ unwritable }

func (l late) StoreLogs(logs []*raft.Log) error {
	for l.full.Load() {
		time.Sleep(time.Millisecond) // between two looks
	}
	return l.LogStore.StoreLogs(logs)
}

// TestRemovalBesideAFullDisk removes a voter that the others need, as one of them stores nothing,
// though it has stored everything until then and is connected.
func TestRemovalBesideAFullDisk(t *testing.T) {
	for _, behind := range []bool{false, true} { // it gets nothing more, or all that is new late
		runSimulated(t, fmt.Sprint("behind ", behind), func(t *testing.T) {
			full, change := unwritables()
			c := newCluster(t, 3, func(cfg *Config) {
				change(cfg)
				if wrap := cfg.wrapLog; behind {
					cfg.wrapLog = func(s raft.LogStore) raft.LogStore {
						return late{wrap(s).(unwritable)}
					}
				}
			})
			lead, needed, bad := c.leader(), c.followers()[0].cfg.ID, c.followers()[1].cfg.ID
			c.write(lead, "a")
			c.converged()
			full[bad].Store(true)
			t.Cleanup(func() { full[bad].Store(false) }) // before the nodes are closed
			remove := membership.Change{Kind: membership.Remove, ID: needed}
			refusedFor(t, bad, lead.ChangeMembers(remove))
			refusedFor(t, bad, lead.ChangeMembers(membership.Change{Kind: membership.Remove,
				ID: lead.cfg.ID}))
			c.write(lead, "b")
			full[bad].Store(false)
			c.changed(membership.Remove, needed, "")
			c.close(needed)
			c.write(lead, "c")
			c.converged()
		})
	}
}

// TestMembersTellThatTheyStoreNothing: a member whose disk is full answers, and may lack a few
// entries only. Who asks any node whether another one may be restarted must hear of it.
func TestMembersTellThatTheyStoreNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		full, change := unwritables()
		c := newCluster(t, 3, change)
		lead, bad := c.leader(), c.followers()[1].cfg.ID
		c.write(lead, "a")
		c.converged()
		told := func() (at, of map[string]string) {
			at, of = map[string]string{}, map[string]string{}
			for _, n := range c.nodes {
				for _, m := range n.Status().Members {
					if m.LogTrouble != "" {
						at[n.cfg.ID], of[m.ID] = m.LogTrouble, m.LogTrouble
					}
				}
			}
			return at, of
		}
		full[bad].Store(true)
		t.Cleanup(func() { full[bad].Store(false) }) // before the nodes are closed
		c.write(lead, "b")
		eventually(t, "the leader tells", func() bool {
			at, of := told()
			return at[lead.cfg.ID] != "" && at[bad] != "" && len(of) == 1 &&
				of[bad] == logFails.String()
		})
		full[bad].Store(false)
		c.write(lead, "c")
		eventually(t, "all store again", func() bool { at, _ := told(); return len(at) == 0 })
	})
}

// TestNoLearnerBesideAFullDisk starts a voter with --learner, which the others need: it keeps its
// vote while one of them stores nothing.
func TestNoLearnerBesideAFullDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		full, change := unwritables()
		learner := ""
		c := newCluster(t, 3, func(cfg *Config) {
			change(cfg)
			cfg.Learner = cfg.ID == learner
		})
		lead, bad := c.leader(), c.followers()[1].cfg.ID
		c.write(lead, "a")
		c.converged()
		learner = c.followers()[0].cfg.ID
		c.close(learner)
		c.reopen(learner)
		lead.changing <- struct{}{}
		c.ready(learner)
		full[bad].Store(true)
		eventually(t, "the leader knows", func() bool { return !lead.wantsVote(learner) })
		<-lead.changing
		eventually(t, "it tries to take the vote", func() bool { return len(lead.changing) == 1 })
		c.write(lead, "b")
		full[bad].Store(false)
		eventually(t, "the learner", func() bool { return len(voters(lead.configuration())) == 2 })
		c.write(lead, "c")
		c.converged()
	})
}

// TestPromotionOfAFullDisk gives the second vote to a member that has all and stores nothing more.
func TestPromotionOfAFullDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		full, change := unwritables()
		learner := "n2"
		c := newCluster(t, 2, func(cfg *Config) {
			change(cfg)
			cfg.Learner = cfg.ID == learner
		})
		eventually(t, "one votes", func() bool {
			return len(voters(c.leader().configuration())) == 1
		})
		n1 := c.leader()
		c.write(n1, "a")
		n1.changing <- struct{}{} // it is not promoted yet
		learner = ""
		c.close("n2")
		c.reopen("n2")
		c.ready("n2")
		lead := n1.route.Load().lead
		eventually(t, "it has caught up", func() bool {
			n1.link("n2").ask(0)
			return n1.wantsVote("n2") && n1.caughtUp(lead, "n2") == nil
		})
		full["n2"].Store(true)
		refusedFor(t, "n2", n1.promoteMember(lead, "n2"))
		<-n1.changing
		c.write(n1, "b")
		full["n2"].Store(false)
		eventually(t, "its vote", func() bool { return len(voters(n1.configuration())) == 2 })
		c.write(n1, "c")
		c.converged()
	})
}
