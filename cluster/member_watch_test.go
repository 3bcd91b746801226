// Tests of what a leader does by itself about members: removal, learners, and giving way.

package cluster

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// awaitVoters waits until exactly these are the voters.
func (c *testCluster) awaitVoters(ids ...string) {
	c.t.Helper()
	eventually(c.t, "the voters are "+strings.Join(ids, " "), func() bool {
		return slices.Equal(voters(c.leader().configuration()), ids)
	})
}

// changed asks for a change until the leader has it: a reply can be lost, and a leader promotes who
// has caught up by itself, which may come between two questions.
func (c *testCluster) changed(kind, id, addr string) {
	c.t.Helper()
	eventually(c.t, kind+" "+id, func() bool {
		lead := c.leader()
		if lead.ChangeMembers(membership.Change{Kind: kind, ID: id, PeerAddr: addr}) == nil {
			return true
		}
		known := lead.machine.members.Load()
		switch is := func(s raft.Server) bool { return string(s.ID) == id }; kind {
		case membership.Remove:
			return known.retired[id]
		case membership.Promote:
			return slices.Contains(voters(known.configuration), id)
		default:
			return slices.ContainsFunc(known.configuration.Servers, is)
		}
	})
}

// statusOf returns what the leader knows of a member.
func (c *testCluster) statusOf(id string) membership.Member {
	for _, m := range c.leader().Status().Members {
		if m.ID == id {
			return m
		}
	}
	return membership.Member{}
}

// TestAutoremove loses members of a cluster that removes unreachable ones: a fourth voter goes, a
// third one is kept until a node waits for its address, and a learner goes.
func TestAutoremove(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const after = 400 * time.Millisecond
		c := newCluster(t, 3, func(cfg *Config) { cfg.AutoremoveAfter = after })
		add := func(n *Node) error {
			return c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: n.cfg.ID,
				PeerAddr: n.Status().PeerAddr})
		}
		if err := add(c.joiner("n4", true)); err != nil {
			t.Fatal(err)
		}
		c.awaitVoters("n1", "n2", "n3", "n4")
		began := time.Now()
		c.close("n4")
		c.awaitVoters("n1", "n2", "n3")
		// it counts from its last look that found the member, which may be before it was closed
		const look = 50 * time.Millisecond
		if took := time.Since(began); took < after-look {
			t.Errorf("removed after %v", took)
		}

		lead := c.leader()
		gone := c.followers()[0].cfg.ID
		addr, _ := lead.peerAddr(gone)
		c.close(gone)
		eventually(t, "it is due", func() bool {
			return lead.unreachableFor(gone) > 2*after
		})
		if err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n9",
			PeerAddr: lead.Status().PeerAddr}); !errors.Is(err, ErrRefused) {
			t.Errorf("the leader's address: %v", err)
		}
		if got := voters(lead.configuration()); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
			t.Errorf("removing the third voter helps nobody, the voters are %v", got)
		}
		toy := newToy()
		cfg := Config{ID: "n5", DataDir: filepath.Join(c.dir, "n5"),
			PeerListener: c.net.listen(t, "n5", addr), Join: true, Clock: c.clock("n5"),
			dial: c.net.dialer("n5"), Logger: testLogger()}
		if *overTLS {
			c.ca.useTLS(PeerTLSDial)(&cfg)
		}
		n5, err := Open(cfg, toy)
		if err != nil {
			t.Fatal(err)
		}
		c.nodes["n5"], c.toys["n5"] = n5, toy
		eventually(t, "n5 gets the address", func() bool {
			err := add(n5)
			if err != nil && !errors.Is(err, ErrNotRun) {
				t.Fatal(err)
			}
			return err == nil
		})
		want := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(id string) bool {
			return id == gone
		})
		c.awaitVoters(append(want, "n5")...)

		if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: "n6",
			PeerAddr: "127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the learner that never came is removed", func() bool {
			return !c.leader().ownStanding("n6").isMember()
		})
	})
}

// TestLeaderThatWasAway makes a leader's observation old, as a pause does: it must start again.
func TestLeaderThatWasAway(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.AutoremoveAfter = time.Minute })
		lead, gone := c.leader(), c.followers()[0].cfg.ID
		c.close(gone)
		eventually(t, "it is missed", func() bool { return lead.unreachableFor(gone) > 0 })
		w := &lead.watch
		w.mu.Lock()
		w.looked = w.looked.Add(-time.Hour)
		w.reached[gone] = w.reached[gone].Add(-time.Hour)
		w.held[gone] = true
		w.mu.Unlock()
		eventually(t, "the watch starts again", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return time.Since(w.looked) < watchGap && !w.held[gone] &&
				time.Since(w.reached[gone]) < time.Minute
		})
	})
}

// TestLearner joins a node that never votes, promotes it in vain, and turns a voter into a learner.
func TestLearner(t *testing.T) {
	simulated(t, func(t *testing.T) {
		learners := map[string]bool{"n4": true}
		c := newCluster(t, 3, func(cfg *Config) { cfg.Learner = learners[cfg.ID] })
		c.write(c.leader(), "a")
		n4 := c.joiner("n4", true)
		if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
			PeerAddr: n4.Status().PeerAddr}); err != nil {
			t.Fatal(err)
		}
		c.ready("n4")
		eventually(t, "n4 has the data", func() bool {
			reply, err := n4.readLocal([]byte("a"))
			return err == nil && string(reply) == "1" && c.statusOf("n4").Applied >=
				c.leader().Status().Commit
		})
		err := c.leader().ChangeMembers(membership.Change{Kind: membership.Promote, ID: "n4"})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "runs with --learner") {
			t.Errorf("promotion: %v", err)
		}
		if m := c.statusOf("n4"); m.Voter || !m.Learner {
			t.Errorf("%+v", m)
		}
		if c.leader().unsettled() {
			t.Error("the leader would promote it")
		}
		gone := c.followers()[0].cfg.ID
		learners[gone] = true
		c.close(gone)
		c.reopen(gone)
		eventually(t, gone+" loses its vote", func() bool {
			s, ok := c.leader().member(gone)
			return ok && s.Suffrage == raft.Nonvoter
		})
		c.write(c.leader(), "b")
		c.converged()
	})
}

// TestLeaderPriority gives a voter a higher priority: it leads, again after a restart, and not
// while it stops.
func TestLeaderPriority(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.preferAfter = 50 * time.Millisecond
			if cfg.ID == "n2" {
				cfg.Priority = 200
			}
		})
		leads := func() {
			t.Helper()
			eventually(t, "n2 leads", func() bool { return c.leader().cfg.ID == "n2" })
		}
		leads()
		c.close("n2")
		c.write(c.leader(), "a")
		c.reopen("n2")
		leads()

		n2 := c.nodes["n2"]
		n2.TransferIfLeader()
		eventually(t, "the next leader knows that n2 stops", func() bool {
			lead := c.leader()
			l := lead.link("n2")
			if l == nil {
				return false
			}
			l.mu.Lock()
			stopping := l.unfit
			l.mu.Unlock()
			preferred, _ := lead.fittest(lead.route.Load().lead)
			return stopping && preferred == ""
		})
		if _, err := c.leader().successor("n2"); err != nil {
			t.Errorf("an operator cannot choose it: %v", err)
		}
	})
}

// TestPreferredVoterThatFails gives leadership to a voter that loses it again and again: it gets it
// less and less often, and as at first when it has been well for long.
func TestPreferredVoterThatFails(t *testing.T) {
	const second = time.Second
	now := time.Now()
	w := memberWatch{preferred: "n2", fitSince: now}
	for _, want := range []time.Duration{5 * second, 10 * second, 20 * second, 40 * second,
		80 * second, 160 * second, 300 * second, 300 * second} {
		w.fitSince = now
		if got := w.prefers(preferAfter, now.Add(want-1)); got != "" {
			t.Errorf("%s leads before %v", got, want)
		}
		now = now.Add(want)
		if got := w.prefers(preferAfter, now); got != "n2" {
			t.Errorf("after %v %q leads", want, got)
		}
		w.grant("n2", now)
	}
	w.preferred, w.fitSince = "n3", now
	if got := w.prefers(preferAfter, now.Add(5*second)); got != "n3" {
		t.Errorf("another voter waits for the failures of the first: %q", got)
	}
	now = now.Add(grantsCount + 1)
	w.preferred, w.fitSince = "n2", now
	if got := w.prefers(preferAfter, now.Add(5*second)); got != "n2" {
		t.Errorf("old failures count: %q", got)
	}
}

// A member whose process hangs is unreachable, though its connections stay.
func TestHungMemberIsUnreachable(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, gone := c.leader(), c.followers()[0].cfg.ID
		c.close(gone)
		hung := &inbound{peer: gone}
		hung.heard.Store(time.Now().UnixNano())
		track := func(is bool) {
			lead.linksMu.Lock()
			defer lead.linksMu.Unlock()
			if delete(lead.inbounds, hung); is {
				lead.inbounds[hung] = struct{}{}
			}
		}
		track(true)
		defer track(false)
		eventually(t, "it is unreachable", func() bool {
			return lead.unreachableFor(gone) > 2*heardLately
		})
	})
}

// A node that moved and still advertises its old address says that nobody reaches it, until it
// advertises the new one.
func TestNodeThatNobodyReaches(t *testing.T) {
	simulated(t, func(t *testing.T) {
		at := ""
		c := newCluster(t, 3, func(cfg *Config) {
			if at != "" {
				cfg.PeerAdvertise = at
			}
		})
		moved := c.followers()[0]
		id := moved.cfg.ID
		at = moved.mux.Addr().String()
		c.close(id)
		ln := c.net.listen(t, id, "")
		c.open(id, ln)
		eventually(t, "it says so", func() bool {
			s := c.nodes[id].Status()
			return s.Unreached && !s.Ready
		})
		for _, n := range c.nodes {
			if n.cfg.ID != id && n.Status().Unreached {
				t.Errorf("%s says so", n.cfg.ID)
			}
		}
		c.close(id)
		ln = c.net.listen(t, id, "")
		at = ln.Addr().String()
		c.open(id, ln)
		eventually(t, "it is ready", func() bool {
			s := c.nodes[id].Status()
			return s.Ready && !s.Unreached
		})
	})
}

// Without a leader a node still knows who lives: not by connections, which those of processes that
// hang keep.
func TestContactWithoutLeader(t *testing.T) {
	for how, end := range map[string]func(*testCluster, string){
		"closed": (*testCluster).close,
		"hung":   func(c *testCluster, id string) { c.net.pause(id) },
	} {
		runSimulated(t, how, func(t *testing.T) {
			c := newCluster(t, 4, nil)
			gone := []string{c.leader().cfg.ID, c.followers()[0].cfg.ID}
			for _, id := range gone {
				end(c, id)
			}
			time.Sleep(20 * time.Second)
			for id, n := range c.nodes {
				if slices.Contains(gone, id) {
					continue
				}
				for _, m := range n.Status().Members {
					lives := m.LastContact < heardLately
					if lives == slices.Contains(gone, m.ID) {
						t.Errorf("%s heard from %s %v ago", id, m.ID, m.LastContact)
					}
				}
			}
			for _, id := range gone {
				c.net.resume(id)
			}
		})
	}
}

// A follower that cannot ask its leader, which reaches it, knows who else lives.
func TestContactWithoutAWayToTheLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, n := c.leader(), c.followers()[0]
		c.write(lead, "a")
		n.link(lead.cfg.ID).close()
		time.Sleep(8 * time.Second)
		s := n.Status()
		if s.LeaderID != lead.cfg.ID || s.Ready {
			t.Fatalf("leader %q, ready: %v", s.LeaderID, s.Ready)
		}
		for _, m := range s.Members {
			if m.ID != lead.cfg.ID && m.LastContact > heardLately {
				t.Errorf("it heard from %s %v ago", m.ID, m.LastContact)
			}
		}
	})
}

// A member that was restarted has reported nothing until it answers: what it had before, beside the
// commit index of then, would show one that lacks what was written since as up to date.
func TestNoReportFromBeforeARestart(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, id := c.leader(), c.followers()[0].cfg.ID
		seen := func() membership.Member {
			for _, m := range lead.Status().Members {
				if m.ID == id {
					return m
				}
			}
			return membership.Member{}
		}
		reported := func(least uint64) func() bool {
			return func() bool {
				m := seen()
				if m.Connected && m.ReportedAt > 0 && m.ReportedAt < least {
					t.Errorf("connected, with the report of entry %d", m.ReportedAt)
				}
				if m.Connected && m.ReportedAt == 0 && lead.caughtUp(lead.route.Load().lead,
					id) == nil {
					t.Error("it has caught up, and has not said so")
				}
				return m.Connected && m.ReportedAt >= least
			}
		}
		c.write(lead, "a")
		eventually(t, "a report", reported(1))
		c.close(id)
		eventually(t, "it is missed", func() bool { return !seen().Connected })
		if m := seen(); m.LastLog == 0 {
			t.Error("what it had is forgotten while it is away")
		}
		for range 3 {
			c.write(lead, "b")
		}
		least := lead.raft.CommitIndex()
		c.reopen(id)
		eventually(t, "a report of now", reported(least))
	})
}

// Answers come in order, and prove no more than that the member lived when it was asked.
func TestConfirmsProveWhenTheyWereAsked(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var c confirms
	for _, step := range []struct {
		asked int // at; 0: an answer comes
		want  int // known to live at
	}{{10, 0}, {11, 0}, {0, 10}, {12, 10}, {0, 10}, {13, 10}, {0, 12}, {0, 12}, {14, 12}, {0, 14}} {
		if step.asked > 0 {
			c.asked(at(step.asked))
		} else {
			c.answer()
		}
		if got := c.newest; step.want > 0 && !got.Equal(at(step.want)) {
			t.Errorf("after %+v: %v", step, got)
		}
	}
	if c.proves(at(3)); !c.newest.Equal(at(14)) {
		t.Errorf("an older one: %v", c.newest)
	}
}

// A member that follows has caught up, however much is written between two of its reports.
func TestFollowersOfABusyClusterHaveCaughtUp(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, id := c.leader(), c.followers()[0].cfg.ID
		caughtUp := func() error { return lead.caughtUp(lead.route.Load().lead, id) }
		c.write(lead, "w")
		eventually(t, "it has caught up", func() bool { return caughtUp() == nil })
		for range 2 * promoteLag {
			c.write(lead, "w")
			if err := caughtUp(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A member gets no vote beside a voter that is lost: each of three nodes would then be one whose
// loss stops the cluster. It gets the vote in exchange for the lost one.
func TestNoPromotionBesideALostVoter(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 10 * time.Second} {
			c := newCluster(t, 3, func(cfg *Config) { cfg.AutoremoveAfter = after })
			lead, gone := c.leader(), c.followers()[0].cfg.ID
			c.close(gone)
			eventually(t, "it is unreachable", func() bool {
				return lead.unreachableFor(gone) > heardLately
			})
			n4 := c.joiner("n4", true)
			if err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
				PeerAddr: n4.Status().PeerAddr}); err != nil {
				t.Fatal(err)
			}
			c.write(lead, "w")
			eventually(t, "the new member has everything", func() bool {
				return n4.applied() >= lead.applied() &&
					lead.caughtUp(lead.route.Load().lead, "n4") == nil
			})
			if after == 0 {
				for range 5 {
					time.Sleep(time.Second)
					if got := len(voters(lead.configuration())); got != 3 {
						t.Fatalf("there are %d voters, one of them lost", got)
					}
				}
				c.reopen(gone)
				c.awaitVoters("n1", "n2", "n3", "n4")
			} else {
				rest := slices.DeleteFunc([]string{"n1", "n2", "n3", "n4"}, func(id string) bool {
					return id == gone
				})
				c.awaitVoters(rest...)
			}
			c.closeAll()
		}
	})
}
