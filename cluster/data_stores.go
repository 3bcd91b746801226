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
	"strings"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/cluster/raftlog"
	"github.com/coordd/coordd/internal/files"
)

// stores is an opened data directory.
type stores struct {
	stable    *stableStore
	log       raft.LogStore
	snapshots *snapshotStore
	space     *space
	closers   closers
	held      func() error // why the lock is no longer the directory's; nil: there is none
}

// openStores takes the lock of a node's directory, and opens its stores. level is that of the
// version file, which said that the directory is the node's and has that kind of log store.
func openStores(dir, node, kind string, level func() uint64, logger *slog.Logger) (*stores,
	error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	was := dirVersion{format: dataFormat, node: node, logStore: kind, level: level()}
	s, err := openLocked(lock, dir, kind, &was, level, logger)
	if err != nil {
		return nil, err
	}
	if err := removeLeft(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), s.close())
	}
	s.held = func() error { return lockLost(lock.(*os.File), dir) }
	return s, nil
}

// removeLeft removes what processes that were killed left in a directory whose lock the caller
// has, and which has its version file: else it could say later that a recovery or a restore is to
// be finished.
func removeLeft(dir string) error {
	err := errors.Join(endSeeding(dir), removeEntries(dir, stagedPrefix, stagedSuffix))
	for _, name := range unnamed {
		err = errors.Join(err, removeEntries(dir, name, ""))
	}
	return err
}

// unnamed are how names begin of files that were about to get another one.
var unnamed = []string{versionName + unnamedSuffix, stableName + unnamedSuffix,
	boltLogName + unnamedSuffix}

const unnamedSuffix = ".tmp-"

// removeEntries removes the entries of a directory whose names begin and end so.
func removeEntries(dir, prefix, suffix string) error {
	paths, err := entriesOf(dir, prefix, suffix)
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil || len(paths) == 0 {
		return err
	}
	return files.SyncDir(dir)
}

// openLocked opens the stable store, the log and the snapshots in a directory whose lock is given;
// was: see openPromises.
func openLocked(lock io.Closer, dir, kind string, was *dirVersion, level func() uint64,
	logger *slog.Logger) (*stores, error) {
	s, err := openPromises(lock, dir, was, level)
	if err != nil {
		return nil, err
	}
	if err := s.stable.checkRefetched(dir); err != nil {
		return nil, errors.Join(err, s.close())
	}
	log, err := openLog(dir, kind, level, logger)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.log, s.closers = log, append(s.closers, log)
	snapshots := &snapshotFiles{filepath.Join(dir, snapshotsName), logger}
	if err := makeDir(snapshots.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), s.close())
	}
	snapshots.removeUnfinished()
	if s.snapshots, err = newSnapshotStore(snapshots, s.log, dir, logger); err != nil {
		return nil, errors.Join(
			fmt.Errorf("cannot open the snapshots in data directory %s: %w", dir, err),
			s.close())
	}
	if err := s.stable.renew(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := tighten(dir); err != nil { // the directory may be another user's mount point
		logger.Warn("the data directory is readable by others", "error", err)
	}
	return s, nil
}

// fresh is the level of a directory that is being made: a file that is missing is created.
func fresh() uint64 { return firstLevel }

// openPromises opens the stable store alone, in a directory whose lock is given. was is the version
// file as it was read before; nil: the directory is being made, and has none.
func openPromises(lock io.Closer, dir string, was *dirVersion, level func() uint64) (s *stores,
	err error) {
	s = &stores{closers: closers{lock}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := was.unchanged(dir); err != nil {
		return s, err
	}
	var earlier raft.StableStore
	if level() < markedLevel { // it is also their lock
		bolt, err := openBolt(filepath.Join(dir, stableName), dir)
		if err != nil {
			return s, err
		}
		s.closers, earlier = append(s.closers, bolt), bolt
		if err := was.unchanged(dir); err != nil { // by an earlier release, before that lock
			return s, err
		}
	}
	if s.stable, err = openStable(disk.NewSystem(), dir, earlier, level); err != nil {
		return s, err
	}
	s.closers = append(s.closers, s.stable)
	if earlier == nil { // what no release can read any more, and says what is no longer so
		err = removeStale(filepath.Join(dir, stableName))
	}
	return s, err
}

// openPromisesOf is openPromises in a directory whose version file was so, for the caller who has
// the lock.
func openPromisesOf(dir string, was dirVersion) (*stores, error) {
	return openPromises(closers{}, dir, &was, func() uint64 { return was.level })
}

// unchanged refuses a directory whose version file is no longer so. The caller has the lock: what
// was read before may be what a process that has just ended found there, and other files count
// since.
func (v *dirVersion) unchanged(dir string) error {
	if v == nil {
		return nil
	}
	now, err := readVersion(dir)
	if missing(err) {
		err = unfinished(dir)
	}
	if err == nil && now != *v {
		err = fmt.Errorf("another process has just changed data directory %s: try again", dir)
	}
	return err
}

// entriesOf returns the paths of a directory's entries whose names begin and end so, in order.
func entriesOf(dir, prefix, suffix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// removeStale removes a file, if it is there.
func removeStale(path string) error {
	if err := os.Remove(path); !missing(err) {
		return err
	}
	return nil
}

// walMetaName is the list of segments that earlier releases read.
const walMetaName = metadb.FileName

// marked reports whether a directory has reached markedLevel.
func marked(level func() uint64) func() bool {
	return func() bool { return level() >= markedLevel }
}

// logFiles is where logs are; tests let it fail.
var logFiles disk.Files = disk.NewSystem()

// openLog opens the log.
func openLog(dir, kind string, level func() uint64, logger *slog.Logger) (interface {
	raft.LogStore
	io.Closer
}, error) {
	if kind == LogStoreBolt {
		return openBoltLog(dir, level, logger)
	}
	walDir := filepath.Join(dir, walName)
	if err := makeDir(walDir); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	var earlier types.MetaStore
	if level() < markedLevel {
		earlier = &metadb.BoltMetaDB{}
	}
	log, err := raftlog.OpenWAL(walDir, raftlog.Options{Files: logFiles, Earlier: earlier,
		Marked: marked(level), SegmentSize: segmentSize, Logger: logger,
		LibLogger: newRaftLogger(logger)})
	if err == nil && earlier == nil {
		err = removeStale(filepath.Join(walDir, walMetaName))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open the log in data directory %s: %w", dir, err)
	}
	return log, nil
}

// openBoltLog opens a log of kind bolt in a data directory of a level.
func openBoltLog(dir string, level func() uint64, logger *slog.Logger) (*raftlog.Bolt, error) {
	path := filepath.Join(dir, boltLogName)
	marked := level() >= markedLevel
	if err := boltFile(path); marked && err != nil {
		return nil, err
	}
	store, err := openBolt(path, dir)
	if err != nil {
		return nil, err
	}
	return raftlog.NewBolt(store, path, logFiles, marked, logger)
}

// boltFile refuses a file that is missing or empty, which bbolt would make again.
func boltFile(path string) error {
	switch is, err := os.Stat(path); {
	case missing(err):
		return disk.Damagedf(path, "the file is missing")
	case err == nil && is.Size() == 0:
		return disk.Damagedf(path, "the file is empty")
	default:
		return err
	}
}

// boltReached checks that a log has what the mark in its data directory says.
func boltReached(l raft.LogStore, dir string) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	return raftlog.CheckMark(disk.NewSystem(), dir, filepath.Join(dir, boltLogName), last)
}

// openBolt opens a raft-boltdb store.
func openBolt(path, dir string) (*raftboltdb.BoltStore, error) {
	store, err := makeBolt(path)
	switch {
	case errors.Is(err, bbolt.ErrTimeout):
		return nil, fmt.Errorf("data directory %s %w", dir, ErrInUse)
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
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+unnamedSuffix)
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

// close closes in reverse order, the lock last.
func (s *stores) close() error { return s.closers.Close() }
