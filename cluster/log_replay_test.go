// Tests of what a node reports and does while it replays its log, and of its applied index.

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// replays returns what the machine of a node was notified of.
func (c *testCluster) replays(id string) string {
	toy := c.toys[id]
	toy.mu.Lock()
	defer toy.mu.Unlock()
	return fmt.Sprint(toy.Replays)
}

func TestMachineLearnsWhatIsReplayed(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
		for range 3 {
			c.write(c.leader(), "old")
		}
		if got := c.replays("n1"); got != "[]" {
			t.Errorf("at the first start: %s", got)
		}
		c.close("n1")
		c.reopen("n1")
		c.write(c.leader(), "new")
		c.write(c.leader(), "new")
		if got := c.replays("n1"); got != "[true 0 false 3]" {
			t.Errorf("after a restart: %s", got)
		}
		if err := c.nodes["n1"].Snapshot(); err != nil {
			t.Fatal(err)
		}
		c.write(c.leader(), "behind the snapshot")
		c.close("n1")
		c.reopen("n1")
		c.write(c.leader(), "new")
		if got := c.replays("n1"); got != "[true 5 false 6]" {
			t.Errorf("after a restart from a snapshot: %s", got)
		}
	})
}

// TestCutEntriesAreNoReplay: entries with which a new leader replaces uncommitted ones are new.
func TestCutEntriesAreNoReplay(t *testing.T) {
	toy := newToy()
	a := newApplier(toy, testLogger())
	a.replayEnd.Store(5)
	apply := func(index uint64) {
		a.Apply(&raft.Log{Index: index, Data: toy.AppendEntry(nil, 1, 0, [][]byte{[]byte("w")})})
	}
	apply(1)
	a.cut(7)
	apply(2)
	if got := fmt.Sprint(toy.Replays); got != "[true 0]" || !a.loading() {
		t.Errorf("cut behind the replay: %s, loading %v", got, a.loading())
	}
	a.cut(2)
	if a.loading() {
		t.Error("nothing is left to replay")
	}
	apply(3)
	if got := fmt.Sprint(toy.Replays); got != "[true 0 false 2]" {
		t.Errorf("cut within the replay: %s", got)
	}
}

func TestReadLocalWhileLoading(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "w")
		c.converged()
		c.closeAll()
		c.reopen("n1")
		if got, err := c.nodes["n1"].readLocal([]byte("len")); !errors.Is(err, ErrLoading) ||
			!errors.Is(err, ErrNotRun) {
			t.Errorf("without a majority: %q %v", got, err)
		}
		c.reopen("n2")
		c.reopen("n3")
		for id, n := range c.nodes {
			eventually(t, id+" has replayed its log", func() bool {
				_, err := n.readLocal([]byte("len"))
				return err == nil
			})
			if got, err := n.readLocal([]byte("len")); err != nil || string(got) != "1" {
				t.Errorf("%s: %q %v", id, got, err)
			}
		}
	})
}

// TestAppliedReachesCommit closes leaders and restarts nodes without a write: the machine sees
// nothing of what is logged then.
func TestAppliedReachesCommit(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, func(cfg *Config) { cfg.TrailingLogs = 1 })
		c.write(c.leader(), "w")
		settled := func(when string) {
			t.Helper()
			eventually(t, "applied is commit on every node "+when, func() bool {
				for _, n := range c.nodes {
					if s := n.Status(); s.Applied != s.Commit || s.Commit != s.LastLog ||
						s.LastLog == 0 {
						return false
					}
				}
				return true
			})
		}
		settled("at first")
		for range 2 {
			old := c.leader()
			eventually(t, "leadership is handed over", func() bool {
				return old.TransferLeadership("") == nil
			})
		}
		settled("after a takeover")
		began := time.Now().Add(-time.Second)
		for id, n := range c.nodes {
			if s := n.Status(); s.Snapshot.Index != 0 || !s.Snapshot.Time.IsZero() {
				t.Errorf("%s has a snapshot at %d of %v", id, s.Snapshot.Index, s.Snapshot.Time)
			}
			if err := n.Snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		c.closeAll()
		for _, m := range c.members {
			c.reopen(m.ID)
		}
		c.leader()
		settled("after a restart from snapshots")
		for id, n := range c.nodes {
			if s := n.Status(); s.Snapshot.Index == 0 || s.Snapshot.Index > s.Commit ||
				s.Snapshot.Time.Before(began) || s.Snapshot.Time.After(time.Now()) {
				t.Errorf("%s has a snapshot at %d of %v", id, s.Snapshot.Index, s.Snapshot.Time)
			}
		}
	})
}

// brokenMachine panics on every entry.
type brokenMachine struct{ *toy }

func (brokenMachine) Apply(*raft.Log) any { panic("broken") }

// TestEntriesThatAreNotAppliedAreNamed: the log names an entry that ends the process, and,
// repeatedly, one that takes long.
func TestEntriesThatAreNotAppliedAreNamed(t *testing.T) {
	var out bytes.Buffer
	a := newApplier(brokenMachine{newToy()}, slog.New(slog.NewTextHandler(&out, nil)))
	func() {
		defer func() {
			if p := recover(); p != "broken" {
				t.Errorf("the panic became %v", p)
			}
		}()
		a.Apply(&raft.Log{Index: 7})
	}()
	if got := out.String(); !strings.Contains(got, `msg="a log entry cannot be applied;`) ||
		!strings.HasSuffix(got, " index=7\n") {
		t.Error(got)
	}
	var s slowEntry
	lines := func(soFar time.Duration) int {
		out.Reset()
		a.began.Store(int64(time.Since(processStart) - soFar))
		a.report(&s)
		a.report(&s)
		return strings.Count(out.String(), "index=7 so-far="+soFar.String())
	}
	for _, c := range []struct {
		soFar time.Duration
		want  int
	}{{time.Second, 0}, {6 * time.Second, 1}, {8 * time.Second, 0}, {13 * time.Second, 1}} {
		if got := lines(c.soFar); got != c.want {
			t.Errorf("after %v: %d lines, want %d", c.soFar, got, c.want)
		}
	}
	a.applying.Store(0)
	if got := lines(time.Minute); got != 0 {
		t.Errorf("%d lines when nothing is applied", got)
	}
}
