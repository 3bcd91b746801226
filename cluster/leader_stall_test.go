// Tests of leaders that make no progress, and of those that only seem so.

package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/tests/wait"
)

// slowMachine takes its time for each entry.
type slowMachine struct{ *toy }

func (s *slowMachine) Apply(l *raft.Log) any {
	time.Sleep(20 * time.Millisecond)
	return s.toy.Apply(l)
}

// TestLeaderWaitsForASlowFollower elects a leader whose only follower has much to catch up with
// before the first entry of the term is committed: it goes on leading, in that term.
func TestLeaderWaitsForASlowFollower(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead, slow, other := c.leader(), c.followers()[0], c.followers()[1]
		c.converged()
		c.close(slow.cfg.ID)
		for i := range 700 {
			c.write(lead, fmt.Sprint(i))
		}
		c.close(other.cfg.ID)
		eventually(t, "the leader steps down", func() bool { return !lead.leadsRaft() })
		c.machine = func(y *toy) Machine { return &slowMachine{y} }
		c.reopen(slow.cfg.ID)
		eventually(t, "it leads Raft", lead.leadsRaft)
		term, began := lead.raft.CurrentTerm(), time.Now()
		for !lead.Status().Ready {
			if lead.stalledLeader.Load() || lead.raft.CurrentTerm() != term {
				t.Fatalf("it gave up after %v, when the follower had %d of %d entries",
					time.Since(began), c.nodes[slow.cfg.ID].raft.LastIndex(), lead.raft.LastIndex())
			}
			if time.Since(began) > 5*time.Minute {
				t.Fatal("it is not ready")
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// TestLogTroubleIsToldTwice: a full disk is one line when it begins and one when it ends, however
// many entries fail meanwhile.
func TestLogTroubleIsToldTwice(t *testing.T) {
	simulated(t, func(t *testing.T) {
		var out wait.Buffer
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
		})
		n := c.leader()
		for range 3 {
			n.logs.storeFailure.Store(&storeFailure{err: errors.New("full"), at: time.Now()})
			time.Sleep(time.Second)
		}
		n.logs.storeFailure.Store(nil)
		eventually(t, "the end is told", func() bool {
			return strings.Contains(out.String(), "this node stores entries again")
		})
		if n := strings.Count(out.String(), "stores no entries"); n != 1 {
			t.Errorf("%d lines: %s", n, out.String())
		}
	})
}

// TestSnapshotsThatBringOn: a snapshot on its way is a leader's progress only if it may let the
// leader commit: not to a learner, and not to a voter that has taken none of the last three.
func TestSnapshotsThatBringOn(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.Learner = cfg.ID == "n3" })
		eventually(t, "two vote", func() bool {
			return len(voters(c.leader().configuration())) == 2
		})
		lead, voter := c.leader(), "n2"
		if lead.cfg.ID == voter {
			voter = "n1"
		}
		sent := &repeats{}
		for failures, hopes := range []bool{true, true, true, false} {
			if got := lead.hopes(voter, sent); got != hopes {
				t.Errorf("%d failures: %v", failures, got)
			}
			if lead.hopes("n3", sent) {
				t.Errorf("%d failures: a learner brings the leader on", failures)
			}
			sent.failures.Add(1)
		}
		sent.note(1, time.Now())
		if !lead.hopes(voter, sent) {
			t.Error("a snapshot was installed, and its voter brings nothing on")
		}
		failed := &lead.link(voter).repeats.failures
		failed.Store(3)
		c.write(lead, "a")
		eventually(t, "a voter that stores entries brings the leader on", func() bool {
			return failed.Load() == 0
		})
	})
}
