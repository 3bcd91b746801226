// Tests of certainty with links cut, nodes paused and calls canceled.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/membership"
)

func TestIsolatedLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old := c.leader()
		c.write(old, "before")
		c.net.isolate(old.cfg.ID)
		_, err := old.write(context.Background(), []byte("lost"), 1)
		if !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotRun) {
			t.Errorf("write on the isolated leader: %v", err)
		}
		lead := c.leader()
		if lead == old {
			t.Fatal("the isolated node leads")
		}
		c.write(lead, "after")
		if got, err := old.read(context.Background(), []byte("after")); err == nil ||
			!errors.Is(err, ErrNotRun) {
			t.Errorf("read on the isolated node: %q %v", got, err)
		}
		if _, err := old.write(context.Background(), []byte("refused"), 1); !errors.Is(err,
			ErrNotRun) {
			t.Errorf("write on the isolated node: %v", err)
		}
		c.net.heal(old.cfg.ID)
		c.ready(old.cfg.ID)
		if got := c.read(old, "after"); got != "1" {
			t.Errorf("read after healing: %q", got)
		}
		for _, g := range c.converged() {
			if g == "refused" {
				t.Error("a write that was refused ran")
			}
		}
	})
}

// TestEntryInFlightIsUnknown has an entry in the log of a leader that loses its followers before it
// is committed.
func TestEntryInFlightIsUnknown(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old := c.leader()
		for _, n := range c.followers() {
			c.net.pause(n.cfg.ID)
		}
		last := old.raft.LastIndex()
		done := make(chan error, 1)
		go func() {
			_, err := old.write(context.Background(), []byte("in flight"), 1)
			done <- err
		}()
		eventually(t, "the entry is logged", func() bool { return old.raft.LastIndex() > last })
		if err := <-done; !errors.Is(err, ErrUnknown) {
			t.Errorf("write: %v", err)
		}
	})
}

// TestForwardedWriteInFlightIsUnknown is TestEntryInFlightIsUnknown for a write of a follower. The
// leader tells it that the outcome is unknown. The entry is in two of four logs.
func TestForwardedWriteInFlightIsUnknown(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 4, nil)
		lead, followers := c.leader(), c.followers()
		for _, n := range followers[1:] {
			c.net.pause(n.cfg.ID)
		}
		last, done := lead.raft.LastIndex(), make(chan error, 1)
		go func() {
			_, err := followers[0].write(context.Background(), []byte("in flight"), 1)
			done <- err
		}()
		eventually(t, "the entry is logged", func() bool { return lead.raft.LastIndex() > last })
		if err := <-done; !errors.Is(err, ErrUnknown) {
			t.Errorf("write: %v", err)
		}
	})
}

// TestReadsAcrossPartitions reads on every node while leaders are isolated and healed: a read that
// began after a write was acknowledged must see it.
func TestReadsAcrossPartitions(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		var mu sync.Mutex
		acked := 0
		stop := make(chan struct{})
		var wg sync.WaitGroup
		reads := make(map[string]int)
		for id, n := range c.nodes {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
					}
					mu.Lock()
					want := acked
					mu.Unlock()
					reply, err := n.read(context.Background(), []byte("len"))
					if err != nil {
						if !errors.Is(err, ErrNotRun) {
							t.Errorf("read: %v", err)
						}
						continue
					}
					var have int
					if _, err := fmt.Sscan(string(reply), &have); err != nil || have < want {
						t.Errorf("a read on %s saw %d writes, %d were acknowledged before it", id,
							have,
							want)
						return
					}
					mu.Lock()
					reads[id]++
					mu.Unlock()
				}
			}()
		}
		write := func() {
			_, err := c.leader().write(context.Background(), []byte("w"), 1)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked++
			}
		}
		for round := range 4 {
			write()
			old := c.leader().cfg.ID
			if round%2 == 0 {
				c.net.isolate(old)
			} else {
				c.net.pause(old)
			}
			eventually(t, "another leader", func() bool {
				for id, n := range c.nodes {
					if s := n.Status(); id != old && s.Role == membership.Leader && s.Ready {
						_, err := n.write(context.Background(), []byte("w"), 1)
						mu.Lock()
						if err == nil {
							acked++
						}
						mu.Unlock()
						return true
					}
				}
				return false
			})
			c.net.heal(old)
			c.net.resume(old)
			c.ready(old)
		}
		for id := range c.nodes {
			mu.Lock()
			at := reads[id]
			mu.Unlock()
			eventually(t, "reads on "+id, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return reads[id] > at
			})
		}
		close(stop)
		wg.Wait()
	})
}

// TestPausedLeaderHoldsNoClient forwards to a leader that pauses: writes in flight become unknown,
// reads go to the new leader.
func TestPausedLeaderHoldsNoClient(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old := c.leader()
		follower := c.followers()[0]
		c.write(follower, "before")
		c.net.pause(old.cfg.ID)
		type result struct {
			reply []byte
			err   error
		}
		writes, reads := make(chan result, 1), make(chan result, 1)
		go func() {
			reply, err := follower.write(context.Background(), []byte("w"), 1)
			writes <- result{reply, err}
		}()
		go func() {
			reply, err := follower.read(context.Background(), []byte("before"))
			reads <- result{reply, err}
		}()
		if r := <-writes; !errors.Is(r.err, ErrUnknown) {
			t.Errorf("write: %q %v", r.reply, r.err)
		}
		if r := <-reads; r.err != nil || string(r.reply) != "1" {
			t.Errorf("read: %q %v", r.reply, r.err)
		}
	})
}

// TestNoClientWaitsForever: a leader that loses frames, or a full queue, blocks nobody: what was
// sent becomes unknown, and what could not be sent did not run.
func TestNoClientWaitsForever(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.LeaderWait, cfg.ReplyWait = 100*time.Millisecond, time.Second
		})
		lead, follower := c.leader(), c.followers()[0]
		c.write(follower, "before")
		goOn := lead.pauseProposals()
		var sent []chan error
		for range maxFrames {
			done := make(chan error, 1)
			sent = append(sent, done)
			batches := 1
			if len(sent) > 1 {
				batches = joinBatches // fewer wait for the answer of the first frame
			}
			for range batches {
				go func() {
					_, err := follower.write(context.Background(), []byte("lost"), 1)
					select {
					case done <- err:
					default:
					}
				}()
			}
			eventually(t, "the leader has the frame",
				func() bool { return lead.writes.hasForwarded() })
			lead.writes.dequeue(nil, 1)
		}
		for _, done := range sent {
			if err := <-done; !errors.Is(err, ErrUnknown) {
				t.Errorf("what was sent: %v", err)
			}
		}
		goOn()
		if _, err := follower.write(context.Background(), []byte("w"), 1); !errors.Is(err,
			ErrNotRun) {
			t.Errorf("without a frame: %v", err)
		}
		c.write(lead, "w")
		if got := c.read(follower, "w"); got != "1" {
			t.Errorf("it ran %s times", got)
		}
		follower.writes.mu.Lock()
		follower.writes.bytes += maxQueueBytes
		follower.writes.mu.Unlock()
		if _, err := follower.write(context.Background(), []byte("w"), 1); !errors.Is(err,
			ErrBusy) {
			t.Errorf("with a full queue: %v", err)
		}
	})
}

func TestLinkLostWithAFrame(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.loseFrame(c.leader(), c.followers()[0])
	})
}

// A goodbye is about one connection. A write that is on its way when a later one breaks may have
// run.
func TestGoodbyeEndsOneConnection(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		id := c.leader().cfg.ID
		c.close(id)
		c.leader()
		c.reopen(id)
		c.ready(id)
		eventually(t, "it leads again", func() bool {
			lead := c.leader()
			return lead.cfg.ID == id || lead.TransferLeadership(id) == nil &&
				c.leader().cfg.ID == id
		})
		c.loseFrame(c.leader(), c.followers()[0])
	})
}

// loseFrame breaks the connection from a follower to the leader with a write on its way, which must
// become unknown.
func (c *testCluster) loseFrame(lead, follower *Node) {
	c.t.Helper()
	eventually(c.t, "the follower knows the leader", func() bool {
		r := follower.route.Load()
		return r.leaderID == lead.cfg.ID && r.link != nil && r.link.up()
	})
	c.net.pause(lead.cfg.ID) // the frame leaves, the leader does not see it
	link := follower.link(lead.cfg.ID)
	done := make(chan error, 1)
	go func() {
		_, err := follower.write(context.Background(), []byte("w"), 1)
		done <- err
	}()
	eventually(c.t, "the frame is on its way", link.begun)
	link.mu.Lock()
	w := link.wire
	link.mu.Unlock()
	w.close()
	if err := <-done; !errors.Is(err, ErrUnknown) {
		c.t.Errorf("write: %v", err)
	}
}

// begun reports whether a frame may have left.
func (l *link) begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire == nil {
		return false
	}
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, f := range l.frames {
		if f.begun {
			return true
		}
	}
	return false
}

func TestContext(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, followers := c.leader(), c.followers()
		done, cancel := context.WithCancel(context.Background())
		cancel()
		for _, n := range followers {
			c.net.pause(n.cfg.ID)
		}
		// What is in flight, at first, then what is queued behind it.
		busy, release := context.WithCancel(context.Background())
		errs := make(chan error, 1)
		last := lead.raft.LastIndex()
		go func() {
			_, err := lead.write(busy, []byte("w"), 1)
			errs <- err
		}()
		eventually(t, "the entry is logged", func() bool { return lead.raft.LastIndex() > last })
		release()
		if err := <-errs; !errors.Is(err, ErrUnknown) {
			t.Errorf("a write in flight, given up: %v", err)
		}
		if _, err := lead.read(done, []byte("len")); err != nil && !errors.Is(err, ErrNotRun) {
			t.Errorf("a read given up: %v", err)
		}
		eventually(t, "the leader steps down", func() bool { return lead.Status().LeaderID == "" })
		short, cancel2 := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel2()
		if _, err := lead.write(short, []byte("w"), 1); err != errWithdrawn {
			t.Errorf("a queued write, given up: %v", err)
		}
	})
}

func TestTransferUnderLoad(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.startLoad(1)
		for range 3 {
			old := c.leader()
			eventually(t, "leadership is handed over", func() bool {
				return old.TransferLeadership("") == nil
			})
			eventually(t, "another leader", func() bool { return c.leader() != old })
		}
		l.finish()
		if l.notRun != nil {
			t.Errorf("a write was refused while there was a leader: %v", l.notRun)
		}
	})
}

func TestWatchLeader(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		old, watcher := c.leader(), c.followers()[0]
		changes, end := watcher.WatchLeader()
		defer end()
		if got := watcher.Status(); got.LeaderID != old.cfg.ID ||
			got.LeaderAddr != "client-"+old.cfg.ID+":1" {
			t.Errorf("leader %q at %q", got.LeaderID, got.LeaderAddr)
		}
		c.close(old.cfg.ID)
		eventually(t, "the watcher learns of another leader", func() bool {
			select {
			case <-changes:
			default:
				return false
			}
			s := watcher.Status()
			return s.LeaderID != "" && s.LeaderID != old.cfg.ID
		})
	})
}
