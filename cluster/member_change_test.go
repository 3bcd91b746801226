// Tests of joining, removal and addresses on nodes in one process; internal/tests/e2e has those on
// real processes.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// joiner opens a node that waits to be added to the cluster.
func (c *testCluster) joiner(id string, join bool) *Node {
	c.t.Helper()
	toy := newToy()
	cfg := Config{ID: id, ClientAddr: "client-" + id + ":1", DataDir: filepath.Join(c.dir, id),
		PeerListener: c.net.listen(c.t, id, ""), Join: join, Clock: c.clock(id),
		dial: c.net.dialer(id), Logger: testLogger(), Trace: c.trace}
	if *overTLS {
		c.ca.useTLS(PeerTLSDial)(&cfg)
	}
	if c.change != nil {
		c.change(&cfg)
	}
	n, err := Open(cfg, toy)
	if err != nil {
		c.t.Fatal(err)
	}
	c.nodes[id], c.toys[id] = n, toy
	return n
}

// TestCopiedIDs: a node that is started with the id of one that runs, as with a copied file, is
// told to take another id. Nothing changes: a learner would be sent to and fro between two
// addresses, and whoever removed that id, as after the loss of a disk, would remove the one that
// runs.
func TestCopiedIDs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Learner = cfg.ID == "n4" })
		c.write(c.leader(), "a")
		n4 := c.joiner("n4", true)
		lead := c.leader()
		add := func(id, addr string) error {
			return lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: id,
				PeerAddr: addr})
		}
		eventually(t, "the learner is added", func() bool {
			return add("n4", n4.mux.Addr().String()) == nil
		})
		c.ready("n4")
		ids := []string{"n1", "n2", "n3", "n4"}
		eventually(t, "the leader hears from all", func() bool {
			return !slices.ContainsFunc(ids, func(id string) bool { return lead.runsAt(id) == "" })
		})
		cfg := Config{ID: "n4", ClientAddr: "client-twin:1", DataDir: filepath.Join(c.dir, "twin"),
			PeerListener: c.net.listen(t, "twin", ""), Join: true, Learner: true,
			Clock: newTestClock(), dial: c.net.dialer("twin"), Logger: testLogger()}
		if *overTLS {
			c.ca.useTLS(PeerTLSDial)(&cfg)
		}
		twin, err := Open(cfg, newToy())
		if err != nil {
			t.Fatal(err)
		}
		defer twin.Close()
		copied := twin.mux.Addr()
		before := lead.machine.members.Load().index
		for _, id := range ids {
			at := c.nodes[id].mux.Addr().String()
			err := add(id, copied.String())
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "runs at "+at) ||
				!strings.HasSuffix(err.Error(), actOfATwin) {
				t.Errorf("another %s, though one runs at %s: %v", id, at, err)
			}
			if id == lead.cfg.ID {
				continue // it does not greet itself
			}
			if why, lost := lead.checkIdentity(hello{version: protocolVersion, id: id,
				incarnation: "copied"}); !lost || !strings.Contains(why, "runs at "+at) ||
				!strings.HasSuffix(why, actOfATwin) || strings.Contains(why, "RAFT REMOVE") {
				t.Errorf("an empty %s, though one runs at %s: %q", id, at, why)
			}
		}
		if err := add("n4", "10.0.0.98:1"); !errors.Is(err, ErrNotRun) ||
			!strings.Contains(err.Error(), "runs at "+n4.mux.Addr().String()) {
			t.Errorf("n4 where nobody answers: %v", err)
		}
		if err := add("n4", n4.mux.Addr().String()); err != nil {
			t.Errorf("a node asks again until it is added: %v", err)
		}
		c.write(lead, "b")
		if now := lead.machine.members.Load().index; now != before {
			t.Errorf("entry %d changed the members, the newest was %d", now, before)
		}

		// the one that ran is gone: its disk may be lost, or it was added with a wrong address
		c.close("n4")
		eventually(t, "the leader hears no more", func() bool { return lead.runsAt("n4") == "" })
		if why, lost := lead.checkIdentity(hello{version: protocolVersion, id: "n4",
			incarnation: "copied"}); !lost || !strings.Contains(why, "RAFT REMOVE n4") {
			t.Errorf("an empty n4: %q", why)
		}
		if err := add("n4", "10.0.0.99:1"); err != nil {
			t.Errorf("the address of a learner that is away: %v", err)
		}
	})
}

// TestHangingJoinersHoldUpNobody has nodes ask to be added whose addresses accept connections and
// answer nothing. Meanwhile another one joins and gets its vote.
func TestHangingJoinersHoldUpNobody(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		lead := c.leader()
		var asking sync.WaitGroup
		defer asking.Wait()
		done := make(chan struct{})
		defer close(done)
		for i := range 3 {
			ln := c.net.listen(t, fmt.Sprint("hangs", i), "")
			t.Cleanup(func() { ln.Close() })
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					t.Cleanup(func() { conn.Close() })
				}
			}()
			asking.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					err := lead.ChangeMembers(membership.Change{Kind: membership.Add,
						ID: fmt.Sprint("hangs", i), PeerAddr: ln.Addr().String()})
					if !errors.Is(err, ErrNotRun) {
						t.Errorf("a node that does not answer: %v", err)
					}
				}
			})
		}
		n4 := c.joiner("n4", true)
		if err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
			PeerAddr: n4.Status().PeerAddr}); err != nil {
			t.Error(err)
		}
		eventually(t, "n4 votes", func() bool {
			return slices.Contains(voters(lead.configuration()), "n4")
		})
	})
}

// TestNothingIsSoBeforeItIsCommitted asks a leader that is cut off twice for a change, which is in
// its log alone: the second answer must not be that it is so already. The next leader knows nothing
// of it. Then all that ask at a time for the same node to be added are told so once it is.
func TestNothingIsSoBeforeItIsCommitted(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 4, func(cfg *Config) { cfg.Learner = cfg.ID == "n4" })
		eventually(t, "three vote", func() bool {
			return len(voters(c.leader().configuration())) == 3
		})
		addr := c.joiner("n5", true).Status().PeerAddr
		add := membership.Change{Kind: membership.Add, ID: "n5", PeerAddr: addr}
		for _, change := range []membership.Change{add, {Kind: membership.Remove, ID: "n4"}} {
			c.converged()
			lead := c.leader()
			_, was := lead.member(change.ID)
			c.net.isolate(lead.cfg.ID)
			first := make(chan error, 1)
			go func() { first <- lead.ChangeMembers(change) }()
			eventually(t, "the change is in the leader's log", func() bool {
				_, is := lead.member(change.ID)
				return is != was
			})
			if err := lead.ChangeMembers(change); !errors.Is(err, ErrNotRun) {
				t.Errorf("%s %s again: %v", change.Kind, change.ID, err)
			}
			if err := <-first; !errors.Is(err, ErrUnknown) {
				t.Errorf("%s %s: %v", change.Kind, change.ID, err)
			}
			c.net.heal(lead.cfg.ID)
			if _, is := c.leader().member(change.ID); is != was {
				t.Errorf("%s %s was made", change.Kind, change.ID)
			}
		}
		c.converged()
		lead := c.leader()
		var asking sync.WaitGroup
		for range 3 {
			asking.Go(func() {
				err := lead.ChangeMembers(add)
				known := lead.machine.members.Load().configuration.Servers
				if err != nil || !slices.ContainsFunc(known, func(s raft.Server) bool {
					return s.ID == "n5"
				}) {
					t.Errorf("%v; committed: %v", err, known)
				}
			})
		}
		asking.Wait()
	})
}

// TestForeignersAreNotAdded asks to add a node that has data of another cluster.
func TestForeignersAreNotAdded(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "a")
		other := c.joiner("x1", false)
		eventually(t, "x1 leads another cluster", func() bool { return other.Status().Ready })
		err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "x1",
			PeerAddr: other.Status().PeerAddr})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "belongs to cluster") {
			t.Errorf("x1: %v", err)
		}
	})
}

// TestJoinerFoundsNothing starts a node to join, and, before it was added, again without Join and
// at another address: it must not found its own cluster, since its first request may have been
// heard.
func TestJoinerFoundsNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n2 := c.joiner("n2", true)
		if s := n2.Status(); !s.Joining || s.Ready || len(s.Members) != 0 {
			t.Errorf("before: %+v", s)
		}
		if err := c.nodes["n1"].ChangeMembers(membership.Change{Kind: membership.Add, ID: "n2",
			PeerAddr: "127.0.0.1:1"}); err != nil {
			t.Fatal(err)
		}
		c.close("n2")
		n2 = c.joiner("n2", false)
		if s := n2.Status(); !s.Joining {
			t.Errorf("again: %+v", s)
		}
		if err := c.nodes["n1"].ChangeMembers(membership.Change{Kind: membership.Add, ID: "n2",
			PeerAddr: n2.Status().PeerAddr}); err != nil {
			t.Fatal(err)
		}
		c.write(c.nodes["n1"], "a")
		eventually(t, "n2 votes", func() bool {
			s, ok := c.nodes["n1"].member("n2")
			return ok && s.Suffrage == raft.Voter
		})
		c.ready("n2")
		if got := c.read(n2, "a"); got != "1" {
			t.Errorf("n2 reads %q", got)
		}
		// With state of its own it needs no flag any more.
		c.close("n2")
		n2 = c.joiner("n2", false)
		c.ready("n2")
		eventually(t, "n2's new address is in the configuration", func() bool {
			s, _ := c.nodes["n1"].member("n2")
			return string(s.Address) == n2.Status().PeerAddr
		})
	})
}

// TestRemovedWhileAway removes a node that is down: it learns so when it is back, and remembers it.
func TestRemovedWhileAway(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		gone := c.followers()[0].cfg.ID
		c.close(gone)
		err := c.leader().ChangeMembers(membership.Change{Kind: membership.Remove, ID: gone})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			c.reopen(gone)
			n := c.nodes[gone]
			select {
			case <-n.Removed():
			case <-time.After(20 * time.Second):
				t.Fatal("it was not told")
			}
			for what, err := range map[string]error{
				"write":  errorOf(n.write(t.Context(), []byte("w"), 1)),
				"read":   errorOf(n.read(t.Context(), []byte("r"))),
				"local":  errorOf(n.readLocal([]byte("r"))),
				"change": n.ChangeMembers(membership.Change{Kind: membership.Remove, ID: "n1"}),
			} {
				if !errors.Is(err, ErrNotRun) || !strings.Contains(err.Error(),
					"node "+gone+" was removed from the cluster") {
					t.Errorf("%s: %v", what, err)
				}
			}
			if s := n.Status(); !s.Removed || s.Ready {
				t.Errorf("%+v", s)
			}
			c.close(gone)
		}
		c.write(c.leader(), "goes on")
	})
}

func errorOf(_ []byte, err error) error { return err }

// dialOnly gives a Raft transport a node's way to others, and none of what they open to it.
type dialOnly struct {
	*mux
	closed chan struct{}
}

func (d dialOnly) Accept() (net.Conn, error) { <-d.closed; return nil, net.ErrClosed }

func (d dialOnly) Close() error { close(d.closed); return nil }

// TestRaftConnectionForAnotherNode dials a node as if it were another: its answers must not count
// as the other's.
func TestRaftConnectionForAnotherNode(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n1, n2 := c.nodes["n1"], c.nodes["n2"]
		for _, n := range []*Node{n1, n2} {
			eventually(t, n.cfg.ID+" knows the cluster", func() bool { return n.clusterID() != "" })
		}
		for _, to := range []struct {
			id, incarnation string
			taken           bool
		}{{"n2", n1.incarnation, false}, {"", n1.incarnation, false}, {"n1", "other", false},
			{"n1", "", false}, {"n1", n1.incarnation, true}} {
			transport := raft.NewNetworkTransport(dialOnly{n2.mux, make(chan struct{})}, 1,
				20*time.Second, io.Discard)
			var answer raft.AppendEntriesResponse
			// of term 0: it has no effect
			old := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{
				ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2")}}
			addr := raftAddr(to.id, to.incarnation, n1.mux.Addr().String())
			err := transport.AppendEntries("n1", addr, &old, &answer)
			var timeout net.Error
			switch {
			case errors.As(err, &timeout) && timeout.Timeout():
				t.Errorf("a connection for %+v is neither answered nor ended", to)
			case (err == nil) != to.taken || to.taken && answer.Term == 0:
				t.Errorf("a connection for %+v: %v, the answer has term %d", to, err, answer.Term)
			}
			if err := transport.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := n2.mux.Dial("127.0.0.1:1", time.Second); err == nil {
			t.Error("an address without an id was dialled")
		}
	})
}

// TestTransferLosesNothing transfers leadership around under load: no write has an unknown outcome.
func TestTransferLosesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		stop, failures := make(chan struct{}), make(chan error, 9)
		for _, n := range c.nodes {
			for range 3 {
				go func() {
					for {
						select {
						case <-stop:
							failures <- nil
							return
						default:
						}
						if _, err := n.write(t.Context(), []byte("w"), 1); err != nil {
							failures <- err
							return
						}
					}
				}()
			}
		}
		for range 6 {
			n := c.followers()[0]
			if err := n.ChangeMembers(membership.Change{Kind: membership.Transfer}); err != nil {
				t.Error(err)
			}
			c.leader()
		}
		close(stop)
		for range 9 {
			if err := <-failures; err != nil {
				t.Errorf("a write failed: %v", err)
			}
		}
	})
}

// TestTwoVotersRemovedAtOnce asks for two removals at once, of four voters of which one is down.
// After either of them the cluster works, after both it could not commit.
func TestTwoVotersRemovedAtOnce(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 4, nil)
		lead, others := c.leader(), c.followers()
		down := others[2].cfg.ID
		c.close(down)
		eventually(t, "the leader misses it", func() bool { return !lead.link(down).up() })
		errs := make(chan error, 2)
		for _, n := range others[:2] {
			go func() {
				errs <- lead.ChangeMembers(membership.Change{Kind: membership.Remove,
					ID: n.cfg.ID})
			}()
		}
		removed := 0
		for range cap(errs) {
			if err := <-errs; err == nil {
				removed++
			} else if !errors.Is(err, ErrRefused) {
				t.Errorf("a removal: %v", err)
			}
		}
		if removed != 1 {
			t.Errorf("%d of two removals were made", removed)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := lead.write(ctx, []byte("w"), 1); err != nil {
			t.Errorf("the rest cannot write: %v", err)
		}
	})
}

// TestNoAnswerWhileTheAddressIsReplaced: Raft reads a member after its answer without the lock
// under which it writes the member's address, so such an answer is none.
func TestNoAnswerWhileTheAddressIsReplaced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, n := c.leader(), c.followers()[0]
		c.converged()
		id, target := raft.ServerID(n.cfg.ID), raft.ServerAddress(n.mux.Addr().String())
		send := func() error {
			req := &raft.AppendEntriesRequest{Term: lead.raft.CurrentTerm(), LeaderCommitIndex: 1,
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
					ID: []byte(lead.cfg.ID), Addr: []byte(lead.mux.Addr().String())}}
			return lead.transport.AppendEntries(id, target, req, &raft.AppendEntriesResponse{})
		}
		for _, test := range []struct {
			moving *raft.Server
			want   error
		}{
			{nil, nil},
			{&raft.Server{ID: id, Address: "other"}, errMoving},
			{&raft.Server{ID: id, Address: target}, nil},
			{&raft.Server{ID: "another", Address: "other"}, nil},
		} {
			lead.transport.moving.Store(test.moving)
			if err := send(); !errors.Is(err, test.want) {
				t.Errorf("moving %v: %v, want %v", test.moving, err, test.want)
			}
		}
		lead.transport.moving.Store(nil)
	})
}

// Leadership goes to no member that has the log and has not applied it: that would not stand for
// election, and everybody would wait.
func TestTransferToWhoReplays(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, slow := c.leader(), c.followers()[0].cfg.ID
		c.write(lead, "w")
		c.converged()
		c.toys[slow].apply.Lock()
		c.write(lead, "it has that, and has not applied it")
		eventually(t, "it has the log", func() bool {
			l := lead.link(slow)
			l.ask(0)
			return l.holds(lead.raft.CurrentTerm(), lead.raft.LastIndex(), 0)
		})
		err := lead.ChangeMembers(membership.Change{Kind: membership.Transfer, ID: slow})
		if !errors.Is(err, ErrRefused) || lead.raft.State() != raft.Leader {
			t.Errorf("a member that replays: %v, then %v", err, lead.raft.State())
		}
		c.toys[slow].apply.Unlock()
		c.converged()
		err = lead.ChangeMembers(membership.Change{Kind: membership.Transfer, ID: slow})
		if err != nil {
			t.Error(err)
		}
	})
}
