package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/detector"
)

// raft has f send messages of Raft to the node n under an id.
func (i intruder) raft(n *Node, id string, f func(*raft.NetworkTransport, raft.RPCHeader)) {
	i.first, i.ended = []byte{streamRaft}, make(chan struct{})
	for _, word := range []string{n.cfg.ID, n.incarnation, n.clusterID()} {
		i.first = append(append(i.first, byte(len(word))), word...)
	}
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: i,
		Timeout: 10 * time.Second, Logger: newRaftLogger(testLogger())})
	defer trans.Close()
	f(trans, raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id),
		Addr: []byte(id)})
}

// TestStandings has nodes of each standing send everything that the peer port takes, with their own
// certificates and under their own ids, in a term that would depose the leader.
func TestStandings(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca := newCA(t)
		c := newCluster(t, 3, func(cfg *Config) {
			ca.useTLS(PeerTLSRequired)(cfg)
			cfg.Learner = cfg.ID == "n4"
		})
		for _, id := range []string{"n4", "n5"} {
			n := c.joiner(id, true)
			if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: id,
				PeerAddr: n.Status().PeerAddr}); err != nil {
				t.Fatal(err)
			}
			c.ready(id)
		}
		c.awaitVoters("n1", "n2", "n3", "n5")
		err := c.leader().ChangeMembers(membership.Change{Kind: membership.Remove, ID: "n5"})
		if err != nil {
			t.Fatal(err)
		}
		c.close("n5")
		c.write(c.leader(), "a")
		c.converged()
		var rest []*Node
		for _, n := range c.followers() {
			if n.cfg.ID != "n4" {
				rest = append(rest, n)
			}
		}
		victim, voter := rest[0], rest[1].cfg.ID
		const hellos, votes = 1, 2 // what a node may send, and votes and the rest of Raft
		for id, may := range map[string]int{voter: hellos | votes, "n4": hellos, "n5": 0, "n6": 0} {
			term := victim.raft.CurrentTerm()
			in := intruder{dial: c.net.dialer(id), addr: victim.Status().PeerAddr,
				files: ca.files("prod", id)}
			for _, kind := range []byte{streamForward, streamAdmin} {
				in.first = []byte{kind}
				got, err := in.hello(hello{version: protocolVersion, id: id,
					cluster:     victim.clusterID(),
					incarnation: victim.view().register.incarnations[id]})
				if err != nil || (got.refusal == "") != (may&hellos != 0) {
					t.Errorf("hello of %s, %c: %q %v", id, kind, got.refusal, err)
				}
			}
			if may&votes == 0 {
				term += 10
			}
			in.raft(victim, id, func(trans *raft.NetworkTransport, header raft.RPCHeader) {
				check := func(what string, err error) {
					t.Helper()
					if (err == nil) != (may&votes != 0) {
						t.Errorf("%s of %s: %v", what, id, err)
					}
				}
				check("a vote", trans.RequestVote("", "", &raft.RequestVoteRequest{
					RPCHeader: header, Term: term}, &raft.RequestVoteResponse{}))
				check("a pre-vote", trans.RequestPreVote("", "", &raft.RequestPreVoteRequest{
					RPCHeader: header, Term: term}, &raft.RequestPreVoteResponse{}))
				check("a heartbeat", trans.AppendEntries("", "", &raft.AppendEntriesRequest{
					RPCHeader: header, Term: term}, &raft.AppendEntriesResponse{}))
				if may&votes != 0 {
					term-- // nothing comes of it
				}
				check("an entry", trans.AppendEntries("", "", &raft.AppendEntriesRequest{
					RPCHeader: header, Term: term, PrevLogEntry: victim.raft.LastIndex(),
					PrevLogTerm: victim.raft.CurrentTerm(), LeaderCommitIndex: 1 << 40,
					Entries: []*raft.Log{{Index: victim.raft.LastIndex() + 1, Term: term,
						Data: newToy().AppendEntry(nil, 1, 0, [][]byte{[]byte("evil")})}},
				}, &raft.AppendEntriesResponse{}))
				check("a snapshot", trans.InstallSnapshot("", "", &raft.InstallSnapshotRequest{
					RPCHeader: header, SnapshotVersion: 1, Term: term, Size: 1 << 20},
					&raft.InstallSnapshotResponse{}, io.LimitReader(zeroReader{}, 1<<20)))
				if may&votes == 0 {
					check("a call to stand", trans.TimeoutNow("", "", &raft.TimeoutNowRequest{
						RPCHeader: header}, &raft.TimeoutNowResponse{}))
				}
			})
		}
		c.write(victim, "b")
		c.converged()
	})
}

// TestUnknownLeader: a node that was away follows a leader that became a member meanwhile.
func TestUnknownLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 5, nil)
		c.write(c.leader(), "a")
		c.converged()
		c.close("n5")
		n6 := c.joiner("n6", true)
		if err := c.leader().ChangeMembers(membership.Change{Kind: membership.Add, ID: "n6",
			PeerAddr: n6.Status().PeerAddr}); err != nil {
			t.Fatal(err)
		}
		c.awaitVoters("n1", "n2", "n3", "n4", "n5", "n6")
		eventually(t, "n6 leads", func() bool {
			return c.leader() == n6 || c.leader().TransferLeadership("n6") == nil
		})
		c.write(n6, "b")
		c.reopen("n5")
		if is := c.nodes["n5"].ownStanding("n6"); is != standingNone {
			t.Fatalf("n5 knows n6 as %v: the test shows nothing", is)
		}
		c.ready("n5")
		c.converged()
	})
}

// TestLostDiskByAStranger: only members of its configuration end a node of no cluster, by knowing
// that it had data.
func TestLostDiskByAStranger(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca := newCA(t)
		c := emptyCluster(t)
		ln := c.net.listen(t, "n1", "")
		c.change = ca.useTLS(PeerTLSRequired)
		c.members = []Member{{ID: "n1", PeerAddr: ln.Addr().String()},
			{ID: "n2", PeerAddr: "10.9.9.9:1"}}
		c.open("n1", ln)
		n1 := c.nodes["n1"]
		says := func(id string) {
			in := intruder{dial: c.net.dialer(id), addr: ln.Addr().String(),
				files: ca.files("prod", id), first: []byte{streamRaft}}
			for _, word := range []string{"n1", "earlier", "a cluster"} {
				in.first = append(append(in.first, byte(len(word))), word...)
			}
			conn, err := in.Dial("", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("the connection was taken")
			}
			in.first = []byte{streamForward}
			if got, err := in.hello(hello{version: protocolVersion, id: id, cluster: "another",
				incarnation: "x", expects: "earlier", to: "n1"}); err != nil || got.refusal == "" {
				t.Errorf("%+v, %v", got, err)
			}
		}
		if says("n6"); n1.failure.Load() {
			t.Fatal("it ends for what a stranger says:", n1.lost)
		}
		if says("n2"); !n1.failure.Load() {
			t.Error("it does not end for what a member says")
		}
	})
}

// TestVouchers: what was said is asked again before it is too old, and about strangers beside it,
// of whom few are asked about and few are remembered.
func TestVouchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &vouchers{}
		ask := func(id string, is standing) {
			if v.begin(id) {
				v.note(id, is)
			}
		}
		ask("n6", standingVoter)
		if v.begin("n6") {
			t.Error("it is asked again at once")
		}
		time.Sleep(vouchedFor/2 + time.Millisecond)
		for i := range maxAbout - 1 {
			if !v.begin(fmt.Sprint("stranger", i)) {
				t.Error("a stranger is not asked about")
			}
		}
		if !v.begin("n6") || v.begin("one more") || v.standing("n6") != standingVoter {
			t.Error("it is not asked again in time, or too many are asked about")
		}
		v.note("n6", standingVoter)
		for i := range 3 * maxVouched {
			ask(fmt.Sprint("another", i), standingNone)
		}
		if len(v.said) > maxVouched || v.standing("n6") != standingVoter {
			t.Errorf("%d are remembered, n6 as %v", len(v.said), v.standing("n6"))
		}
		time.Sleep(vouchedFor)
		if is := v.standing("n6"); is != 0 {
			t.Errorf("what was said long ago counts: %v", is)
		}
	})
}

// TestAllMembersReplaced: a node that was away while all others were replaced finds members of its
// cluster by discovery, and follows.
func TestAllMembersReplaced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := emptyCluster(t)
		reopened := false
		c.openNodes(5, func(cfg *Config) {
			if !reopened {
				return
			}
			cfg.Discover = func(context.Context) (addrs []string, err error) {
				c.net.mu.Lock()
				defer c.net.mu.Unlock()
				return slices.Collect(maps.Keys(c.net.owner)), nil
			}
		})
		c.write(c.leader(), "a")
		c.converged()
		c.close("n5")
		for i := range 4 {
			old, new := fmt.Sprint("n", i+1), fmt.Sprint("n", i+6)
			n := c.joiner(new, true)
			c.changed(membership.Add, new, n.Status().PeerAddr)
			eventually(t, new+" is a voter", func() bool {
				return c.leader().ownStanding(new) == standingVoter
			})
			eventually(t, "another one leads", func() bool {
				return c.leader() != c.nodes[old] || c.leader().TransferLeadership("") == nil
			})
			c.changed(membership.Remove, old, "")
			c.close(old)
		}
		c.write(c.leader(), "b")
		reopened = true
		c.reopen("n5")
		c.ready("n5")
		c.converged()
	})
}

// TestNewestMajorityElects: each majority of the newest voters elects a leader, also if one of them
// has missed every change, and all who would know are gone.
func TestNewestMajorityElects(t *testing.T) {
	detector.Skip(t)
	for _, changes := range []string{"+4", "+4 -2", "+4 +5", "+4 +5 -1", "+4 -1 +5 -2"} {
		for _, without := range []bool{false, true} { // those who know as much as they can
			simulated(t, func(t *testing.T) { newestMajorityElects(t, changes, without) })
		}
	}
}

// newestMajorityElects has changes made that n3 misses (+: a new voter, -: one is removed), and
// closes all that a majority with n3 does not need.
func newestMajorityElects(t *testing.T, changes string, fromEnd bool) {
	c := newCluster(t, 3, nil)
	const away = "n3"
	c.write(c.leader(), "a")
	c.converged()
	c.close(away)
	for _, what := range strings.Fields(changes) {
		switch id := "n" + what[1:]; what[0] {
		case '+':
			c.changed(membership.Add, id, c.joiner(id, true).Status().PeerAddr)
			c.changed(membership.Promote, id, "")
		case '-':
			c.changed(membership.Remove, id, "")
			c.close(id)
		}
	}
	c.write(c.leader(), "b")
	voters := voters(c.leader().configuration())
	if !slices.Contains(voters, away) {
		t.Fatalf("%s: voters %q without %s", changes, voters, away)
	}
	stay := slices.DeleteFunc(voters, func(id string) bool { return id == away })
	if fromEnd {
		slices.Reverse(stay)
	}
	for _, id := range stay[(len(stay)+1)/2:] {
		c.close(id)
	}
	c.reopen(away)
	c.ready(away)
	if got := c.read(c.nodes[away], "all"); got != "a b" {
		t.Errorf("%s: %q", changes, got)
	}
	c.converged()
}

// TestNewestMajorityOfALearner: also if the one that was away is no voter in its own log, as it has
// missed its own promotion.
func TestNewestMajorityOfALearner(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		c.converged()
		add := func(id string) {
			t.Helper()
			addr := c.joiner(id, true).Status().PeerAddr
			c.changed(membership.Add, id, addr)
		}
		remove := func(id string) {
			t.Helper()
			c.changed(membership.Remove, id, "")
			c.close(id)
		}
		missed := ""
		for i := 10; missed == ""; i++ { // until one is neither too late nor too early
			id := fmt.Sprint("n", i)
			add(id)
			eventually(t, "it has caught up", func() bool {
				l := c.leader()
				lead := l.route.Load().lead
				return lead != nil && l.caughtUp(lead, id) == nil
			})
			c.net.isolate(id)
			err := c.leader().ChangeMembers(membership.Change{Kind: membership.Promote, ID: id})
			if err == nil && c.nodes[id].ownStanding(id) == standingLearner {
				missed = id
			} else if remove(id); i == 40 {
				t.Fatal(err)
			}
		}
		add("n5")
		c.awaitVoters("n1", missed, "n2", "n3", "n5") // sorted
		remove("n2")
		remove("n3")
		c.write(c.leader(), "b")
		c.close("n1")
		c.net.heal(missed)
		c.ready(missed)
		if got := c.read(c.nodes[missed], "all"); got != "a b" {
			t.Errorf("%q", got)
		}
	})
}

// TestWhoFollowsAnUnknownHasNoWord: a node whose leader is no voter in its log says of nobody that
// he is none: its leader's followers would disown him to each other.
func TestWhoFollowsAnUnknownHasNoWord(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n := c.followers()[0]
		was := n.route.Load()
		for leader, want := range map[string]standing{was.leaderID: standingNone,
			"n9": standingUnheard, "": standingUnheard} {
			r := *was
			r.leaderID = leader
			n.route.Store(&r)
			if got := n.whatIs("n8"); got != want {
				t.Errorf("following %q: %v, want %v", leader, got, want)
			}
			if got := n.whatIs("n1"); got != standingVoter {
				t.Errorf("following %q: a voter is %v", leader, got)
			}
			n.route.Store(was)
		}
	})
}

// TestEmptyNodesAreNotAskedAbout: a node that claims no membership makes nobody ask about it.
func TestEmptyNodesAreNotAskedAbout(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ca := newCA(t)
		c := newCluster(t, 3, ca.useTLS(PeerTLSRequired))
		n1 := c.nodes["n1"]
		for cluster, asked := range map[string]bool{"": false, n1.clusterID(): true} {
			id := map[bool]string{false: "n7", true: "n8"}[asked]
			in := intruder{dial: c.net.dialer(id), addr: n1.Status().PeerAddr,
				files: ca.files("prod", id), first: []byte{streamForward}}
			if got, err := in.hello(hello{version: protocolVersion, id: id, cluster: cluster,
				incarnation: "x"}); err != nil || got.refusal == "" {
				t.Errorf("%q: %+v, %v", cluster, got, err)
			}
			synctest.Wait()
			n1.vouchers.mu.Lock()
			_, said := n1.vouchers.said[id]
			if is := said || n1.vouchers.asking[id]; is != asked {
				t.Errorf("a node of cluster %q is asked about: %v", cluster, is)
			}
			n1.vouchers.mu.Unlock()
		}
	})
}
