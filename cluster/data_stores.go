// Opening the stores in a data directory.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"go.etcd.io/bbolt"

	"github.com/coordd/coordd/internal/files"
)

// stores is an opened data directory.
type stores struct {
	stable    *stableStore
	log       raft.LogStore
	snapshots *snapshotStore
	space     *space
	closers   []io.Closer
}

// openStores opens the stable store (whose file lock makes this process the owner of the
// directory), the log and the snapshots. level is that of the
// version file, 0 while there is none.
func openStores(dir, kind string, level func() uint64,
	logger *slog.Logger) (*stores, error) {
	s, err := openPromises(dir, level)
	if err != nil {
		return nil, err
	}
	log, err := openLog(dir, kind, level(), logger)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.log, s.closers = log, append(s.closers, log)
	if err := makeDir(filepath.Join(dir, snapshotsName)); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), s.close())
	}
	removeUnfinished(filepath.Join(dir, snapshotsName), logger)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, newRaftLogger(logger))
	if err == nil {
		s.snapshots, err = newSnapshotStore(snapshots, s.log, dir, logger)
	}
	if err != nil {
		return nil, errors.Join(
			fmt.Errorf("cannot open the snapshots in data directory %s: %w", dir, err),
			s.close())
	}
	if err := tighten(dir); err != nil { // the directory may be another user's mount point
		logger.Warn("the data directory is readable by others", "error", err)
	}
	return s, nil
}

// openPromises opens the stable store alone.
func openPromises(dir string, level func() uint64) (*stores, error) {
	below, err := openBolt(filepath.Join(dir, stableName), dir)
	if err != nil {
		return nil, err
	}
	stable, err := openStable(below, level, filepath.Join(dir, stableName))
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return &stores{stable: stable, closers: []io.Closer{below}}, nil
}

// openLog opens the log.
func openLog(dir, kind string, level uint64, logger *slog.Logger) (interface {
	raft.LogStore
	io.Closer
}, error) {
	if kind == LogStoreBolt {
		return openBolt(filepath.Join(dir, boltLogName), dir)
	}
	walDir := filepath.Join(dir, walName)
	if err := makeDir(walDir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	log, err := openWAL(walDir, osFiles{walfs.New()}, &metadb.BoltMetaDB{}, segmentSize,
		level >= markedLevel, logger)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log in data directory %s: %w", dir, err)
	}
	return log, nil
}

// removeUnfinished removes the snapshots that a killed process began, or that found no room. Raft
// never does, and each may be as large as the state.
func removeUnfinished(dir string, logger *slog.Logger) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			path := filepath.Join(dir, e.Name())
			// Raft may still have it open, and its blocks would stay in use.
			_ = os.Truncate(filepath.Join(path, "state.bin"), 0)
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	if err != nil {
		logger.Warn("removing an unfinished snapshot failed", "error", err)
	}
}

// openBolt opens a raft-boltdb store.
func openBolt(path, dir string) (*raftboltdb.BoltStore, error) {
	store, err := makeBolt(path)
	switch {
	case errors.Is(err, bbolt.ErrTimeout):
		return nil, fmt.Errorf("data directory %s is in use by another process", dir)
	case err != nil:
		return nil, fmt.Errorf("cannot open %s in data directory %s: %w", filepath.Base(path),
			dir, err)
	}
	return store, nil
}

// makeBolt opens a store. It creates a missing one under another name first: a power failure while
// bbolt creates a file can leave one that it refuses ever after.
func makeBolt(path string) (*raftboltdb.BoltStore, error) {
	open := func(path string) (*raftboltdb.BoltStore, error) {
		return raftboltdb.New(raftboltdb.Options{Path: path,
			BoltOptions: &bbolt.Options{Timeout: time.Second}})
	}
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return open(path)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	if err := tmp.Close(); err != nil {
		return nil, err
	}
	made, err := open(tmp.Name())
	if err != nil {
		return nil, err
	}
	if err := made.Close(); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		// another process may have been first
		return nil, err
	}
	if err := files.SyncDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return open(path)
}

// close closes in reverse order, the stable store with its lock last.
func (s *stores) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
