// Tests of certainty when a leader stops, transfers leadership, or changes the members.

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// TestDrainNoticeFollowsReplies: a drain notice says that everything was answered. If it overtook a
// reply, the member would send a write again that ran.
func TestDrainNoticeFollowsReplies(t *testing.T) {
	simulated(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		w := newPeerConn(here, bufio.NewReader(here))
		in := &inbound{n: &Node{setup: setup{cfg: Config{batchReply: maxBatchReply}}}, w: w,
			slots: make(chan struct{}, maxInboundFrames)}
		in.slots <- struct{}{}
		ended := make(chan error, 1)
		go func() { ended <- in.drain(os.ErrDeadlineExceeded) }()
		eventually(t, "the drain notice waits for the last reply", func() bool {
			return len(in.slots) == cap(in.slots)
		})
		reply := bytes.Repeat([]byte("r"), 16<<20) // it takes a while to be built and checked
		go in.answer(&call{frameID: 7}, [][]byte{reply}, nil)
		if f, err := readFrame(bufio.NewReader(there)); err != nil || f.kind != frameReply ||
			f.id != 7 {
			t.Errorf("a frame of kind %d for request %d came, %v; want the reply", f.kind, f.id,
				err)
		}
		there.Close()
		<-ended
		w.close()
		<-w.done
	})
}

// spiedToy calls spy when an entry is made.
type spiedToy struct {
	*toy
	spy func()
}

func (s spiedToy) AppendEntry(dst []byte, clockMs, wallUs int64, batches [][]byte) []byte {
	s.spy()
	return s.toy.AppendEntry(dst, clockMs, wallUs, batches)
}

// alone opens a node that is a cluster by itself, and waits until it is ready.
func alone(t *testing.T, m Machine) *Node {
	t.Helper()
	w := newNetwork()
	n, err := Open(Config{ID: "n1", ClientAddr: "client:1", DataDir: t.TempDir(),
		PeerListener: w.listen(t, "n1", ""), dial: w.dialer("n1"), Clock: newTestClock(),
		Logger: testLogger()}, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	eventually(t, "the node is ready", func() bool { return n.Status().Ready })
	return n
}

// TestWritesCountWhileTheirEntryIsMade: they are in no queue any more, so a stopping node would
// otherwise take them for answered.
func TestWritesCountWhileTheirEntryIsMade(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var n atomic.Pointer[Node]
		var made, missed atomic.Int32
		node := alone(t, spiedToy{newToy(), func() {
			if n := n.Load(); n != nil {
				made.Add(1)
				if n.inFlight.Load() == 0 {
					missed.Add(1)
				}
			}
		}})
		n.Store(node)
		if _, err := node.write(t.Context(), []byte("w"), 1); err != nil {
			t.Fatal(err)
		}
		if made.Load() == 0 || missed.Load() > 0 {
			t.Errorf("%d of %d entries did not count while they were made", missed.Load(),
				made.Load())
		}
		eventually(t, "nothing is in flight", func() bool { return node.inFlight.Load() == 0 })
	})
}

// TestTransferThatMayStillHappen transfers leadership to a member that learns of it later.
func TestTransferThatMayStillHappen(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.HeartbeatTimeout = time.Second })
		lead, next := c.leader(), c.followers()[0].cfg.ID
		var err error
		for range 5 { // it lags again if there is an entry before it is paused
			eventually(t, "the member is known to be caught up", func() bool {
				return lead.link(next).holds(lead.raft.CurrentTerm(), lead.raft.LastIndex(), 0)
			})
			c.net.pause(next)
			defer c.net.resume(next)
			if err = lead.TransferLeadership(next); !errors.Is(err, ErrRefused) {
				break
			}
			c.net.resume(next)
		}
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("to a member that does not answer: %v", err)
		}
		if err := lead.TransferLeadership(""); !errors.Is(err, ErrNotRun) {
			t.Errorf("while it is still asked: %v", err)
		}
		if err := lead.TransferLeadership("n9"); !errors.Is(err, ErrRefused) {
			t.Errorf("to nobody: %v", err)
		}
		if err := c.nodes[next].TransferLeadership(""); !errors.Is(err, ErrNotRun) {
			t.Errorf("on a follower: %v", err)
		}
	})
}

// startingLog calls started before it stores a configuration.
type startingLog struct {
	powerLog
	started *atomic.Pointer[func()]
}

func (s startingLog) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s startingLog) StoreLogs(logs []*raft.Log) error {
	if f := s.started.Load(); f != nil && logs[0].Type == raft.LogConfiguration {
		(*f)()
	}
	return s.LogStore.StoreLogs(logs)
}

// TestRemovalHalfDone removes a member, and has Raft refuse the second step: the vote is gone by
// then, so the error must not be ErrNotRun.
func TestRemovalHalfDone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		started := map[string]*atomic.Pointer[func()]{"n1": {}, "n2": {}, "n3": {}}
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.HeartbeatTimeout = time.Second // for so long Raft refuses
			cfg.wrapLog = func(s raft.LogStore) raft.LogStore {
				return startingLog{powerLog{s, newPower()}, started[cfg.ID]}
			}
		})
		lead, gone := c.leader(), c.followers()[0].cfg.ID
		c.net.pause(gone) // so that handing leadership to it takes all the time that Raft gives it
		defer c.net.resume(gone)
		addr, _ := lead.peerAddr(gone)
		var transfer raft.Future
		begin := func() {
			if transfer == nil {
				transfer = lead.raft.LeadershipTransferToServer(raft.ServerID(gone),
					raft.ServerAddress(addr))
			}
		}
		started[lead.cfg.ID].Store(&begin)
		if err := lead.makeChange(lead.route.Load().lead,
			membership.Change{Kind: membership.Remove, ID: gone}); errors.Is(err, ErrNotRun) {
			t.Errorf("it ran half, and is said not to have run: %v", err)
		}
		if s, ok := lead.member(gone); ok && s.Suffrage == raft.Voter {
			t.Error("the member has its vote: the test shows nothing")
		}
	})
}

// TestConcurrentChange: the second change did not run, but is not refused: a refusal ends a
// joining node.
func TestConcurrentChange(t *testing.T) {
	simulated(t, func(t *testing.T) {
		n := alone(t, newToy())
		n.changing <- struct{}{}
		defer func() { <-n.changing }()
		err := n.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n2",
			PeerAddr: "127.0.0.1:1"})
		if !errors.Is(err, ErrNotRun) {
			t.Errorf("%v", err)
		}
	})
}

// TestPausedProposals: nothing is proposed meanwhile.
func TestPausedProposals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		n := alone(t, newToy())
		end := n.pauseProposals()
		wrote := make(chan error, 1)
		go func() { wrote <- errorOf(n.write(t.Context(), []byte("w"), 1)) }()
		eventually(t, "the write waits", func() bool { return !n.writes.empty() })
		for range 2 { // when the second kick is taken, the proposer has looked
			kick(n.writes.wake)
			eventually(t, "the proposer looks", func() bool { return len(n.writes.wake) == 0 })
		}
		if n.writes.empty() {
			t.Error("the write was proposed")
		}
		end()
		if err := <-wrote; err != nil {
			t.Error(err)
		}
	})
}

// TestLeadsAfterFailedTransfers: a leader that could not hand over, and lost its leadership
// meanwhile, serves when it leads again. Raft's own transfer may end such that it refuses
// everything.
func TestLeadsAfterFailedTransfers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old := c.leader()
		away, next := c.followers()[0].cfg.ID, c.followers()[1]
		c.net.pause(away)
		c.write(old, "a") // so that the member lacks an entry
		for range 3 {
			if err := old.TransferLeadership(away); !errors.Is(err, ErrRefused) {
				t.Fatalf("leadership goes to a member that is away and lags: %v", err)
			}
		}
		c.net.pause(old.cfg.ID)
		eventually(t, "the leader steps down",
			func() bool { return old.raft.State() != raft.Leader })
		c.net.resume(away)
		eventually(t, "another leads", func() bool { return c.leader() != old })
		c.net.resume(old.cfg.ID)
		eventually(t, "it leads again", func() bool {
			lead := c.leader()
			return lead == old || lead.TransferLeadership(old.cfg.ID) == nil && c.leader() == old
		})
		c.write(old, "b")
		c.write(next, "c")
	})
}

// TestOneTransferAtATime: a second transfer does not begin.
func TestOneTransferAtATime(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		lead.transferring <- struct{}{}
		defer func() { <-lead.transferring }()
		eventually(t, "the members are connected", func() bool {
			_, err := lead.successor("")
			return err == nil
		})
		if err := lead.TransferLeadership(""); !errors.Is(err, ErrNotRun) {
			t.Errorf("%v", err)
		}
	})
}

// leveledToy has levels. A raise is an entry without batches, followed by the level.
type leveledToy struct {
	*toy
	knows
	level atomic.Uint64
}

func (l *leveledToy) Level() uint64 { return l.level.Load() }

func (l *leveledToy) AppendRaise(dst []byte, clockMs, wallUs int64, level uint64) []byte {
	return append(l.AppendEntry(dst, clockMs, wallUs, nil), raiseMark, byte(level))
}

func (l *leveledToy) EntryLevel(data []byte) uint64 {
	if k := len(data); k > 2 && data[k-2] == raiseMark {
		return uint64(data[k-1])
	}
	return 0
}

func (l *leveledToy) SnapshotLevel([]byte) uint64 { return 0 }

const raiseMark = 0xfe

func (l *leveledToy) Apply(e *raft.Log) any {
	l.level.Store(max(l.level.Load(), l.EntryLevel(e.Data)))
	return l.toy.Apply(e)
}

// TestRaiseIsRetried: the entry that raises the level is not logged during a leadership transfer.
func TestRaiseIsRetried(t *testing.T) {
	simulated(t, func(t *testing.T) {
		toy := &leveledToy{toy: newToy(), knows: 3}
		toy.level.Store(3)
		n := alone(t, toy)
		end := n.pauseProposals()
		toy.level.Store(1)
		eventually(t, "the raise is requested", func() bool { return n.raising.Load() != nil })
		n.raising.Store(nil) // as when its entry was refused
		end()
		eventually(t, "the level is raised", func() bool { return toy.Level() == 3 })
	})
}

// slowRaise applies raises when it may.
type slowRaise struct {
	*leveledToy
	may    chan struct{}
	raises atomic.Int32
}

func (m *slowRaise) Apply(e *raft.Log) any {
	if m.EntryLevel(e.Data) > 0 {
		<-m.may
		m.raises.Add(1)
	}
	return m.leveledToy.Apply(e)
}

// TestOneRaiseAtATime: while the level is being raised, the log gets no further entry that does.
func TestOneRaiseAtATime(t *testing.T) {
	simulated(t, func(t *testing.T) {
		m := &slowRaise{leveledToy: &leveledToy{toy: newToy(), knows: 3},
			may: make(chan struct{})}
		m.level.Store(3)
		n := alone(t, m)
		m.level.Store(1)
		eventually(t, "the raise is proposed", n.raiseProposed.Load)
		time.Sleep(time.Second)
		close(m.may)
		eventually(t, "the level is raised", func() bool { return m.Level() == 3 })
		time.Sleep(time.Second)
		if got := m.raises.Load(); got != 1 {
			t.Errorf("%d raises", got)
		}
	})
}

// TestFirstRequestsHaveTheNewestLevel: a new cluster has its level before it serves, also if one of
// the founders comes a little later, and if one does not come it serves nevertheless.
func TestFirstRequestsHaveTheNewestLevel(t *testing.T) {
	leveled := func(toy *toy) Machine {
		m := &leveledToy{toy: toy, knows: 3}
		m.level.Store(1)
		return m
	}
	runSimulated(t, "one node", func(t *testing.T) {
		if n := alone(t, leveled(newToy())); n.levels.Level() != 3 {
			t.Errorf("it serves at level %d", n.levels.Level())
		}
	})
	for name, want := range map[string]uint64{"three founders": 3, "one never comes": 1} {
		runSimulated(t, name, func(t *testing.T) {
			c := emptyCluster(t)
			c.machine = leveled
			lns := map[string]net.Listener{}
			for _, id := range []string{"n1", "n2", "n3"} {
				lns[id] = c.net.listen(t, id, "")
				c.members = append(c.members, Member{ID: id, PeerAddr: lns[id].Addr().String()})
			}
			c.open("n1", lns["n1"])
			c.open("n2", lns["n2"])
			eventually(t, "one of two leads", func() bool {
				return c.nodes["n1"].leads() || c.nodes["n2"].leads()
			})
			if want == 3 {
				c.open("n3", lns["n3"])
			}
			if lead := c.leader(); lead.levels.Level() != want {
				t.Errorf("the leader serves at level %d, want %d", lead.levels.Level(), want)
			}
		})
	}
}

// forwardless is a connection on which no forwarding is begun.
type forwardless struct{ net.Conn }

func (f forwardless) Write(p []byte) (int, error) {
	if len(p) == 1 && p[0] == streamForward {
		return 0, errCut
	}
	return f.Conn.Write(p)
}

// TestLeaderThatCannotFoundStops: a leader that cannot found its cluster, because no member says
// who it is, has nothing in flight and so nothing to wait for when it closes.
func TestLeaderThatCannotFoundStops(t *testing.T) {
	simulated(t, func(t *testing.T) {
		if *overTLS {
			t.Skip("it looks into the connections")
		}
		c := openCluster(t, 3, func(cfg *Config) {
			dial := cfg.dial
			cfg.dial = func(ctx context.Context, addr string) (net.Conn, error) {
				conn, err := dial(ctx, addr)
				return forwardless{conn}, err
			}
		})
		var lead *Node
		eventually(t, "a node leads", func() bool {
			for _, n := range c.nodes {
				if n.route.Load().self && n.raft.State() == raft.Leader {
					lead = n
				}
			}
			return lead != nil
		})
		if !lead.drain() {
			t.Error("entries are under way")
		}
		if lead.clusterID() != "" {
			t.Error("a cluster was founded: the test shows nothing")
		}
	})
}
