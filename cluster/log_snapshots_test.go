// Tests of the snapshot store that Raft sees.

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// listed makes a store with snapshots at the given indexes and returns one to list them, with a log
// that holds some entries.
func listed(t *testing.T, entries []uint64, indexes ...uint64) *snapshotStore {
	t.Helper()
	dir, log := t.TempDir(), raft.NewInmemStore()
	files := &snapshotFiles{filepath.Join(dir, snapshotsName), testLogger()}
	if err := makeDir(files.dir); err != nil {
		t.Fatal(err)
	}
	for _, index := range indexes {
		sink, err := files.Create(1, index, 2, raft.Configuration{}, 1, nil)
		if err == nil {
			err = sink.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, index := range entries {
		if err := log.StoreLog(&raft.Log{Index: index, Term: 2}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newSnapshotStore(files, log, dir, testLogger())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A snapshot that cannot be read is not passed over, unless the log has what it holds.
func TestUnreadableSnapshot(t *testing.T) {
	all := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for name, c := range map[string]struct {
		entries []uint64
		indexes []uint64
		before  []uint64 // what is listed
		want    []uint64 // once the newest cannot be read; nil: an error
	}{
		"all in the log":            {all, []uint64{3, 6}, []uint64{6, 3}, []uint64{3}},
		"the only one, all in it":   {all, []uint64{6}, []uint64{6}, []uint64{}},
		"the rest in the log":       {all[3:], []uint64{3, 6}, []uint64{6, 3}, []uint64{3}},
		"a part in the log":         {all[4:], []uint64{3, 6}, []uint64{6}, nil},
		"nothing in the log":        {nil, []uint64{3, 6}, []uint64{6}, nil},
		"the only one":              {nil, []uint64{6}, []uint64{6}, nil},
		"a log with a gap":          {[]uint64{4, 5, 7}, []uint64{3, 6}, []uint64{6}, nil},
		"a log that ends before it": {all[:5], []uint64{3, 6}, []uint64{6}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := listed(t, c.entries, c.indexes...)
			check := func(when string, want []uint64) {
				list, err := s.List()
				got := []uint64{}
				for _, is := range list {
					got = append(got, is.Index)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) || (err != nil) != (want == nil) {
					t.Errorf("%s: %d, %v instead of %d", when, got, err, want)
				}
			}
			check("before", c.before)
			newest, _, _, err := s.files.newest()
			if err == nil {
				err = os.Remove(filepath.Join(s.dir, snapshotsName, newest, "meta.json"))
			}
			if err != nil {
				t.Fatal(err)
			}
			check("after", c.want)
		})
	}
}

// What a snapshot replaced is dropped once that can be read.
func TestReplacedEntriesStayUntilTheSnapshotIsRead(t *testing.T) {
	s := listed(t, nil, 3, 6)
	for index := range uint64(9) {
		l := &raft.Log{Index: index + 1, Term: 1}
		if index == 8 {
			l.Type = raft.LogConfiguration
			l.Data = raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "x"}}})
		}
		if err := s.log.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	if c, ok, err := (&stores{log: s.log, snapshots: s}).storedConfiguration(); !ok || err != nil ||
		len(c.Servers) > 0 {
		t.Errorf("a configuration that a snapshot replaced: %v, %v", c, err)
	}
	name, _, _, err := s.files.newest()
	if err != nil {
		t.Fatal(err)
	}
	meta := filepath.Join(s.dir, snapshotsName, name, "meta.json")
	if err := os.Rename(meta, meta+".away"); err != nil {
		t.Fatal(err)
	}
	if last, err2 := s.log.LastIndex(); s.fitLog() == nil || last != 9 || err2 != nil {
		t.Errorf("of a log that ended at 9, a snapshot that is not there left %d, %v", last, err2)
	}
	if list, err := s.List(); err == nil { // the log does not have what it held
		t.Errorf("without the newest snapshot: %v", list)
	}
	if err := os.Rename(meta+".away", meta); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.dir, snapshotsName, name, "state.bin")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if last, err2 := s.log.LastIndex(); s.fitLog() == nil || last != 9 || err2 != nil {
		t.Errorf("of a log that ended at 9, a snapshot that cannot be read left %d, %v", last, err2)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.reads.check = func(io.Reader) error { return errors.New("it cannot be decoded") }
	if last, err2 := s.log.LastIndex(); s.fitLog() == nil || last != 9 || err2 != nil {
		t.Errorf("of a log that ended at 9, a snapshot that cannot be decoded left %d, %v", last,
			err2)
	}
	s.reads.check = nil
	if err := s.fitLog(); err != nil {
		t.Fatal(err)
	}
	if last, err := s.log.LastIndex(); last != 0 || err != nil {
		t.Errorf("entries to %d are still there, %v", last, err)
	}
}

// A node whose newest snapshot cannot be read says so, and starts once it can.
func TestStartWithUnreadableSnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		for _, name := range []string{"meta.json", "state.bin"} {
			c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
			for range 2 {
				for range 5 {
					c.write(c.leader(), "w")
				}
				if err := c.leader().Snapshot(); err != nil {
					t.Fatal(err)
				}
			}
			s := c.leader().stores.snapshots
			newest, _, _, err := s.files.newest()
			if err != nil {
				t.Fatal(err)
			}
			c.close("n1")
			path := filepath.Join(s.dir, snapshotsName, newest, name)
			if err := os.Rename(path, path+".away"); err != nil {
				t.Fatal(err)
			}
			if err := c.tryOpen("n1", nil); err == nil || !strings.Contains(err.Error(), newest) {
				t.Errorf("without %s: %v", name, err)
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			c.reopen("n1")
			if got := fmt.Sprint(c.converged()); got != "[w w w w w w w w w w]" {
				t.Errorf("after a restart the list is %s", got)
			}
		}
	})
}

// gatedLog keeps what a logger writes once it is open: the start of a node may have warned.
type gatedLog struct {
	bytes.Buffer
	open atomic.Bool
}

func (l *gatedLog) Write(p []byte) (int, error) {
	if !l.open.Load() {
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// TestCloseCancelsSnapshot closes a node that writes an endless snapshot, which takes no time in a
// bubble.
func TestCloseCancelsSnapshot(t *testing.T) {
	var out gatedLog // read after Close
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.TrailingLogs = 1
		cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
	})
	n, toy := c.leader(), c.toys["n1"]
	for range 5 {
		c.write(n, "w")
	}
	begun := make(chan struct{})
	toy.mu.Lock()
	toy.persist = func(w io.Writer) error {
		close(begun)
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				return err
			}
		}
		return errors.New("nobody canceled it")
	}
	toy.mu.Unlock()
	failed := make(chan error, 1)
	go func() { failed <- n.Snapshot() }()
	received(t, "the snapshot begins", begun)
	out.open.Store(true)
	c.close("n1")
	if err := received(t, "the snapshot's end", failed); err != errStopping {
		t.Errorf("the snapshot failed with %v", err)
	}
	if got := out.String(); strings.Contains(got, "level=WARN") ||
		strings.Contains(got, "level=ERROR") {
		t.Error(got)
	}
	left, err := os.ReadDir(filepath.Join(c.dir, "n1", snapshotsName))
	if err != nil || len(left) != 0 {
		t.Errorf("the directory of snapshots holds %v, %v", left, err)
	}
	c.reopen("n1")
	if first, err := c.nodes["n1"].logs.FirstIndex(); err != nil || first != 1 {
		t.Errorf("the log begins at %d, %v", first, err)
	}
	c.write(c.leader(), "w")
	if got := fmt.Sprint(c.converged()); got != "[w w w w w w]" {
		t.Errorf("after a restart the list is %s", got)
	}
}

// TestSnapshotIsReadBack: a snapshot that the machine's decoder refuses, or whose file is not what
// was written, replaces neither the log nor the snapshot before it. The node says so and goes on.
func TestSnapshotIsReadBack(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, func(cfg *Config) { cfg.TrailingLogs = 1 })
		n, toy := c.leader(), c.toys["n1"]
		write := func() {
			for range 5 {
				c.write(n, "w")
			}
		}
		write()
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		held := func() (first, snapshot uint64) {
			first, err := n.logs.FirstIndex()
			if err != nil {
				t.Fatal(err)
			}
			return first, n.Status().Snapshot.Index
		}
		first, snapshot := held()
		refuse := errors.New("a record that no restore reads")
		for name, check := range map[string]func(io.Reader) error{
			"a record": func(r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return errors.Join(err, refuse)
			},
			"the file": func(r io.Reader) error { return nil }, // its checksum is that of nothing
		} {
			toy.mu.Lock()
			toy.check = check
			toy.mu.Unlock()
			write()
			if err := n.Snapshot(); err == nil || !strings.Contains(err.Error(), "read back") {
				t.Errorf("%s: %v", name, err)
			}
			if f, s := held(); f != first || s != snapshot {
				t.Errorf("%s: the log begins at %d instead of %d, the snapshot holds %d instead "+
					"of %d", name, f, first, s, snapshot)
			}
			if newest, _, _, err := n.stores.snapshots.files.newest(); err != nil ||
				!strings.Contains(newest, fmt.Sprint("-", snapshot, "-")) {
				t.Errorf("%s: the newest snapshot is %s, %v", name, newest, err)
			}
			if n.Status().Snapshot.Trouble == "" || !n.Status().Ready {
				t.Errorf("%s: %+v", name, n.Status())
			}
		}
		c.close("n1")
		c.reopen("n1")
		n, toy = c.leader(), c.toys["n1"]
		if got := len(toy.batches()); got != 15 {
			t.Errorf("after a restart there are %d batches", got)
		}
		write()
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		if f, s := held(); f <= first || s <= snapshot || n.Status().Snapshot.Trouble != "" {
			t.Errorf("a good snapshot holds %d, and the log begins at %d: %s", s, f,
				n.Status().Snapshot.Trouble)
		}
	})
}

// A node's own snapshot that ends after a newer one was installed does not count.
func TestOvertakenSnapshot(t *testing.T) {
	s := listed(t, nil)
	own, err1 := s.Create(1, 26, 2, raft.Configuration{}, 1, nil)
	installed, err2 := s.Create(1, 124, 2, raft.Configuration{}, 1, nil)
	if err := errors.Join(err1, err2, installed.Close()); err != nil {
		t.Fatal(err)
	}
	own.(*snapshotSink).own = true
	if err := own.Close(); err == nil || !strings.Contains(err.Error(), "overtaken") {
		t.Errorf("it was closed: %v", err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Index != 124 || s.newest.Load().index != 124 {
		t.Errorf("%v is listed, %v", list, err)
	}
	if open := s.open.Load(); open != 0 {
		t.Errorf("%d snapshots are open", open)
	}
}
