// Tests of commands that make or change a data directory on a disk that is nearly full, or new.

package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
)

// withoutMark is a disk that has no room for the mark of a log.
type withoutMark struct{ disk.System }

func (v withoutMark) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if name == raftlog.MarkName {
		return nil, syscall.ENOSPC
	}
	return v.System.Create(dir, name, size)
}

// without calls f while no mark can be made.
func without(f func() error) error {
	was := logFiles
	logFiles = withoutMark{disk.NewSystem()}
	defer func() { logFiles = was }()
	return f()
}

// wantsRoom checks that an error says what to do.
func wantsRoom(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "run this again") {
		t.Errorf("without room for the mark: %v", err)
	}
}

// TestSeedDemandsTheMark has no room for the mark, without which no node starts on the directory.
func TestSeedDemandsTheMark(t *testing.T) {
	for _, store := range []string{LogStoreWAL, LogStoreBolt} {
		cfg := Config{ID: "n1", DataDir: t.TempDir(), LogStore: store, Logger: testLogger()}
		seed := func() error {
			return Seed(cfg, Origin{Cluster: "x", Index: 5, Term: 5, Level: markedLevel},
				func(w io.Writer) error { return json.NewEncoder(w).Encode(toyState{}) })
		}
		wantsRoom(t, without(seed))
		if err := seed(); err != nil {
			t.Fatal("again:", err)
		}
		n, err := Open(cfg, newToy())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it leads", func() bool { return n.Status().Ready })
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRefetchDemandsTheMark is the same of a refetch.
func TestRefetchDemandsTheMark(t *testing.T) {
	for _, store := range []string{LogStoreWAL, LogStoreBolt} {
		runSimulated(t, store, func(t *testing.T) {
			c := newCluster(t, 3, func(cfg *Config) { cfg.LogStore = store })
			c.write(c.leader(), "a")
			c.converged()
			id := c.followers()[0].cfg.ID
			c.close(id)
			dir := lockedDir(t, c, id, markedLevel, true)
			refetch := func() error {
				_, err := Refetch(dir, newToy(), testLogger())
				return err
			}
			wantsRoom(t, without(refetch))
			if err := c.tryOpen(id, nil); err == nil || !strings.Contains(err.Error(),
				"coordd refetch was interrupted") {
				t.Fatal(err)
			}
			if err := refetch(); err != nil {
				t.Fatal("again:", err)
			}
			c.reopen(id)
			c.ready(id)
			if got := c.converged(); !slices.Equal(got, []string{"a"}) {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestSeedOfANewVolume restores into the root of a new ext4 volume. What is its own stays.
func TestSeedOfANewVolume(t *testing.T) {
	dir, broken := t.TempDir(), errors.New("broken")
	lost := filepath.Join(dir, "lost+found", "#12")
	if err := os.MkdirAll(lost, dirMode); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{broken, nil} {
		err := Seed(Config{ID: "n1", DataDir: dir, Logger: testLogger()},
			Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}, func(w io.Writer) error {
				return errors.Join(want, json.NewEncoder(w).Encode(toyState{}))
			})
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if _, err := os.Stat(lost); err != nil {
			t.Error(err)
		}
	}
	if err := CheckDir(dir, "n1", LogStoreWAL, knows(firstLevel).CheckLevel); err != nil {
		t.Error(err)
	}
}
