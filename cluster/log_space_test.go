// Tests of nodes whose disk is small, or full.

package cluster

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/tests/wait"
)

// smallDisk is a disk of a size, which files of others may take, too.
type smallDisk struct {
	dir          string
	size, others atomic.Int64
	fullest      atomic.Int64 // the most bytes that the data directory had
}

// used returns the bytes of the files below the directory.
func (d *smallDisk) used() (bytes int64) {
	_ = filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil // it may have vanished
		}
		// the list of segments is sparse: what is not used takes no space
		if info, err := e.Info(); err == nil && e.Name() != "segments" {
			bytes += info.Size()
		}
		return nil
	})
	d.fullest.Store(max(d.fullest.Load(), bytes))
	return bytes
}

func (d *smallDisk) free() int64 { return max(d.size.Load()-d.others.Load()-d.used(), 0) }

func (d *smallDisk) space(string) diskSpace {
	return diskSpace{free: float64(d.free()), size: float64(d.size.Load())}
}

// startOnASmallDisk starts a node on one, whose snapshots have the given number of bytes.
func startOnASmallDisk(t *testing.T, size, snapshot int64) (*testCluster, *smallDisk) {
	d := &smallDisk{}
	d.size.Store(size)
	c := newCluster(t, 1, func(cfg *Config) { cfg.spaceOf, d.dir = d.space, cfg.DataDir })
	toy := c.toys["n1"]
	toy.mu.Lock()
	defer toy.mu.Unlock()
	toy.persist = func(w io.Writer) error {
		if d.free() < snapshot {
			return syscall.ENOSPC
		}
		_, err := w.Write(make([]byte, snapshot))
		return err
	}
	return c, d
}

// forget forgets what was written, so that the next snapshot is no larger.
func (t *toy) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.List = nil
}

// A log that is longer than the disk is shortened before the disk is full.
func TestLogOnASmallDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const size, snapshot, entry, entries = 12 << 20, 256 << 10, 64 << 10, 224
		c, d := startOnASmallDisk(t, size, snapshot)
		batch := []byte(strings.Repeat("x", entry))
		for i := range entries {
			if _, err := c.leader().write(t.Context(), batch, 1); err != nil {
				t.Fatalf("entry %d: %v", i+1, err)
			}
			c.toys["n1"].forget()
			time.Sleep(spacePoll / 50) // the disk takes its time
			if used := d.used(); used > size-snapshot {
				t.Fatalf("the directory has %d bytes after %d entries", used, i+1)
			}
		}
		n := c.leader()
		if first, err := n.logs.FirstIndex(); err != nil || first < entries/2 {
			t.Errorf("the log begins at %d, %v", first, err)
		}
		if d.fullest.Load() < size/2 {
			t.Errorf("the directory never had more than %d bytes", d.fullest.Load())
		}
	})
}

// While others fill the disk the log refuses entries, and keeps what it has reserved for a
// snapshot. When they have gone, the node continues by itself.
func TestLogOnAFullDisk(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const size, snapshot, entry = 32 << 20, 256 << 10, 64 << 10
		c, d := startOnASmallDisk(t, size, snapshot)
		batch := []byte(strings.Repeat("x", entry))
		n := c.leader()
		d.others.Store(size)
		var refused error
		for range 2 * segmentBytes / entry {
			if _, refused = n.write(t.Context(), batch, 1); refused != nil {
				break
			}
			c.toys["n1"].forget()
		}
		if refused == nil {
			t.Fatal("the log took all entries")
		}
		wait.For(t, 10*time.Second, "trouble", func() bool {
			return strings.Contains(n.Status().LogTrouble, "are kept for the next snapshot")
		})
		wait.For(t, 10*time.Second, "a snapshot that has no room", func() bool {
			return n.stores.snapshots.failed.Load() > 0
		})
		d.others.Store(0)
		wait.For(t, 20*time.Second, "the log to take entries", func() bool {
			_, err := n.write(t.Context(), []byte("w"), 1)
			return err == nil
		})
	})
}

// The log leaves alone what the next snapshot needs, while the disk has room for entries.
func TestLogLeavesRoomForASnapshot(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const snapshot, free, entry = 3 << 20, 3 << 19, 64 << 10
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.spaceOf = func(string) diskSpace { return diskSpace{free: free, size: 1 << 30} }
		})
		toy, n := c.toys["n1"], c.leader()
		toy.mu.Lock()
		toy.persist = func(w io.Writer) error {
			_, err := w.Write(make([]byte, snapshot))
			return err
		}
		toy.mu.Unlock()
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		batch := []byte(strings.Repeat("x", entry))
		for range 2 * segmentBytes / entry {
			if _, err := n.write(t.Context(), batch, 1); err != nil {
				wait.For(t, 10*time.Second, "the reason", func() bool {
					return strings.Contains(n.Status().LogTrouble, "are kept for the next snapshot")
				})
				return
			}
			toy.forget()
		}
		t.Error("the log took what was kept for the next snapshot")
	})
}

// fullStore is a snapshot store without room.
type fullStore struct {
	raft.SnapshotStore
	writes bool // it fails only when something is written
}

func (s fullStore) Create(raft.SnapshotVersion, uint64, uint64, raft.Configuration, uint64,
	raft.Transport) (raft.SnapshotSink, error) {
	if s.writes {
		return fullSink{}, nil
	}
	return nil, syscall.ENOSPC
}

type fullSink struct{ raft.SnapshotSink }

func (fullSink) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
func (fullSink) Cancel() error             { return syscall.ENOSPC }

// A snapshot that finds no room makes room for the next attempt.
func TestSnapshotWithoutRoom(t *testing.T) {
	for _, writes := range []bool{false, true} {
		made := 0
		s := &snapshotStore{SnapshotStore: fullStore{writes: writes}, logger: testLogger(),
			growth: newGrowth(), makeRoom: func() { made++ }}
		s.newest.Store(&snapshotSeen{})
		sink, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
		if writes {
			if err != nil {
				t.Fatal(err)
			}
			_, err = sink.Write([]byte("x"))
			_ = sink.Cancel()
		}
		if !errors.Is(err, syscall.ENOSPC) || made == 0 {
			t.Errorf("%v, room was made %d times", err, made)
		}
		if open, failed := s.open.Load(), s.failed.Load(); open != 0 || failed != 1 {
			t.Errorf("%d snapshots are open, %d failed", open, failed)
		}
	}
}

// A snapshot that cannot be written leaves nothing.
func TestUnfinishedSnapshotGoes(t *testing.T) {
	s := &snapshotFiles{t.TempDir(), testLogger()}
	for what, end := range map[string]func(*snapshotFile) error{
		"canceled": (*snapshotFile).Cancel,
		"failed": func(k *snapshotFile) error {
			if err := k.f.Close(); err != nil {
				t.Fatal(err)
			}
			if err := k.Close(); !errors.Is(err, os.ErrClosed) {
				t.Error(err)
			}
			return nil
		},
	} {
		sink, err := s.Create(1, 7, 2, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		if err := end(sink.(*snapshotFile)); err != nil {
			t.Error(what, err)
		}
		if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
			t.Errorf("%s: %v is left, %v", what, left, err)
		}
	}
}

// What is kept for the next snapshot shrinks while that is written.
func TestKeptWhileASnapshotIsWritten(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		c.write(n, strings.Repeat("x", 1<<20))
		if kept := n.stores.space.kept(); kept < 1<<20 {
			t.Errorf("%d bytes are kept", kept)
		}
		sink, err := n.stores.snapshots.Create(1, 1, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write(make([]byte, 4<<20)); err != nil {
			t.Fatal(err)
		}
		if kept := n.stores.space.kept(); kept != 0 {
			t.Errorf("%d bytes are kept beside those that are written", kept)
		}
		if err := sink.Cancel(); err != nil {
			t.Fatal(err)
		}
		if kept := n.stores.space.kept(); kept < 1<<20 {
			t.Errorf("%d bytes are kept after it was canceled", kept)
		}
	})
}

// A log is trimmed up to the newest snapshot, and keeps its last entries.
func TestTrim(t *testing.T) {
	simulated(t, func(t *testing.T) {
		const size = 1 << 30
		d := &smallDisk{}
		d.size.Store(size)
		c := newCluster(t, 1, func(cfg *Config) { cfg.spaceOf, d.dir = d.space, cfg.DataDir })
		n := c.leader()
		batch := strings.Repeat("x", shortTrailingBytes/4)
		for range 10 {
			c.write(n, batch)
		}
		n.spareRoom()
		if first, err := n.logs.FirstIndex(); err != nil || first != 1 {
			t.Errorf("without a snapshot the log begins at %d, %v", first, err)
		}
		if err := n.Snapshot(); err != nil {
			t.Fatal(err)
		}
		d.others.Store(size)
		n.spareRoom()
		last, err1 := n.logs.LastIndex()
		first, err2 := n.logs.FirstIndex()
		if err := errors.Join(err1, err2); err != nil || first < last-4 || first > last-2 {
			t.Errorf("the log begins at %d and ends at %d, %v", first, last, err)
		}
		c.close("n1")
		d.others.Store(0)
		c.reopen("n1")
		c.write(c.leader(), "w")
		if got := len(c.toys["n1"].batches()); got != 11 {
			t.Errorf("%d entries are there", got)
		}
	})
}
