// Tests of a healthy cluster, of takeover, and of restarts.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/fair"
)

func TestWriteAndReadOnEveryNode(t *testing.T) {
	for _, size := range []int{1, 3} {
		runSimulated(t, fmt.Sprint(size), func(t *testing.T) {
			c := newCluster(t, size, nil)
			k := 0
			for _, w := range c.members {
				for _, r := range c.members {
					k++
					batch := fmt.Sprintf("g%d", k)
					if got, want := c.write(c.nodes[w.ID], batch),
						fmt.Sprintf("%d:%s", k, batch); got != want {
						t.Fatalf("reply %q, want %q", got, want)
					}
					if got := c.read(c.nodes[r.ID], batch); got != "1" {
						t.Fatalf("written on %s, read on %s: %q", w.ID, r.ID, got)
					}
				}
			}
			if got := len(c.converged()); got != k {
				t.Errorf("%d batches, want %d", got, k)
			}
			for id, n := range c.nodes {
				if got, err := n.readLocal([]byte("len")); err != nil ||
					string(got) != fmt.Sprint(k) {
					t.Errorf("ReadLocal on %s: %q %v", id, got, err)
				}
			}
		})
	}
}

func TestForwardingKeepsRepliesWithTheirRequests(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		const callers, each = 16, 40
		var wg sync.WaitGroup
		for _, n := range c.nodes {
			for caller := range callers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for i := range each {
						batch := fmt.Sprintf("%s-%d-%d", n.cfg.ID, caller, i)
						reply, err := n.write(context.Background(), []byte(batch), 1)
						if err != nil || !strings.HasSuffix(string(reply), ":"+batch) {
							t.Errorf("write %s: %q %v", batch, reply, err)
							return
						}
						if got, err := n.read(context.Background(), []byte(batch)); err != nil ||
							string(got) != "1" {
							t.Errorf("read %s: %q %v", batch, got, err)
							return
						}
					}
				}()
			}
		}
		wg.Wait()
		list := c.converged()
		slices.Sort(list)
		if got := len(slices.Compact(list)); got != 3*callers*each {
			t.Errorf("%d distinct batches, want %d", got, 3*callers*each)
		}
	})
}

func TestTakeoverLosesNoAcknowledgedWrite(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		l := c.startLoad(4)
		l.advance(50, "before the takeover")
		c.close(c.leader().cfg.ID)
		l.advance(50, "after the takeover")
		l.finish()
	})
}

func TestMinorityRefuses(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "before")
		c.converged()
		rest := c.followers()[0]
		for _, n := range []*Node{c.leader(), c.followers()[1]} {
			c.close(n.cfg.ID)
		}
		eventually(t, "the leader is given up", func() bool { return rest.Status().LeaderID == "" })
		asked := time.Now()
		if _, err := rest.write(context.Background(), []byte("w"), 1); !errors.Is(err, ErrNotRun) {
			t.Errorf("write: %v", err)
		}
		if took := time.Since(asked); took < defaultLeaderWait/2 ||
			took > defaultLeaderWait+time.Second {
			t.Errorf("the write was refused after %v", took)
		}
		for _, wait := range []time.Duration{-1, 50 * time.Millisecond} {
			asked := time.Now()
			load := fair.Workload{LeaderWait: wait}
			_, err := rest.Write(context.Background(), load, []byte("w"), 1)
			if !errors.Is(err, ErrNotRun) {
				t.Errorf("a write that waits for %v: %v", wait, err)
			}
			if took := time.Since(asked); took < wait || took > defaultLeaderWait/2 {
				t.Errorf("a write that waits for %v was refused after %v", wait, took)
			}
		}
		if _, err := rest.read(context.Background(), []byte("before")); !errors.Is(err, ErrNotRun) {
			t.Errorf("read: %v", err)
		}
		if got, err := rest.readLocal([]byte("before")); err != nil || string(got) != "1" {
			t.Errorf("stale read: %q %v", got, err)
		}
	})
}

func TestNegativeLeaderWaitIsNone(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.LeaderWait = -1 })
		rest := c.followers()[0]
		for _, n := range []*Node{c.leader(), c.followers()[1]} {
			c.close(n.cfg.ID)
		}
		eventually(t, "the leader is given up", func() bool { return rest.Status().LeaderID == "" })
		asked := time.Now()
		if _, err := rest.write(context.Background(), []byte("w"), 1); !errors.Is(err, ErrNotRun) {
			t.Errorf("write: %v", err)
		}
		if took := time.Since(asked); took > defaultLeaderWait/2 {
			t.Errorf("the write was refused after %v", took)
		}
	})
}

func TestRestart(t *testing.T) {
	for _, kind := range []string{LogStoreWAL, LogStoreBolt} {
		for _, snapshot := range []bool{false, true} {
			runSimulated(t, fmt.Sprintf("%s/snapshot=%v", kind, snapshot), func(t *testing.T) {
				c := newCluster(t, 3, func(cfg *Config) {
					cfg.LogStore, cfg.TrailingLogs = kind, 1
				})
				for i := range 20 {
					c.write(c.leader(), fmt.Sprint("a", i))
				}
				if snapshot {
					c.converged()
					for id, n := range c.nodes {
						if err := n.Snapshot(); err != nil {
							t.Fatalf("snapshot on %s: %v", id, err)
						}
					}
				}
				c.write(c.leader(), "after")
				want := fmt.Sprint(c.converged())
				c.closeAll()
				for _, m := range c.members {
					c.reopen(m.ID)
				}
				c.ready("n1")
				if got := c.read(c.nodes["n1"], "after"); got != "1" {
					t.Errorf("read after the restart: %q", got)
				}
				if got := fmt.Sprint(c.converged()); got != want {
					t.Errorf("after the restart %s, want %s", got, want)
				}
				c.write(c.nodes["n2"], "more")
			})
		}
	}
}

func TestFollowerCatchesUpFromSnapshot(t *testing.T) {
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
		c.write(c.leader(), "last")
		c.reopen(behind)
		if got := len(c.converged()); got != 31 {
			t.Errorf("%d batches", got)
		}
		c.ready(behind)
		if got := c.read(c.nodes[behind], "last"); got != "1" {
			t.Errorf("read: %q", got)
		}
	})
}

func TestLimits(t *testing.T) {
	simulated(t, func(t *testing.T) {
		n := newCluster(t, 1, nil).leader()
		for _, count := range []int{0, -1, MaxBatchRequests + 1} {
			if _, err := n.write(context.Background(), []byte("w"), count); !errors.Is(err,
				ErrTooLarge) {
				t.Errorf("%d requests: %v", count, err)
			}
		}
		if _, err := n.write(context.Background(), []byte("w"), MaxBatchRequests); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		big := make([]byte, MaxBatchBytes+1)
		if _, err := n.write(context.Background(), big, 1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too many bytes: %v", err)
		}
		if _, err := n.read(context.Background(), big); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too many bytes to read: %v", err)
		}
		if _, err := n.write(context.Background(), big[:MaxBatchBytes], 1); err != nil {
			t.Errorf("at the limit of bytes: %v", err)
		}
	})
}

// TestForwardedReplyTooLarge reads more than a follower forwards: retrying would not help.
func TestForwardedReplyTooLarge(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const most = 1 << 20
		c := newCluster(t, 3, func(cfg *Config) { cfg.batchReply = most })
		const parts = 16 // and a space after each but the last
		batch := []byte(strings.Repeat("x", most/parts))
		for have := 0; have < parts; {
			// Disks may be so slow that the leader changes meanwhile.
			if _, err := c.leader().write(context.Background(), batch, 1); err != nil &&
				!errors.Is(err, ErrUnknown) {
				t.Fatal(err)
			}
			fmt.Sscan(c.read(c.leader(), "len"), &have)
		}
		follower := c.followers()[0]
		if got, err := follower.read(context.Background(), []byte("all")); !errors.Is(err,
			ErrTooLarge) || errors.Is(err, ErrNotRun) {
			t.Errorf("on a follower: %d bytes, %v", len(got), err)
		}
		if got := c.read(c.leader(), "all"); len(got) <= most {
			t.Errorf("on the leader: %d bytes, too few for this test", len(got))
		}
	})
}

// TestManyLargeForwardedReads reads more at once, on a follower, than one frame returns: the rest
// comes with the next.
func TestManyLargeForwardedReads(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const readers, word = 40, 1 << 16
		c := newCluster(t, 3, func(cfg *Config) { cfg.batchReply, cfg.readReplies = 3*word, word })
		c.write(c.leader(), strings.Repeat("x", word))
		follower := c.followers()[0]
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				for range 5 {
					if got, err := follower.read(context.Background(), []byte("all")); err != nil ||
						len(got) != word {
						t.Errorf("%d bytes, %v", len(got), err)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestMemberCatchesUpSoon isolates a follower for so long that Raft alone would leave it behind for
// seconds more.
func TestMemberCatchesUpSoon(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		away := c.followers()[0].cfg.ID
		c.close(away)
		gone, written := time.Now(), 0
		eventually(t, "a long absence", func() bool {
			if time.Since(gone) > time.Duration(written)*100*time.Millisecond {
				// few: how much is to be sent is not the question
				c.write(c.leader(), "w")
				written++
			}
			return time.Since(gone) > 6*time.Second
		})
		back := time.Now()
		c.reopen(away)
		c.converged()
		// Raft's own pause after failures has grown to about 5 s by now.
		if took := time.Since(back); took > 3*time.Second {
			t.Errorf("the member was behind for %v", took)
		}
	})
}
