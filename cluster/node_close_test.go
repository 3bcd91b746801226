// Tests of a leader that stops.

package cluster

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// makeUnfit makes a node decline to lead, as one whose disk is full.
func makeUnfit(n *Node) {
	n.logs.storeFailure.Store(&storeFailure{err: errors.New("full"),
		at: time.Now().Add(time.Hour)}) // it does not expire
}

// newPreferring returns a cluster whose leader hands over to preferred when it stops.
func newPreferring(t *testing.T) (c *testCluster, lead, preferred, other *Node) {
	c = newCluster(t, 3, func(cfg *Config) {
		cfg.preferAfter = time.Hour
		var k uint64
		_, _ = fmt.Sscanf(cfg.ID, "n%d", &k)
		cfg.Priority = 100 + k
	})
	lead, preferred, other = c.leader(), c.followers()[1], c.followers()[0]
	c.write(lead, "w")
	c.converged()
	eventually(t, "the leader knows what its followers have", func() bool {
		lead.askMembers()
		next, err := lead.successor("")
		return err == nil && string(next.ID) == preferred.cfg.ID
	})
	return c, lead, preferred, other
}

// handsOver closes the leader, and checks that next leads without an election timeout.
func (c *testCluster) handsOver(lead, next *Node) {
	c.t.Helper()
	term := lead.raft.CurrentTerm()
	c.close(lead.cfg.ID)
	eventually(c.t, "another leads", func() bool {
		return c.leader() == next && next.raft.CurrentTerm() == term+1
	})
}

// TestStopBesideOneThatDeclines: the leader does not know yet that the follower that it prefers is
// not fit to lead. The other one leads.
func TestStopBesideOneThatDeclines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, lead, preferred, other := newPreferring(t)
		makeUnfit(preferred)
		c.handsOver(lead, other)
	})
}

// TestStopBesideOneThatHangs: the follower that the leader prefers does not answer.
func TestStopBesideOneThatHangs(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, lead, preferred, other := newPreferring(t)
		c.net.pause(preferred.cfg.ID)
		time.Sleep(3 * askEvery)
		began := time.Now()
		lead.TransferIfLeader()
		if took := time.Since(began); took >= lead.cfg.HeartbeatTimeout {
			t.Errorf("the leader waited for %v", took)
		}
		eventually(t, "the other one leads", func() bool { return c.leader() == other })
	})
}

// TestStopBesideUnfitFollowers: nobody is fit to lead, and that does not end. The leader stops
// without a successor, and one of the others leads when it is fit.
func TestStopBesideUnfitFollowers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, lead, preferred, other := newPreferring(t)
		makeUnfit(preferred)
		makeUnfit(other)
		began := time.Now()
		c.close(lead.cfg.ID)
		if took := time.Since(began); took >= drainWait {
			t.Errorf("the leader stopped after %v", took)
		}
		other.logs.storeFailure.Store(nil)
		eventually(t, "the one that is fit again leads", func() bool { return c.leader() == other })
	})
}

// TestStopBesideFollowersThatReplay: both followers replay their logs. The leader serves meanwhile,
// and hands over to the one that ends first.
func TestStopBesideFollowersThatReplay(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, lead, preferred, other := newPreferring(t)
		for _, n := range []*Node{preferred, other} {
			toy := c.toys[n.cfg.ID]
			toy.apply.Lock()
			if n == other {
				defer toy.apply.Unlock()
			}
		}
		goOn := sync.OnceFunc(c.toys[preferred.cfg.ID].apply.Unlock)
		defer goOn()
		for i := range 2 * nearlyApplied {
			c.write(lead, fmt.Sprint("w", i))
		}
		eventually(t, "the followers know that they are behind", func() bool {
			return !preferred.fitToLead() && !other.fitToLead()
		})
		term := lead.raft.CurrentTerm()
		stopped := make(chan struct{})
		go func() { defer close(stopped); lead.TransferIfLeader() }()
		began := time.Now()
		for range 10 { // more would fill the followers' queues
			c.write(lead, "while it waits")
			time.Sleep(unfitWait / 5)
		}
		if took := time.Since(began); took > 3*unfitWait {
			t.Errorf("it held up writes: ten took %v", took)
		}
		if lead.raft.State() != raft.Leader {
			t.Error("it leads no longer")
		}
		goOn()
		<-stopped
		eventually(t, "the one that has caught up leads", func() bool {
			return c.leader() == preferred && preferred.raft.CurrentTerm() == term+1
		})
	})
}

// TestLeavingNodeDeclines: a node that is stopping does not take leadership over, though the leader
// does not know yet that it is.
func TestLeavingNodeDeclines(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, other := c.leader(), c.followers()[0]
		c.write(lead, "a")
		c.converged()
		other.leaving.Store(true)
		if err := lead.askToStand(raft.ServerID(other.cfg.ID),
			raft.ServerAddress(other.mux.Addr().String())); err == nil {
			t.Error("it stands for election")
		}
		if c.leader() != lead {
			t.Error("the leader has changed")
		}
	})
}
