// Tests of what goes before all that waits: the refusal of a script that holds up the cluster.

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"
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
			_, _ = n.Write(context.Background(), Workload{}, []byte(batch), 1)
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
