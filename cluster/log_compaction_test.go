// Tests of the log's length on disk.

package cluster

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/clock"
)

// After a snapshot the newest entries stay, bounded in number and bytes. The end of the log is
// truncated where Raft says.
func TestTrailingEntries(t *testing.T) {
	for _, c := range []struct {
		name        string
		sizes       func(index int) int
		low, high   uint64
		first, last uint64
	}{
		{"small entries", func(int) int { return 10 }, 1, 49, 41, 50},
		{"a snapshot that is behind", func(int) int { return 10 }, 1, 30, 31, 50},
		{"nothing that may go", func(int) int { return 10 }, 1, 0, 1, 50},
		{"large entries", func(int) int { return 300 }, 1, 49, 48, 50},
		{"a huge entry among small ones", func(i int) int {
			return map[bool]int{true: 2000, false: 10}[i == 47]
		}, 1, 49, 48, 50},
		{"a huge one at the end", func(i int) int { return 10 + i/50*2000 }, 1, 49, 50, 50},
		{"a conflict at the end", func(int) int { return 300 }, 40, 50, 1, 39},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newLogStore(raft.NewInmemStore(),
				newArrivals(clock.System{}, newToy().EntryClock), func() int64 {
					return 0
				})
			s.trailing, s.trailingBytes = 10, 1000
			for i := 1; i <= 50; i++ {
				if err := s.StoreLog(&raft.Log{Index: uint64(i), Type: raft.LogCommand,
					Data: make([]byte, c.sizes(i))}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.DeleteRange(c.low, c.high); err != nil {
				t.Fatal(err)
			}
			first, err1 := s.FirstIndex()
			last, err2 := s.LastIndex()
			if first != c.first || last != c.last || err1 != nil || err2 != nil {
				t.Errorf("entries %d to %d are left (%v, %v), want %d to %d", first, last, err1,
					err2, c.first, c.last)
			}
		})
	}
}

// A log of large entries is truncated long before Raft, which counts entries, would do it, also
// after a restart.
func TestLogIsBoundedInBytes(t *testing.T) {
	const after, trailing, entry = 128 << 10, 32 << 10, 8 << 10
	for _, kind := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, kind, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) {
				cfg.LogStore, cfg.compactAfter, cfg.trailingBytes = kind, after, trailing
			})
			for round := range 2 {
				for range 3 * after / entry {
					c.write(c.leader(), strings.Repeat("x", entry))
				}
				for id, n := range c.nodes {
					eventually(t, id+"'s log is short again", func() bool {
						return logIsShort(t, n, after, trailing)
					})
				}
				if round == 0 {
					c.closeAll()
					for _, m := range c.members {
						c.reopen(m.ID)
					}
					c.ready("n1")
				}
			}
			if got := c.read(c.leader(), strings.Repeat("x", entry)); got != "96" {
				t.Errorf("%q writes are counted, want 96", got)
			}
		})
	}
}

// logIsShort reports whether a log holds no more than what comes between two snapshots and what
// stays after one.
func logIsShort(t *testing.T, n *Node, after, trailing int) bool {
	return int64(logBytes(t, n.logs)) < max(int64(after), n.stores.snapshots.newest.Load().size)+
		int64(trailing)
}

// Entries from before a restart count: processes that each write less than comes between two
// snapshots do not add up to a longer log.
func TestLogIsBoundedAcrossRestarts(t *testing.T) {
	const after, trailing, entry = 128 << 10, 8 << 10, 4 << 10
	for _, kind := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, kind, func(t *testing.T) {
			c := newCluster(t, 1, func(cfg *Config) {
				cfg.LogStore, cfg.compactAfter, cfg.trailingBytes = kind, after, trailing
			})
			for range 8 {
				n := c.leader()
				for range after / entry * 2 / 5 {
					c.write(n, strings.Repeat("x", entry))
				}
				eventually(t, "the log is short", func() bool {
					return logIsShort(t, n, after, trailing)
				})
				c.close("n1")
				c.reopen("n1")
			}
		})
	}
}

// logBytes returns the size of the entries in a log.
func logBytes(t *testing.T, s *logStore) int {
	t.Helper()
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	size := 0
	for i := max(first, 1); i <= last; i++ {
		var l raft.Log
		if s.GetLog(i, &l) == nil { // it may just have been cut
			size += len(l.Data)
		}
	}
	return size
}

// TestReplayIsBoundedInWork writes small entries that take much work: a restart repeats few of
// them.
func TestReplayIsBoundedInWork(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const after = 20
		c := newCluster(t, 1, func(cfg *Config) { cfg.replayWork = after * toyWork })
		for range 2 {
			n := c.leader()
			for range 5 * after {
				c.write(n, "w")
			}
			seen := n.stores.snapshots.newest.Load
			eventually(t, "little is to be applied again", func() bool {
				return seen().index > 0 && n.logs.growth.work.Load() < max(after*toyWork,
					seen().size*loadWork)
			})
			if got, want := n.logs.growth.work.Load(),
				int64(n.applied()-seen().index)*toyWork; got > want {
				t.Errorf("work of %d units is counted behind the snapshot of entry %d, "+
					"and there are %d entries", got, seen().index, want/toyWork)
			}
			c.close("n1")
			c.reopen("n1")
			n = c.leader()
			c.write(n, "w")
			if got := c.toys["n1"].work.Load(); got > 2*after*toyWork {
				t.Errorf("after a restart %d units were applied", got)
			}
		}
	})
}

// slowToy waits in the middle of its replay, and records how much it had applied at its first
// snapshot.
type slowToy struct {
	*toy
	at       int
	wait     func()
	snapshot atomic.Int64
}

func (t *slowToy) Apply(l *raft.Log) any {
	if len(t.batches()) == t.at {
		t.wait()
	}
	return t.toy.Apply(l)
}

func (t *slowToy) Snapshot() (raft.FSMSnapshot, error) {
	t.snapshot.CompareAndSwap(0, int64(len(t.batches())))
	return t.toy.Snapshot()
}

// A long log gets its snapshot after it is replayed, not during: that one would soon be replaced.
func TestNoSnapshotWhileReplaying(t *testing.T) {
	const entries, after = 150, 20
	dir := t.TempDir()
	n, err := Open(Config{ID: "n1", DataDir: dir}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready", func() bool { return n.Status().Ready })
	for range entries {
		if _, err := n.write(context.Background(), []byte("w"), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	m := &slowToy{toy: newToy(), at: after + 5, wait: func() {
		buf := make([]byte, 1<<20)
		eventually(t,
			"more work was done than comes between two snapshots, and the loop has seen it",
			func() bool {
				stacks := string(buf[:runtime.Stack(buf, true)])
				return strings.Contains(stacks, "awaitLoaded") ||
					strings.Contains(stacks, "takeSnapshot")
			})
	}}
	if n, err = Open(Config{ID: "n1", DataDir: dir, replayWork: after * toyWork}, m); err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, "a snapshot", func() bool { return n.stores.snapshots.newest.Load().index > 0 })
	if got := m.snapshot.Load(); got < entries {
		t.Errorf("a snapshot was taken when %d of %d entries were applied", got, entries)
	}
}

// All members have different bounds, and none a later one than configured.
func TestStagger(t *testing.T) {
	members := func(n int) (c raft.Configuration) {
		for i := range n {
			c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(fmt.Sprintf("n%d", n-i))})
		}
		return c
	}
	for n := 1; n <= 5; n++ {
		seen := map[int64]bool{}
		for _, s := range members(n).Servers {
			got := stagger(3000, members(n), string(s.ID))
			if got > 3000 || got < 2000 || seen[got] {
				t.Errorf("%s of %d: %d, of which others have %v", s.ID, n, got, seen)
			}
			seen[got] = true
		}
	}
	if got := stagger(3000, members(0), "n1"); got != 3000 {
		t.Errorf("no member is known: %d", got)
	}
}
