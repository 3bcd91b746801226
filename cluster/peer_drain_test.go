// Tests of a node's end as others see it: which requests they send again, and when they stand for
// election.

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestStoppingLeaderFailsNoWrite closes the leader again and again while the other two nodes
// forward writes to it: none of those fails, and each runs once.
func TestStoppingLeaderFailsNoWrite(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.HeartbeatTimeout = 2 * time.Second // a busy machine keeps its leader
		})
		for round := range 4 {
			lead, followers := c.leader(), c.followers()
			var acked atomic.Int64
			stop, ended := make(chan struct{}), make(chan []string, 8)
			for i := range cap(ended) {
				n := followers[i%2]
				go func() {
					var mine []string
					defer func() { ended <- mine }()
					for k := 0; ; k++ {
						select {
						case <-stop:
							return
						default:
						}
						batch := fmt.Sprintf("%d-%d-%d", round, i, k)
						if _, err := n.write(t.Context(), []byte(batch), 1); err != nil {
							t.Errorf("round %d, a write on %s failed: %v", round, n.cfg.ID, err)
							return
						}
						mine = append(mine, batch)
						acked.Add(1)
					}
				}()
			}
			eventually(t, "writes go on", func() bool { return acked.Load() > 100 || t.Failed() })
			c.close(lead.cfg.ID)
			had := acked.Load()
			eventually(t, "writes go on without it", func() bool {
				return acked.Load() > had+100 || t.Failed()
			})
			close(stop)
			var all []string
			for range cap(ended) {
				all = append(all, <-ended...)
			}
			c.reopen(lead.cfg.ID)
			c.ready(lead.cfg.ID)
			list := c.converged()
			for _, batch := range all {
				if first := slices.Index(list, batch); first < 0 ||
					slices.Contains(list[first+1:], batch) {
					t.Fatalf("round %d: %s ran not once", round, batch)
				}
			}
		}
	})
}

// TestDrainNotice ends a link with a write in flight that the other end has read. After a drain
// notice the write did not run and is sent again; without one its outcome is unknown.
func TestDrainNotice(t *testing.T) {
	for _, drained := range []bool{true, false} {
		runSimulated(t, fmt.Sprint(drained), func(t *testing.T) {
			n := newCluster(t, 1, nil).leader()
			here, there := net.Pipe()
			l := newLink(n, "n2")
			w := newPeerConn(here, bufio.NewReader(here))
			l.wire = w
			received := make(chan error, 1)
			go func() { received <- l.receive(w) }()
			c := newLocalCall([]byte("w"), 1, time.Now().Add(time.Minute))
			if !l.forward(frameWrite, []*call{c}) {
				t.Fatal("nothing was sent")
			}
			if f, err := readFrame(bufio.NewReader(there)); err != nil || f.kind != frameWrite {
				t.Fatal(f, err)
			}
			if drained {
				if _, err := there.Write(endFrame(beginFrame(0), frameDrained, 0, 0)); err != nil {
					t.Fatal(err)
				}
			} else {
				there.Close()
			}
			if err := <-received; drained != errors.Is(err, errMemberStops) {
				t.Errorf("the link ended with %v", err)
			}
			w.close()
			<-w.done
			there.Close()
			l.down()
			<-c.done
			if reply, err := c.result(); drained && (err != nil || string(reply) != "1:w") ||
				!drained && !errors.Is(err, ErrUnknown) {
				t.Errorf("the write was answered %q %v", reply, err)
			}
		})
	}
}

// TestClosedConnectionTakesNothing closes a connection that is not found to be down yet. The
// proposer would try it again and again until it is, and let nobody else run meanwhile.
func TestClosedConnectionTakesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		here, there := net.Pipe()
		defer there.Close()
		l := newLink(newCluster(t, 1, nil).leader(), "n2")
		l.wire = newPeerConn(here, bufio.NewReader(here))
		for _, open := range []bool{true, false} {
			if _, ready := l.room(frameWrite); ready != open || l.roomForHeavy(frameWrite) != open {
				t.Errorf("open: %v, takes frames: %v", open, ready)
			}
			l.wire.close()
		}
		<-l.wire.done
	})
}

// TestCloseDrains closes a node that a member has sent one request and half of another. The node
// answers the first one, sends a drain notice, and stops when the member closes the connection.
func TestCloseDrains(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n := c.leader()
		member := c.followers()[0]
		conn := c.net.connect(t, "stranger", n.mux.Addr().String(),
			appendHello([]byte{streamForward}, member.hello(n.cfg.ID, ""))...)
		r := bufio.NewReader(conn)
		if h, err := readHello(r); err != nil || h.refusal != "" {
			t.Fatal(h, err)
		}
		request := func(id uint64, batch string) []byte {
			return endFrame(appendRequests(beginFrame(0), 1, [][]byte{[]byte(batch)}), frameWrite,
				0,
				id)
		}
		second := request(2, "second")
		if _, err := conn.Write(append(request(1, "first"),
			second[:len(second)-3]...)); err != nil {
			t.Fatal(err)
		}
		if f, err := readFrame(r); err != nil || f.kind != frameReply || f.id != 1 ||
			f.status != statusDone {
			t.Fatalf("the first request was answered %+v %v", f, err)
		}
		closed := make(chan struct{})
		go func() { c.close(n.cfg.ID); close(closed) }()
		if f, err := readFrame(r); err != nil || f.kind != frameDrained {
			t.Fatalf("%+v %v came, not a drain notice", f, err)
		}
		if _, err := conn.Write(second[len(second)-3:]); err != nil { // it comes too late
			t.Fatal(err)
		}
		conn.Close()
		<-closed
		c.leader() // has applied what was acknowledged
		if list := c.converged(); !slices.Equal(list, []string{"first"}) {
			t.Errorf("what ran: %q", list)
		}
	})
}

// A leader renews a follower's connection, as when certificates change, with a write in flight. The
// goodbye waits for its reply: the follower would send it again, and it would run twice.
func TestGoodbyeWaitsForWritesInFlight(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, powers := powered(t, 3, func(cfg *Config) {
			cfg.HeartbeatTimeout = 2 * time.Second // a busy machine keeps its leader
		})
		lead, follower := c.leader(), c.followers()[0]
		c.write(follower, "before")
		powers[lead.cfg.ID].held.Lock()
		release := sync.OnceFunc(powers[lead.cfg.ID].held.Unlock)
		defer release()
		last, answer := lead.raft.LastIndex(), make(chan error, 1)
		go func() {
			_, err := follower.write(t.Context(), []byte("w"), 1)
			answer <- err
		}()
		eventually(t, "the write is in flight", func() bool { return lead.raft.LastIndex() > last })
		var in *inbound
		lead.linksMu.Lock()
		for other := range lead.inbounds {
			if other.peer == follower.cfg.ID {
				in = other
			}
		}
		lead.linksMu.Unlock()
		in.renew()
		eventually(t, "the goodbye waits, or the connection is over", func() bool {
			lead.linksMu.Lock()
			defer lead.linksMu.Unlock()
			_, there := lead.inbounds[in]
			return len(in.slots) == cap(in.slots) || !there
		})
		release()
		if err := <-answer; err != nil {
			t.Errorf("the write: %v", err)
		}
		if got := c.read(lead, "w"); got != "1" {
			t.Errorf("the write ran %s times", got)
		}
	})
}

// TestElectionRank: the possible successors of a leader check its silence one after the other.
func TestElectionRank(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader().cfg.ID
		for i, n := range c.followers() {
			eventually(t, "the member knows the leader", func() bool {
				return n.route.Load().leaderID == lead
			})
			if rank, ok := n.electionRank(lead); !ok || rank != i {
				t.Errorf("%s has rank %d %v, want %d", n.cfg.ID, rank, ok, i)
			}
		}
		for _, leader := range []string{"", lead} {
			if rank, ok := c.leader().electionRank(leader); ok {
				t.Errorf("the leader has rank %d behind %q", rank, leader)
			}
		}
	})
}

// A member without a valid certificate cannot keep its connection by never answering a frame.
func TestRenewedLinkEnds(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer theirs.Close()
		l := &link{n: &Node{setup: setup{cfg: Config{ReplyWait: time.Millisecond}}},
			traffic: traffic{wire: newPeerConn(ours, bufio.NewReader(ours)),
				frames: map[uint64]*sentFrame{1: {}}}}
		// a pipe that is closed already takes no deadline
		if err := theirs.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		l.renew()
		if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is open: %v", err)
		}
		<-l.wire.done
	})
}
