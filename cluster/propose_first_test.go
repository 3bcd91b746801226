// Tests of what goes before all that waits: the refusal of a script that holds up the cluster.

package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/cluster/fair"
)

// TestWriteFirst: while an entry is applied for long, the leader proposes nothing more, so that
// what ends the trouble is applied right behind it, before all that waits.
func TestWriteFirst(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n := c.leader()
		toy := c.toys[n.cfg.ID]
		toy.apply.Lock()
		const waiting = 3 * joinBatches
		done := make(chan struct{}, waiting+1)
		write := func(batch string) {
			_, _ = n.Write(context.Background(), fair.Workload{}, []byte(batch), 1)
			done <- struct{}{}
		}
		go write("slow")
		time.Sleep(2 * longApply)
		if !n.machine.appliesLong() {
			t.Fatal("no entry is applied for long")
		}
		for range waiting {
			go write("again")
		}
		time.Sleep(longApply)
		n.WriteFirst([]byte("first"))
		time.Sleep(longApply)
		if flying := n.inFlight.Load(); flying != 1 {
			t.Errorf("%d entries are in flight", flying)
		}
		toy.apply.Unlock()
		for range waiting + 1 {
			<-done
		}
		if got := c.read(n, "all"); !strings.HasPrefix(got, "slow first again ") ||
			strings.Count(got, "again") != waiting {
			t.Errorf("applied: %.100s", got)
		}
	})
}

// TestFewCallersWaitForOneEntry: where few callers write, a batch that comes while an entry is in
// flight has the next one at once. Where many do, it waits for theirs.
func TestFewCallersWaitForOneEntry(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		apply := c.toys[n.cfg.ID].apply
		var done sync.WaitGroup
		write := func(count int) {
			for range count {
				done.Go(func() {
					_, _ = n.Write(context.Background(), fair.Workload{}, []byte("batch"), 1)
				})
			}
			synctest.Wait()
		}
		flying := func(why string, want int32) {
			t.Helper()
			if got := n.inFlight.Load(); got != want {
				t.Errorf("%s: %d entries are in flight, not %d", why, got, want)
			}
		}
		for range fewEntries {
			write(1)
		}
		apply.Lock()
		for i, want := range []int32{1, 2, 2} {
			write(1)
			flying(fmt.Sprintf("few callers, batch %d", i+1), want)
		}
		apply.Unlock()
		synctest.Wait()

		apply.Lock()
		write(1)
		write(2 * fewBatches)
		apply.Unlock()
		synctest.Wait()
		apply.Lock()
		for i, want := range []int32{1, 1} {
			write(1)
			flying(fmt.Sprintf("many callers, batch %d", i+1), want)
		}
		apply.Unlock()
		done.Wait()
	})
}

// TestWriteFirstBeforeHeavy: what goes first is proposed before a heavy batch too, also while the
// slow entry has been applied and is not answered yet, so that a light batch would wait.
func TestWriteFirstBeforeHeavy(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		c.write(n, "slow")
		n.pause.mu.Lock()
		n.inFlight.Add(1) // the slow entry
		n.writes.beCautious()
		load := fair.Workload{Conn: 1, Command: heavyCommand}
		n.writes.costs.Record(load, 10_000_000)
		again := newLocalCall([]byte("again"), 1, n.leaderDeadline(load)).withWorkload(load)
		if err := n.writes.push(again); err != nil || !again.heavy {
			t.Fatalf("heavy %v: %v", again.heavy, err)
		}
		n.WriteFirst([]byte("first"))
		n.pause.mu.Unlock()
		received(t, "the heavy batch's end", again.done)
		n.inFlight.Add(-1)
		if got := c.read(n, "all"); got != "slow first again" {
			t.Errorf("applied: %s", got)
		}
	})
}

// TestTurnIsGivenBack withdraws the only heavy call while it waits for its turn: heavy reads have
// the next one, without a write that wakes the proposer.
func TestTurnIsGivenBack(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		load := fair.Workload{Conn: 2, Command: heavyCommand}
		n.writes.costs.Record(load, 10_000_000)
		n.reads.costs.Record(load, 10_000_000)
		holder := n.gate.Acquire(fair.Flow{ID: 1}, time.Hour, n.closing)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			_, err := n.Write(ctx, load, []byte("heavy"), 1)
			done <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err == nil {
			t.Fatal("it was written")
		}
		n.gate.Release(holder, 0)
		if _, err := n.ReadLocal(load, []byte("all")); err != nil {
			t.Error(err)
		}
	})
}
