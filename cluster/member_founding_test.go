// Tests of starting on a data directory of other members.

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
)

// TestOtherMembersAreRefused starts n1 on the state of another set of members, from the log and
// from a snapshot.
func TestOtherMembersAreRefused(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		runSimulated(t, fmt.Sprintf("snapshot=%v", snapshot), func(t *testing.T) {
			c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
			for range 3 {
				c.write(c.leader(), "alone")
			}
			if snapshot {
				if err := c.nodes["n1"].Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			c.close("n1")
			dir := filepath.Join(c.dir, "n1")
			cfg := Config{ID: "n1", DataDir: dir,
				Members: []Member{{"n1", "127.0.0.1:1"}, {"n2", "127.0.0.1:2"},
					{"n3", "127.0.0.1:3"}}}
			n, err := Open(cfg, newToy())
			want := "data directory " + dir +
				" belongs to a cluster of the nodes n1, not of the configured nodes n1, n2, n3"
			if err == nil || err.Error() != want {
				if err == nil {
					n.Close()
				}
				t.Fatalf("%v, want %s", err, want)
			}
			c.reopen("n1")
			c.ready("n1")
			if got := c.read(c.nodes["n1"], "alone"); got != "3" {
				t.Errorf("after the refusal: %q", got)
			}
		})
	}
}

// TestMemberAloneIsRefused starts a member of three without naming the others.
func TestMemberAloneIsRefused(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.close("n2")
		if n, err := Open(Config{ID: "n2", DataDir: filepath.Join(c.dir, "n2")},
			newToy()); err == nil {
			n.Close()
			t.Fatal("the member started alone")
		}
		c.reopen("n2")
		c.ready("n2")
	})
}

// A founding that was interrupted between Raft's two steps, the term and the configuration, is made
// again by the next start.
func TestInterruptedFounding(t *testing.T) {
	dir, full := t.TempDir(), &atomic.Pointer[error]{}
	full.Store(&errFull)
	cfg := Config{ID: "n1", DataDir: dir, Logger: testLogger(),
		wrapLog: func(s raft.LogStore) raft.LogStore {
			return refusingLog{s, &atomic.Pointer[error]{}, full}
		}}
	if n, err := Open(cfg, newToy()); !errors.Is(err, errFull) &&
		!strings.Contains(fmt.Sprint(err), errFull.Error()) {
		t.Fatal(n, err)
	}
	full.Store(nil)
	n, err := Open(cfg, newToy())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, "it leads", func() bool { return n.Status().Ready })
}
