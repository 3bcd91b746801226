// Tests of the cluster's identity: founding in any order, late founders, and lost disks.

package cluster

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// lateCluster is a cluster of which no node is open yet.
func lateCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	c := newCluster(t, size, nil)
	for _, m := range c.members {
		c.close(m.ID)
		c.wipe(m.ID)
	}
	c.trace = traced(t) // another history
	return c
}

// wipe empties the disk of a closed node.
func (c *testCluster) wipe(id string) {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Join(c.dir, id)); err != nil {
		c.t.Fatal(err)
	}
}

// fails waits until a node reports why it cannot take part, and closes it.
func (c *testCluster) fails(id, want string) {
	c.t.Helper()
	select {
	case err := <-c.nodes[id].Failed():
		if !strings.Contains(err.Error(), want) {
			c.t.Errorf("%s: %v, want %q", id, err, want)
		}
	case <-time.After(20 * time.Second):
		c.t.Fatalf("%s goes on: %+v", id, c.nodes[id].Status())
	}
	if s := c.nodes[id].Status(); s.Ready || s.Role == membership.Leader {
		c.t.Errorf("%s serves: %+v", id, s)
	}
	if err := errorOf(c.nodes[id].write(c.t.Context(), []byte("w"), 1)); err == nil ||
		!strings.Contains(err.Error(), want) {
		c.t.Errorf("%s answers a write with %v", id, err)
	}
	c.close(id)
}

func TestRegisterRoundTrip(t *testing.T) {
	for _, r := range []register{{"c1", map[string]string{}},
		{"c1", map[string]string{"n1": "aa", "n-2.x_": "bb"}}} {
		s := r.server()
		if got := registerOf(raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "h:1"},
			s}}); !reflect.DeepEqual(got, r) {
			t.Errorf("%+v came back as %+v", r, got)
		}
		if CheckID(string(s.ID)) == nil || !isPlaceholder(s) {
			t.Errorf("%+v could be a member", s)
		}
	}
	if r := registerOf(
		raft.Configuration{Servers: []raft.Server{{ID: "cluster",
			Address: "h:1"}}}); r.cluster != "" {
		t.Errorf("%+v", r)
	}
}

// TestFoundersInAnyOrder starts two founders of three, lets them work, and starts the third, which
// must be admitted.
func TestFoundersInAnyOrder(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := lateCluster(t, 3)
		c.reopen("n3")
		if s := c.nodes["n3"].Status(); s.Ready {
			t.Errorf("one alone: %+v", s)
		}
		c.reopen("n1")
		c.ready("n1")
		c.write(c.nodes["n1"], "a")
		id := c.nodes["n1"].clusterID()
		if id == "" || c.nodes["n1"].admitted("n2") {
			t.Errorf("cluster %q, the register %+v", id, c.nodes["n1"].view().register)
		}
		c.reopen("n2")
		c.ready("n2")
		c.write(c.nodes["n2"], "b")
		if got := c.converged(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q", got)
		}
		for _, m := range c.members {
			eventually(t, m.ID+" knows the cluster", func() bool {
				return c.nodes[m.ID].clusterID() == id
			})
		}
		// All of them stop, and one of the first two stays away: the one that came late counts like
		// any other.
		for _, m := range c.members {
			c.close(m.ID)
		}
		c.reopen("n2")
		c.reopen("n3")
		c.ready("n2")
		c.write(c.nodes["n2"], "c")
		if got := c.nodes["n2"].clusterID(); got != id {
			t.Errorf("after a restart the cluster is %q, it was %q", got, id)
		}
	})
}

// TestLostDisk empties each node of three in turn, also the leader: it must not vote, and reports
// so; the others continue.
func TestLostDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		for _, m := range c.members {
			eventually(t, "everyone is registered",
				func() bool { return c.leader().admitted(m.ID) })
		}
		const want = "has no data, but "
		for _, m := range c.members {
			saved := filepath.Join(c.dir, "saved")
			c.converged()
			c.close(m.ID)
			if err := os.Rename(filepath.Join(c.dir, m.ID), saved); err != nil {
				t.Fatal(err)
			}
			c.reopen(m.ID)
			c.fails(m.ID, "node "+m.ID+" "+want)
			c.write(c.leader(), "without "+m.ID)
			c.wipe(m.ID)
			if err := os.Rename(saved, filepath.Join(c.dir, m.ID)); err != nil {
				// the disk is found again
				t.Fatal(err)
			}
			c.reopen(m.ID)
			c.ready(m.ID)
		}
		c.converged()
	})
}

// TestEmptyMajority empties two nodes of three: while they reach the one with the data they must
// not found their own cluster.
func TestEmptyMajority(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		for _, m := range c.members {
			eventually(t, "everyone is registered",
				func() bool { return c.leader().admitted(m.ID) })
		}
		c.converged()
		for _, id := range []string{"n2", "n3"} {
			c.close(id)
			c.wipe(id)
		}
		id := c.nodes["n1"].clusterID()
		c.reopen("n2")
		c.reopen("n3")
		c.fails("n2", "node n2 has no data, but ")
		c.fails("n3", "node n3 has no data, but ")
		eventually(t, "n1 sees that it is alone",
			func() bool { return !c.nodes["n1"].Status().Ready })
		if c.nodes["n1"].clusterID() != id || !slices.Contains(c.toys["n1"].batches(), "a") {
			t.Errorf("n1: cluster %s, %q", c.nodes["n1"].clusterID(), c.toys["n1"].batches())
		}

		// While n1 cannot be reached nothing can be known: they found a cluster, and n1 is no part
		// of it.
		c.close("n1")
		c.reopen("n2")
		c.reopen("n3")
		c.ready("n2")
		c.write(c.nodes["n2"], "another")
		c.reopen("n1")
		refused := func() bool {
			l := c.nodes["n1"].link("n2")
			if l == nil {
				return false
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.claimed == c.nodes["n2"].clusterID() && l.wire == nil
		}
		eventually(t, "n1 meets the other cluster", refused)
		s := c.nodes["n1"].Status()
		if s.Ready || c.nodes["n1"].clusterID() != id {
			t.Errorf("n1 takes part: %+v", s)
		}
		if !slices.ContainsFunc(s.Members, func(m membership.Member) bool {
			return m.ID == "n2" && m.Elsewhere
		}) {
			t.Errorf("n1 does not say that n2 belongs to another cluster: %+v", s.Members)
		}
		select {
		case err := <-c.nodes["n1"].Failed():
			t.Errorf("n1 has the data and ends: %v", err)
		default:
		}
	})
}

// TestStrangersOfMembersIDs connects to a leader with the ids of other members: from another
// cluster, and from a lost disk. They are refused, and the leader keeps its links to the members.
func TestStrangersOfMembersIDs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "a")
		for _, f := range c.followers() {
			id := f.cfg.ID
			eventually(t, id+" is registered and connected", func() bool {
				return lead.admitted(id) && lead.link(id).up()
			})
			for _, stranger := range []hello{
				{version: protocolVersion, id: id, incarnation: "another", cluster: "staging"},
				{version: protocolVersion, id: id, incarnation: "another"},
			} {
				conn := c.net.connect(t, "stranger", lead.mux.Addr().String(),
					appendHello([]byte{streamForward}, stranger)...)
				if answer, err := readHello(conn); err != nil || answer.refusal == "" {
					t.Errorf("%+v was answered %+v %v", stranger, answer, err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, n := range c.nodes {
			if got, err := n.read(ctx, []byte("a")); err != nil || string(got) != "1" {
				t.Errorf("a read on %s: %q %v", n.cfg.ID, got, err)
			}
		}
		for _, m := range lead.Status().Members {
			if !m.Connected || m.ClientAddr != "client-"+m.ID+":1" {
				t.Errorf("%+v", m)
			}
		}
	})
}

// TestDialWhileFounded founds the cluster while a Raft connection is being opened: it must not
// stay, since it does not name the cluster.
func TestDialWhileFounded(t *testing.T) {
	simulated(t, func(t *testing.T) {
		w := newNetwork()
		ln := w.listen(t, "n1", "")
		var m *mux
		cluster := ""
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := w.dialer("n1")(ctx, addr)
			cluster = "founded"
			m.closeUnnamed()
			return conn, err
		}
		m = newMux(ln, "n1", ln.Addr().String(), dial, testLogger())
		defer m.Close()
		m.cluster = func() string { return cluster }
		if conn, err := m.Dial(raftAddr("n2", "", ln.Addr().String()), dialTimeout); !errors.Is(err,
			errFounded) {
			t.Errorf("%v %v", conn, err)
		}
		if len(m.conns)+len(m.unnamed) > 0 {
			t.Errorf("%d connections are left, %d without a cluster", len(m.conns), len(m.unnamed))
		}
		if _, err := m.Dial(raftAddr("n2", "", ln.Addr().String()), dialTimeout); err != nil {
			t.Errorf("the next one: %v", err)
		}
	})
}

// TestRaftConnectionsOfStrangers asks whether a node accepts Raft connections for another
// incarnation, from another cluster, and from none.
func TestRaftConnectionsOfStrangers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		n := c.nodes["n1"]
		eventually(t, "n1 knows the cluster", func() bool { return n.clusterID() != "" })
		for _, test := range []struct {
			incarnation, cluster string
			taken                bool
		}{
			{n.incarnation, n.clusterID(), true}, {"other", n.clusterID(), false},
			{"", n.clusterID(), false}, {n.incarnation, "other", false}, {n.incarnation, "", false},
			{"", "", false},
		} {
			err := n.admit(&stream{}, test.incarnation, test.cluster)
			if (err == nil) != test.taken {
				t.Errorf("%+v: %v", test, err)
			}
		}
		select {
		case err := <-n.Failed():
			t.Errorf("a node with data ends for what a stranger says: %v", err)
		default:
		}
		// A node that waits to join accepts only connections meant for it.
		late, err := Open(Config{ID: "n9", DataDir: filepath.Join(c.dir, "n9"),
			PeerListener: c.net.listen(t, "n9", ""), Join: true, Clock: c.clock("n9"),
			dial: c.net.dialer("n9")}, newToy())
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		if err := late.admit(&stream{}, "", n.clusterID()); err == nil {
			t.Error("a connection from a cluster that does not know its incarnation was taken")
		}
		if err := late.admit(&stream{}, late.incarnation, n.clusterID()); err != nil {
			t.Error(err)
		}
		// It believes nobody that it had data: it knows no member.
		if err := late.admit(&stream{}, "other", n.clusterID()); err == nil {
			t.Error("a connection for an earlier incarnation was taken")
		}
		if refusal, _ := late.checkIdentity(hello{version: protocolVersion, id: "n8",
			cluster: n.clusterID(), expects: "other", incarnation: "x"}); refusal == "" {
			t.Error("a node that knows of an earlier incarnation was taken")
		}
		if late.failure.Load() {
			t.Error("a node without data ends for what a stranger says:", late.lost)
		}
	})
}

// TestNodesOfOneArchitecture gives a founder another processor architecture, then the right one,
// then the other again: it takes part only in between.
func TestNodesOfOneArchitecture(t *testing.T) {
	simulated(t, func(t *testing.T) {
		arch := "abacus"
		c := openCluster(t, 3, func(cfg *Config) {
			if cfg.ID == "n3" {
				cfg.arch = arch
			}
		})
		c.ready("n1")
		c.write(c.nodes["n1"], "without")
		c.ready("n2")
		foreign := c.nodes["n3"]
		if s := foreign.Status(); s.Ready || foreign.fitToLead() ||
			len(c.toys["n3"].batches()) > 0 {
			t.Errorf("a node of another architecture takes part: %+v", s)
		}
		c.close("n3")
		arch = ""
		c.reopen("n3")
		c.write(c.nodes["n1"], "with")
		if got := c.converged(); !slices.Equal(got, []string{"without", "with"}) {
			t.Errorf("all have %q", got)
		}
		c.close("n3")
		arch = "abacus"
		c.reopen("n3")
		lead := c.leader()
		eventually(t, "the leader knows", func() bool {
			return lead.link("n3").foreign.Load() && !lead.admitted("n3")
		})
		c.write(lead, "again without")
		if got := c.toys["n3"].batches(); slices.Contains(got, "again without") {
			t.Errorf("the node got %q", got)
		}
	})
}
