// Tests of the clock of reads.

package cluster

import (
	"strconv"
	"testing"
	"time"
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
			holder := lead.gate.acquire(flow{id: 1}, time.Hour, lead.closing)
			asked := lead.route.Load().lead.now().clockMs()
			u := newLocalCall([]byte("clock"), 1, lead.leaderDeadline(Workload{}))
			if heavy {
				u.workload = Workload{Conn: 2, Command: heavyCommand}
				lead.reads.costs.record(u.workload, 10_000_000)
			}
			if err := lead.reads.push(u); err != nil {
				t.Fatal(err)
			}
			kick(lead.reads.wake)
			time.Sleep(late)
			for _, f := range c.followers() {
				c.net.resume(f.cfg.ID)
			}
			lead.gate.release(holder, 0)
			received(t, "the reply", u.done)
			reply, err := u.take()
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
