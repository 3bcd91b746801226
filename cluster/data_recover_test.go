// Tests of recovery and its interruptions; internal/tests/e2e has those on real processes.

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/raftlog"
)

func openOffline(t testing.TB, dir string, m Machine) *Offline {
	t.Helper()
	o, err := OpenOffline(dir, m, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// recoverAlone recovers a closed member of c, with its state and one more word.
func (c *testCluster) recoverAlone(id string) error {
	c.t.Helper()
	toy := newToy()
	o := openOffline(c.t, filepath.Join(c.dir, id), toy)
	defer o.Close()
	if err := o.Replay(0, nil); err != nil {
		return err
	}
	_, err := o.RecoverAlone(1, 1<<20, 1<<32, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(toyState{List: append(toy.batches(), "recovered"),
			ClockMs: toy.Clock()})
	})
	return err
}

func TestRecoverAlone(t *testing.T) {
	for _, store := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, store, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = store })
			want := []string{}
			for i := range 20 {
				word := fmt.Sprint("w", i)
				c.write(c.leader(), word)
				want = append(want, word)
				if i == 12 {
					c.converged()
					if err := c.nodes["n1"].Snapshot(); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.converged()
			id := c.nodes["n1"].clusterID()
			if _, err := OpenOffline(filepath.Join(c.dir, "n1"), newToy(),
				slog.New(slog.DiscardHandler)); err == nil ||
				!strings.Contains(err.Error(), "in use") {
				t.Errorf("a node that runs: %v", err)
			}
			for _, m := range c.members {
				c.close(m.ID)
			}
			checkContents(t, filepath.Join(c.dir, "n1"), id)
			if err := c.recoverAlone("n1"); err != nil {
				t.Fatal(err)
			}
			c.reopen("n1")
			c.ready("n1")
			c.write(c.nodes["n1"], "new")
			if got := c.toys["n1"].batches(); !slices.Equal(got, append(want, "recovered", "new")) {
				t.Errorf("%q", got)
			}
			n := c.nodes["n1"]
			if n.clusterID() == id || !n.retired("n2") || !n.retired("n3") ||
				len(n.configuration().Servers) != 1 {
				t.Errorf("cluster %s, before %s, %+v", n.clusterID(), id, n.view())
			}
			c.close("n1")
			if err := c.recoverAlone("n1"); err == nil ||
				!strings.Contains(err.Error(), "is the only voter of its cluster") {
				t.Errorf("again: %v", err)
			}
		})
	}
}

// checkContents checks what a closed member of the cluster holds.
func checkContents(t *testing.T, dir, cluster string) {
	t.Helper()
	o := openOffline(t, dir, newToy())
	h, err := o.Contents()
	if err != nil || h.Node != "n1" || h.Cluster != cluster ||
		!slices.Equal(h.Voters, []string{"n1", "n2", "n3"}) || h.SnapshotIndex == 0 ||
		h.LastIndex <= h.SnapshotIndex || h.LastEntry == nil {
		t.Errorf("%+v %v", h, err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}

// TestContentsSayWhatIsOwed: a node was refetched, has got the beginning again, and the others are
// lost. What it had is named, and counts once it is back in place.
func TestContentsSayWhatIsOwed(t *testing.T) {
	for _, store := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, store, func(t *testing.T) {
			c := newCluster(t, 2, func(cfg *Config) { cfg.LogStore = store })
			for i := range 5 {
				c.write(c.leader(), fmt.Sprint("w", i))
			}
			c.converged()
			c.close("n1")
			dir, part := filepath.Join(c.dir, "n1"), t.TempDir()
			if err := os.CopyFS(part, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			c.reopen("n1")
			c.write(c.leader(), "the newest")
			want := c.converged()
			last := c.nodes["n1"].applied()
			c.closeAll()
			done, err := Refetch(dir, newToy(), testLogger())
			if err != nil || done.Owed < last {
				t.Fatalf("%+v, %v; it had entry %d", done, err, last)
			}
			move := func(from, to string) {
				t.Helper()
				for _, name := range []string{walName, boltLogName, raftlog.MarkName,
					snapshotsName} {
					err := os.RemoveAll(filepath.Join(to, name))
					if err == nil {
						err = os.Rename(filepath.Join(from, name), filepath.Join(to, name))
					}
					if err != nil && !missing(err) {
						t.Fatal(err)
					}
				}
			}
			move(part, dir) // as the leader sends it
			contents := func() (h Contents, batches []string) {
				t.Helper()
				toy := newToy()
				o := openOffline(t, dir, toy)
				h, err := o.Contents()
				if err = errors.Join(err, o.Replay(0, nil), o.Close()); err != nil {
					t.Fatal(err)
				}
				return h, toy.batches()
			}
			h, _ := contents()
			if says := fmt.Sprintf("entry %d: what the node had is in %s", done.Owed,
				done.Kept); h.LastIndex >= done.Owed || h.Owing() != says {
				t.Errorf("%+v: %s, want %s", h, h.Owing(), says)
			}
			move(done.Kept, dir)
			if h, got := contents(); h.Owing() != "" || !slices.Equal(got, want) {
				t.Errorf("back in place: %+v, %q, want %q", h, got, want)
			}
		})
	}
}

// TestRecoverPassesOverWhatASnapshotReplaced: the node was killed while it installed a snapshot.
// What that replaced is not applied, and stays until the node starts.
func TestRecoverPassesOverWhatASnapshotReplaced(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 100 })
		c.write(c.leader(), "a")
		if err := c.leader().Snapshot(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			c.write(c.leader(), "replaced")
		}
		dir := filepath.Join(c.dir, "n1")
		files := c.leader().stores.snapshots
		c.close("n1")
		list, err := files.SnapshotStore.List()
		if err != nil {
			t.Fatal(err)
		}
		is := list[0]
		_, from, err := files.SnapshotStore.Open(is.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		index, term := is.Index+2, is.Term+1 // a later leader's, in place of some of the entries
		sink, err := files.SnapshotStore.Create(1, index, term, is.Configuration,
			is.ConfigurationIndex, &raft.InmemTransport{})
		if err == nil {
			_, err = io.Copy(sink, from)
			err = errors.Join(err, sink.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		toy := newToy()
		o := openOffline(t, dir, toy)
		h, err := o.Contents()
		if err != nil || h.LastIndex != index || h.LastTerm != term || h.LastEntry != nil {
			t.Errorf("%+v, %v", h, err)
		}
		if err := o.Replay(0, nil); err != nil || !slices.Equal(toy.batches(), []string{"a"}) {
			t.Errorf("%q, %v", toy.batches(), err)
		}
		whole := o.stores.snapshots.log
		if last, err := whole.LastIndex(); err != nil || last <= index {
			t.Errorf("the log ends at %d, %v", last, err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
		c.reopen("n1")
		c.ready("n1")
		c.write(c.nodes["n1"], "b")
		if got := c.toys["n1"].batches(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestInterruptedExchange stops the exchange after each of its steps. Open must not take the result
// for an empty directory, and the next recovery finishes the exchange.
func TestInterruptedExchange(t *testing.T) {
	for steps := range 2*len(exchanged) + 1 {
		dir := filepath.Join(t.TempDir(), "d[1]*")
		x := exchangeOf(dir, "7")
		begun := interruptExchange(t, dir, x, steps)
		if refuseForeign(dir) == nil {
			t.Errorf("after %d steps the directory counts as empty", steps)
		}
		if _, err := FinishRecovery(dir); err != nil {
			t.Errorf("after %d steps: %v", steps, err)
		}
		want := "new"
		if steps == 0 {
			want = "old"
		}
		for _, name := range exchanged {
			got, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(got) != want {
				t.Errorf("after %d steps %s is %q %v", steps, name, got, err)
			}
			if kept, err := os.ReadFile(filepath.Join(x.kept, name)); steps > 0 &&
				(err != nil || string(kept) != "old") {
				t.Errorf("after %d steps the old %s is %q %v", steps, name, kept, err)
			}
		}
		if _, err := os.Stat(x.staged); begun && !os.IsNotExist(err) {
			t.Errorf("after %d steps %s remains: %v", steps, x.staged, err)
		}
	}
}

// exchanged are the files that an exchange moves.
var exchanged = []string{versionName, stableName, walName, snapshotsName}

// interruptExchange makes an old and a new set of files and some of the steps of their exchange. It
// reports whether the exchange has begun and is not complete.
func interruptExchange(t *testing.T, dir string, x exchange, steps int) (begun bool) {
	t.Helper()
	for at, content := range map[string]string{dir: "old", x.staged: "new", x.kept: ""} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range exchanged {
			if content == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(at, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var moves [][2]string
	for i, name := range exchanged {
		moves = append(moves, [2]string{filepath.Join(dir, name), filepath.Join(x.kept, name)})
		if i > 0 {
			moves = append(moves, [2]string{filepath.Join(x.staged, name),
				filepath.Join(dir, name)})
		}
	}
	moves = append(moves, [2]string{filepath.Join(x.staged, versionName),
		filepath.Join(dir, versionName)})
	for _, move := range moves[:steps] {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	return steps > 0 && steps < len(moves)
}

// TestRecoverBeforeAnEntry leaves out the end of a single node's log, from a given entry on.
func TestRecoverBeforeAnEntry(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		c.write(n, "a")
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		inSnapshot := n.applied()
		c.write(n, "b")
		kept := n.applied()
		c.write(n, "bad")
		c.write(n, "after")
		c.close("n1")
		toy := newToy()
		o := openOffline(t, filepath.Join(c.dir, "n1"), toy)
		if err := o.Replay(inSnapshot, nil); err == nil ||
			!strings.Contains(err.Error(), "cannot leave out entry") {
			t.Errorf("an entry that the snapshot holds: %v", err)
		}
		var applied []uint64
		if err := o.Replay(kept+1, func(index uint64) {
			applied = append(applied, index)
		}); err != nil {
			t.Fatal(err)
		}
		if got := toy.batches(); !slices.Equal(got, []string{"a", "b"}) ||
			!slices.Equal(applied, []uint64{kept}) {
			t.Errorf("%q, by the entries %v", got, applied)
		}
		_, err := o.RecoverAlone(1, 1<<20, 1<<32, func(w io.Writer) error {
			return json.NewEncoder(w).Encode(toyState{List: toy.batches(), ClockMs: toy.Clock()})
		})
		if err = errors.Join(err, o.Close()); err != nil {
			t.Fatal(err)
		}
		c.reopen("n1")
		c.write(c.leader(), "new")
		if got := c.toys["n1"].batches(); !slices.Equal(got, []string{"a", "b", "new"}) {
			t.Errorf("after the recovery: %q", got)
		}
	})
}

// What an earlier recovery staged before it was killed never takes the place of a later one.
func TestStaleExchangeNeverComes(t *testing.T) {
	dir := t.TempDir()
	stale := exchangeOf(dir, "1")
	interruptExchange(t, dir, stale, 0)
	x, err := newExchange(dir, "2")
	if err != nil {
		t.Fatal(err)
	}
	interruptExchange(t, dir, x, 1) // the version file has moved
	if is, err := interrupted(dir); err != nil || is == nil || *is != x {
		t.Errorf("%+v is interrupted, %v", is, err)
	}
	if _, err := os.Stat(stale.staged); !os.IsNotExist(err) {
		t.Errorf("%s remains: %v", stale.staged, err)
	}
}
