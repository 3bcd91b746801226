// This file holds the tests of a leader whose disk hangs.

package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/fair"
	"github.com/coordd/coordd/cluster/membership"
)

// TestLeaderThatIsNotConfirmed leaves a leader without anybody to ask whether it leads, while Raft
// is content: reads end on all nodes.
func TestLeaderThatIsNotConfirmed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, impatient)
		lead := c.leader()
		c.write(lead, "a")
		for _, f := range c.followers() {
			l := lead.link(f.cfg.ID)
			eventually(t, f.cfg.ID+" is registered and connected", func() bool {
				return lead.admitted(f.cfg.ID) && l.up()
			})
			l.mu.Lock()
			l.peer.incarnation = "another"
			l.mu.Unlock()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		// one by one: the sweep finds those that wait behind another
		for _, n := range append([]*Node{lead}, c.followers()...) {
			_, err := n.read(ctx, []byte("a"))
			if ctx.Err() != nil || err == nil && lead.leads() || err != nil &&
				!errors.Is(err, ErrNotRun) {
				t.Fatalf("%s: %v", n.cfg.ID, err)
			}
		}
	})
}

// impatient has requests end soon that make no progress.
func impatient(cfg *Config) {
	cfg.ReplyWait = 300 * time.Millisecond
	cfg.LeaderWait = 100 * time.Millisecond
}

// TestLeaderWhoseDiskHangs holds no caller: what is under way is unknown, what is queued behind it
// did not run. Another node leads while it hangs, and it follows when that is over.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, powers := powered(t, 3, impatient)
		lead, follower := c.leader(), c.followers()[0]
		c.write(follower, "before")
		powers[lead.cfg.ID].held.Lock()
		release := sync.OnceFunc(powers[lead.cfg.ID].held.Unlock)
		defer release()
		const callers = 12
		var wg sync.WaitGroup
		var mu sync.Mutex
		unsure := 0
		for _, n := range []*Node{lead, follower} {
			for i := range callers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					_, err := n.write(context.Background(), fmt.Appendf(nil, "%s-%d", n.cfg.ID, i),
						1)
					if err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotRun) {
						t.Errorf("write on %s: %v", n.cfg.ID, err)
					}
					mu.Lock()
					defer mu.Unlock()
					if errors.Is(err, ErrUnknown) {
						unsure++
					}
				}()
			}
		}
		wg.Wait()
		if unsure == 0 {
			t.Error("no write is unknown")
		}
		eventually(t, "writes while the disk hangs", func() bool {
			_, err := follower.write(context.Background(), []byte("meanwhile"), 1)
			return err == nil
		})
		if s := lead.Status(); s.Role == membership.Leader || s.LogTrouble == "" {
			t.Errorf("the node whose disk hangs says %+v", s)
		}
		for name, f := range map[string]func() error{
			"write": func() error {
				_, err := lead.write(context.Background(), []byte("elsewhere"), 1)
				return err
			},
			"read": func() error {
				_, err := lead.read(context.Background(), []byte("before"))
				return err
			},
		} {
			if err := f(); err != nil && !errors.Is(err, ErrNotRun) {
				// the new leader's heartbeats may have told it where to pass them on to
				t.Errorf("a %s on the node whose disk hangs: %v", name, err)
			}
		}
		release()
		for _, n := range []*Node{lead, follower} {
			eventually(t, "writes on "+n.cfg.ID, func() bool {
				_, err := n.write(context.Background(), []byte("after"), 1)
				return err == nil
			})
		}
		have := map[string]int{}
		for _, g := range c.converged() {
			have[g]++
		}
		for g, k := range have {
			if g != "after" && g != "meanwhile" && k != 1 {
				t.Errorf("%s ran %d times", g, k)
			}
		}
	})
}

// TestLeaderOfFollowersWhoseDisksHang leads no more when it has nothing acknowledged for long,
// though they hear its heartbeats; and it leads again when that is over. Meanwhile it answers what
// needs no log, beside light and heavy writes.
func TestLeaderOfFollowersWhoseDisksHang(t *testing.T) {
	for _, units := range []uint64{0, 10_000_000} {
		simulated(t, func(t *testing.T) {
			c, powers := powered(t, 3, impatient)
			lead := c.leader()
			c.write(lead, "before")
			var releases []func()
			for _, f := range c.followers() {
				powers[f.cfg.ID].held.Lock()
				releases = append(releases, sync.OnceFunc(powers[f.cfg.ID].held.Unlock))
			}
			release := func() {
				for _, r := range releases {
					r()
				}
			}
			defer release()
			load := fair.Workload{Conn: 1, Command: heavyCommand}
			lead.costs.Record(load, units)
			written := make(chan error, 1)
			go func() {
				_, err := lead.Write(context.Background(), load, []byte("nobody"), 1)
				written <- err
			}()
			synctest.Wait() // the write is in flight
			local := fair.Workload{Conn: 2, Command: newCommand}
			lead.costs.Record(local, fair.HeavyWork)
			if err := lead.Schedule(local, func() {}); err != nil {
				t.Errorf("beside a write of %d units, a command of the session: %v", units, err)
			}
			if _, err := lead.ReadLocal(local, []byte("all")); err != nil {
				t.Errorf("beside a write of %d units, a read of this node's state: %v", units, err)
			}
			if len(written) > 0 {
				t.Error("the log does not hang: the test shows nothing")
			}
			if err := <-written; !errors.Is(err, ErrUnknown) {
				t.Fatal(err)
			}
			eventually(t, "it leads no more", func() bool {
				return lead.Status().Role != membership.Leader
			})
			release()
			eventually(t, "writes", func() bool {
				_, err := lead.write(context.Background(), []byte("after"), 1)
				return err == nil
			})
		})
	}
}

// TestPatienceGrowsWithBytes lets a slow disk write what is large.
func TestPatienceGrowsWithBytes(t *testing.T) {
	var w writing
	if w.overdue(0) {
		t.Error("nothing is being written")
	}
	w.begin([]*raft.Log{{Data: make([]byte, 1)}})
	if w.since.Add(-int64(2 * time.Second)); !w.overdue(time.Second) {
		t.Error("a byte takes 2 s")
	}
	w.begin([]*raft.Log{{Data: make([]byte, 2*slowDisk)}})
	if w.since.Add(-int64(2 * time.Second)); w.overdue(time.Second) {
		t.Error("32 MiB may take 3 s")
	}
	w.end()
	if w.overdue(0) {
		t.Error("it was written")
	}
}
