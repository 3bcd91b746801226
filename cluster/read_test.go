// Tests of the clock of reads, and of reads that wait for the machine.

package cluster

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/fair"
)

// The clock of a read is not later than the confirmation that the leader leads: followers answer
// the question late, and a heavy read waits at the gate after it.
func TestClockOfReadsIsConfirmed(t *testing.T) {
	const late = 20 * time.Millisecond
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "a")
		for _, heavy := range []bool{false, true} {
			if !heavy {
				for _, f := range c.followers() {
					c.net.pause(f.cfg.ID)
				}
			}
			holder := lead.gate.Acquire(fair.Flow{ID: 1}, time.Hour, lead.closing)
			asked := lead.route.Load().lead.Now().ClockMs()
			u := newLocalCall([]byte("clock"), 1, lead.leaderDeadline(fair.Workload{}))
			if heavy {
				u.workload = fair.Workload{Conn: 2, Command: heavyCommand}
				lead.reads.costs.Record(u.workload, 10_000_000)
			}
			if err := lead.reads.push(u); err != nil {
				t.Fatal(err)
			}
			kick(lead.reads.wake)
			time.Sleep(late)
			for _, f := range c.followers() {
				c.net.resume(f.cfg.ID)
			}
			lead.gate.Release(holder, 0)
			received(t, "the reply", u.done)
			reply, err := u.result()
			if err != nil || u.heavy != heavy {
				t.Fatalf("heavy %v: %v", u.heavy, err)
			}
			if ms, _ := strconv.ParseInt(string(reply), 10, 64); ms < asked ||
				ms >= asked+late.Milliseconds() {
				t.Errorf("heavy %v: asked at %d, the read has %d", heavy, asked, ms)
			}
		}
	})
}

// A read that waits for the machine ends, as one that waits in a queue: after its deadline and
// ReplyWait, and when the node stops. It never ran.
func TestReadsEndWhileTheMachineIsBusy(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		c.write(n, "a")
		applied := n.machine.appliedIndex.Load()
		read := func() chan error {
			ended := make(chan error, 1)
			go func() {
				_, err := n.read(context.Background(), []byte("a"))
				ended <- err
			}()
			eventually(t, "the read to wait", func() bool { return n.machine.awaited.Load() != 0 })
			return ended
		}
		n.machine.appliedIndex.Store(0) // as if it were applying
		if err := received(t, "the read's end", read()); !errors.Is(err, ErrNotRun) {
			t.Errorf("after its deadline: %v", err)
		}
		n.machine.appliedIndex.Store(applied)
		if got := c.read(n, "a"); got != "1" {
			t.Errorf("a later read: %q", got)
		}
		n.machine.appliedIndex.Store(0)
		ended := read()
		c.close(n.cfg.ID)
		if err := received(t, "the read's end", ended); !errors.Is(err, ErrNotRun) {
			t.Errorf("as the node stops: %v", err)
		}
	})
}

// TestReadsBehindManyBarriers: of the newest entries none reaches the machine, as where nobody
// writes while a change of members is refused again and again.
func TestReadsBehindManyBarriers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		lead := c.leader()
		c.write(lead, "a")
		for range 1100 {
			if err := lead.raft.Barrier(0).Error(); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.read(lead, "len"); got != "1" {
			t.Errorf("%s entries are there", got)
		}
	})
}
