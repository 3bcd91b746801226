// Tests of broadcast, and of what waits for it: Raft's calls to members that may receive nothing.

package cluster

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
)

// TestBroadcast counts how often await checks its condition: once, and once per notify.
func TestBroadcast(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var b broadcast
		looks := make(chan int)
		stop := make(chan struct{})
		ended := make(chan bool)
		go func() {
			n := 0
			ended <- b.await(stop, func() bool {
				n++
				looks <- n
				return n == 4
			})
		}()
		for want := 1; want <= 4; want++ {
			if got := <-looks; got != want {
				t.Fatalf("look %d, want %d", got, want)
			}
			b.notify()
		}
		if !<-ended {
			t.Error("await gave up")
		}
		go func() { ended <- b.await(stop, func() bool { return false }) }()
		close(stop)
		if <-ended {
			t.Error("await returned true for a condition that never held")
		}
	})
}

// TestCallsToRemovedMembersSleep removes a member and keeps writing: nothing wakes the leader's
// calls to it until the leadership ends.
func TestCallsToRemovedMembersSleep(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, gone := c.leader(), c.followers()[0]
		eventually(t, "the follower is registered",
			func() bool { return lead.admitted(gone.cfg.ID) })
		c.close(gone.cfg.ID)
		if err := lead.ChangeMembers(membership.Change{Kind: membership.Remove,
			ID: gone.cfg.ID}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the removal is committed, and the register without the member", func() bool {
			m := lead.machine.members.Load()
			return m.retired[gone.cfg.ID] && m.register.incarnations[gone.cfg.ID] == ""
		})
		parked := make(chan error)
		transport := &transport{n: lead}
		go func() {
			parked <- transport.park(raft.ServerID(gone.cfg.ID),
				lead.raft.CurrentTerm())
		}()

		rung := settled(t, lead)
		for range 100 {
			c.write(lead, "a")
		}
		select {
		case <-rung:
			t.Error("writes woke the calls to a removed member")
		case err := <-parked:
			t.Errorf("the call to a removed member ended: %v", err)
		default:
		}
		if err := lead.TransferLeadership(""); err != nil {
			t.Fatal(err)
		}
		if err := <-parked; err != errGateClosed {
			t.Errorf("the call ended with %v", err)
		}
	})
}
