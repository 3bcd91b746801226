// Tests of elections after the death of a leader's process.

package cluster

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/wait"
)

// newSlowCluster restarts a cluster with a long heartbeat timeout, for which nobody waits: nodes
// that start find that they have no leader.
func newSlowCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	slow := false
	c := newCluster(t, size, func(cfg *Config) {
		if slow {
			cfg.HeartbeatTimeout = slowBeat
		}
	})
	lead := c.leader()
	for _, n := range c.followers() { // first, so that no other leads and all are in one term
		c.close(n.cfg.ID)
	}
	c.close(lead.cfg.ID)
	slow = true
	began := time.Now()
	for _, m := range c.members {
		c.reopen(m.ID)
	}
	c.leader()
	if took := time.Since(began); took > slowBeat {
		t.Errorf("the election at the start took %v", took)
	}
	// Two may have stood at the start. In hashicorp/raft v1.7.3 who stood by TimeoutNow and lost
	// follows the winner only when its own election has timed out, and does not stand meanwhile.
	wait.For(t, 3*slowBeat, "the others follow", func() bool {
		return !slices.ContainsFunc(c.followers(), func(n *Node) bool {
			return n.raft.State() != raft.Follower
		})
	})
	return c
}

const slowBeat = 2 * time.Second

// die makes a node a process that is not there: its connections end, and it refuses new ones.
func (c *testCluster) die(id string) {
	for _, m := range c.members {
		c.net.refuse(m.ID, id)
		c.net.refuse(id, m.ID)
	}
}

// TestDeadLeaderIsReplacedAtOnce kills the leader of a cluster that would wait for long.
func TestDeadLeaderIsReplacedAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newSlowCluster(t, 3)
		lead := c.leader()
		c.write(lead, "before")
		c.converged()
		term, died := lead.raft.CurrentTerm(), time.Now()
		c.die(lead.cfg.ID)
		eventually(t, "another node leads", func() bool {
			for _, n := range c.nodes {
				if s := n.Status(); n != lead && s.Role == membership.Leader && s.Ready {
					return n.raft.CurrentTerm() == term+1
				}
			}
			return false
		})
		if took := time.Since(died); took > slowBeat {
			t.Errorf("the election took %v", took)
		}
	})
}

// TestRefusedCandidateIsFollowed has the follower with the shorter log stand first, as one does
// that was told the length of the other's log before the leader's last message arrived there. The
// other one stands in time, and at once if it knows that the leader is dead.
func TestRefusedCandidateIsFollowed(t *testing.T) {
	for name, limit := range map[string]time.Duration{"silent": slowBeat, "dead": slowBeat / 8} {
		runSimulated(t, name, func(t *testing.T) {
			c := newSlowCluster(t, 3)
			lead, short, long := c.leader(), c.followers()[0], c.followers()[1]
			c.write(lead, "before")
			c.converged()
			term := lead.raft.CurrentTerm()
			c.net.refuse(lead.cfg.ID, short.cfg.ID)
			c.net.refuse(short.cfg.ID, lead.cfg.ID)
			c.write(lead, "after")
			eventually(t, "one follower has more", func() bool {
				return long.raft.LastIndex() > short.raft.LastIndex()
			})
			if name == "dead" { // it found so, and was told of it alone
				long.findings.mu.Lock()
				long.findings.deadIn = term
				long.findings.mu.Unlock()
			}
			died := time.Now()
			c.net.isolate(lead.cfg.ID) // and not die: the other one would stand by itself
			short.stand(term)
			eventually(t, "the other one leads", func() bool {
				return long.Status().Role == membership.Leader && long.Status().Ready
			})
			if took := time.Since(died); took > limit {
				t.Errorf("the election took %v", took)
			}
		})
	}
}

// TestLateAskerDeposesNobody asks a follower to stand for election late: in the name of another
// follower, in its own for an earlier term, and while it stores its vote for another.
func TestLateAskerDeposesNobody(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newSlowCluster(t, 3)
		lead, first, second := c.leader(), c.followers()[0], c.followers()[1]
		c.write(lead, "before")
		c.converged()
		term := lead.raft.CurrentTerm()
		first.findings.standsIn.Store(term - 1)
		for _, by := range []*Node{first, second} {
			addr, _ := by.ServerAddr(raft.ServerID(first.cfg.ID))
			err := by.askToStand(raft.ServerID(first.cfg.ID), addr)
			if err == nil || err.Error() != errElected.Error() {
				t.Errorf("%s asks: %v", by.cfg.ID, err)
			}
		}
		slowPromises(t, second, 200*time.Millisecond)
		c.net.isolate(lead.cfg.ID)
		first.stand(term)
		time.Sleep(100 * time.Millisecond)
		second.stand(term)
		eventually(t, "the first one leads", func() bool {
			return first.Status().Role == membership.Leader && first.Status().Ready
		})
		time.Sleep(slowBeat)
		if now := first.raft.CurrentTerm(); now != term+1 ||
			first.Status().Role != membership.Leader {
			t.Errorf("term %d after %d", now, term)
		}
	})
}

// TestFormerLeaderMayNotAsk asks a follower that knows no leader to stand, in the name of the
// former one: others may have elected another since.
func TestFormerLeaderMayNotAsk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newSlowCluster(t, 3)
		lead, lone := c.leader(), c.followers()[0]
		term := lone.raft.CurrentTerm()
		c.net.isolate(lone.cfg.ID)
		eventually(t, "it knows no leader", func() bool {
			_, leader := lone.raft.LeaderWithID()
			return leader == ""
		})
		err := askToStandNow(t, lone, lead.cfg.ID)
		if err == nil || err.Error() != errElected.Error() || lone.raft.CurrentTerm() != term {
			t.Errorf("%v; term %d after %d", err, lone.raft.CurrentTerm(), term)
		}
	})
}

// TestNewLeaderIsNotDeposed has a follower ask itself to stand while it stores the term of a leader
// that was elected without it: by that leader's first message, or its snapshot.
func TestNewLeaderIsNotDeposed(t *testing.T) {
	for _, sends := range []string{"entries", "a snapshot"} {
		runSimulated(t, sends, func(t *testing.T) {
			c := newSlowCluster(t, 3)
			lead, first, second := c.leader(), c.followers()[0], c.followers()[1]
			c.write(lead, "before")
			c.converged()
			term := lead.raft.CurrentTerm()
			c.net.isolate(second.cfg.ID)
			if err := lead.TransferLeadership(first.cfg.ID); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the first one leads", func() bool { return first.leadsIn(term + 1) })
			slowPromises(t, second, 200*time.Millisecond)
			addr, _ := first.ServerAddr(raft.ServerID(first.cfg.ID))
			header := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
				ID: []byte(first.cfg.ID), Addr: []byte(addr)}
			rpc := raft.RPC{RespChan: make(chan raft.RPCResponse, 1),
				Command: &raft.AppendEntriesRequest{RPCHeader: header, Term: term + 1}}
			if sends == "a snapshot" {
				rpc.Reader = strings.NewReader("")
				rpc.Command = &raft.InstallSnapshotRequest{RPCHeader: header, Term: term + 1,
					LastLogIndex: 1 << 20, LastLogTerm: term + 1, Size: 1}
			}
			go second.transport.deliver(rpc)
			time.Sleep(100 * time.Millisecond)
			if got := second.raft.CurrentTerm(); got != term {
				t.Fatalf("term %d after %d: nothing is shown", got, term)
			}
			second.findings.standsIn.Store(term)
			err := askToStandNow(t, second, second.cfg.ID)
			if err == nil || err.Error() != errElected.Error() {
				t.Errorf("asked to stand: %v", err)
			}
			if now := second.raft.CurrentTerm(); now != term+1 {
				t.Errorf("term %d after %d", now, term)
			}
		})
	}
}

// askToStandNow has a request of a node to stand for election arrive at n, and returns the answer.
func askToStandNow(t *testing.T, n *Node, by string) error {
	t.Helper()
	answer := make(chan raft.RPCResponse, 1)
	n.transport.deliver(raft.RPC{RespChan: answer, Command: &raft.TimeoutNowRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(by)}}})
	return wait.Receive(t, 10*time.Second, "the answer", answer).Error
}

// TestLeaderThatOneFollowerLosesStays breaks the connections of one follower to the leader, which
// others reach: the follower finds it dead alone.
func TestLeaderThatOneFollowerLosesStays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newSlowCluster(t, 3)
		lead, lone, other := c.leader(), c.followers()[0], c.followers()[1]
		term := lead.raft.CurrentTerm()
		c.net.refuse(lone.cfg.ID, lead.cfg.ID)
		eventually(t, "the other follower was told", func() bool {
			other.findings.mu.Lock()
			defer other.findings.mu.Unlock()
			return other.findings.others[lone.cfg.ID].term == term
		})
		for range 50 {
			c.write(lead, "w")
		}
		c.converged()
		if s := lead.Status(); s.Role != membership.Leader || lead.raft.CurrentTerm() != term {
			t.Errorf("the leader of term %d is %v in term %d", term, s.Role,
				lead.raft.CurrentTerm())
		}
	})
}

func TestTurnToStand(t *testing.T) {
	now := time.Unix(1000, 0)
	const beat = 400 * time.Millisecond
	const headStart = beat / headStartDen
	says := func(index uint64, ago time.Duration) finding {
		return finding{term: 7, lastIndex: index, at: now.Add(-ago)}
	}
	var members raft.Configuration
	for _, id := range []string{"n1", "n2", "n3", "n4", "n5"} {
		members.Servers = append(members.Servers, raft.Server{ID: raft.ServerID(id)})
	}
	three := raft.Configuration{Servers: members.Servers[:3]}
	learner := raft.Server{ID: "n9", Suffrage: raft.Nonvoter}
	for _, c := range []struct {
		name     string
		members  raft.Configuration
		others   map[string]finding
		wait     time.Duration
		majority bool
	}{
		{"alone", three, nil, 0, false},
		{"both", three, map[string]finding{"n3": says(9, 0)}, 0, true},
		{"the other has more", three, map[string]finding{"n3": says(10, 0)}, headStart, true},
		{"the other goes first", three, map[string]finding{"n1": says(9, 0)}, headStart, true},
		{"the other has a slow disk", three, map[string]finding{"n1": {term: 7, lastIndex: 9,
			stores: beat / 16, at: now}}, voteStores * beat / 16, true},
		{"the other's disk hangs", three, map[string]finding{"n1": {term: 7, lastIndex: 9,
			stores: time.Hour, at: now}}, beat, true},
		{"of another term", three, map[string]finding{"n3": {term: 6, lastIndex: 9, at: now}}, 0,
			false},
		{"long ago", three, map[string]finding{"n3": says(9, 2*beat)}, 0, false},
		{"a learner", raft.Configuration{Servers: append(three.Servers[:3:3], learner)},
			map[string]finding{"n9": says(9, 0)}, 0, false},
		{"two of five", members, map[string]finding{"n3": says(9, 0)}, 0, false},
		{"three of five", members, map[string]finding{"n3": says(9, 0), "n4": says(9, 0)},
			headStart, true},
		{"four of five", members, map[string]finding{"n3": says(9, 0), "n4": says(9, 0),
			"n5": says(10, 0)}, headStart, true},
	} {
		d := findings{own: says(9, time.Millisecond), others: c.others}
		at, majority := d.turn(c.members, "n2", now, beat)
		if wait := at.Sub(now); majority != c.majority || majority && wait != c.wait {
			t.Errorf("%s: %v after %v, want %v after %v", c.name, majority, wait, c.majority,
				c.wait)
		}
	}
}

// slowFile takes its time to become durable.
type slowFile struct {
	types.WritableFile
	takes time.Duration
}

func (f slowFile) Sync() error {
	time.Sleep(f.takes)
	return f.WritableFile.Sync()
}

type slowFiles struct {
	disk.System
	takes time.Duration
}

func (v slowFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.System.OpenWriter(dir, name)
	return slowFile{f, v.takes}, err
}

// slowPromises has a node take its time to store its promises.
func slowPromises(t *testing.T, n *Node, takes time.Duration) {
	t.Helper()
	s := n.stores.stable
	s.mu.Lock()
	defer s.mu.Unlock()
	slots, _, err := disk.OpenSlots(slowFiles{disk.NewSystem(), takes}, n.cfg.DataDir, promisesName,
		promisesSlot)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.slots.Close(); err != nil {
		t.Error(err)
	}
	s.slots = slots
}

// TestElectionOnSlowDisks kills leaders whose followers store a vote slowly: the second follower
// waits until the first has won.
func TestElectionOnSlowDisks(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newSlowCluster(t, 3)
		for _, n := range c.nodes {
			slowPromises(t, n, 200*time.Millisecond)
		}
		lead := c.leader()
		if err := lead.TransferLeadership(""); err != nil { // they learn how slow they are
			t.Fatal(err)
		}
		lead = c.leader()
		c.write(lead, "before")
		c.converged()
		term := lead.raft.CurrentTerm()
		c.die(lead.cfg.ID)
		eventually(t, "another node leads", func() bool {
			return slices.ContainsFunc(slices.Collect(maps.Values(c.nodes)), func(n *Node) bool {
				s := n.Status()
				return n != lead && s.Role == membership.Leader && s.Ready
			})
		})
		for _, n := range c.nodes {
			if now := n.raft.CurrentTerm(); n != lead && now != term+1 {
				t.Errorf("%s is in term %d, after one election from %d", n.cfg.ID, now, term)
			}
		}
	})
}

// TestUnfitMemberDeclines: a member that cannot lead says so before it raises the term, and is not
// chosen.
func TestUnfitMemberDeclines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, unfit, fit := c.leader(), c.followers()[0], c.followers()[1]
		c.converged()
		settled(t, lead) // another entry would show that it stores again
		unfit.logs.storeFailure.Store(&storeFailure{err: errors.New("full"), at: time.Now()})
		term := lead.raft.CurrentTerm()
		err := lead.TransferLeadership(unfit.cfg.ID)
		if !errors.Is(err, ErrRefused) || lead.raft.State() != raft.Leader ||
			unfit.raft.CurrentTerm() != term {
			t.Errorf("%v, and the member is in term %d, not %d", err, unfit.raft.CurrentTerm(),
				term)
		}
		eventually(t, "the leader knows it", func() bool {
			next, err := lead.successor("")
			l := lead.link(unfit.cfg.ID)
			l.ask(0)
			return err == nil && string(next.ID) == fit.cfg.ID && l.unfit
		})
	})
}
