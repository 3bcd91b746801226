// A log of kind bolt, which release 0.1 offered: raft-boltdb's store, with a mark.

package cluster

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	walfs "github.com/hashicorp/raft-wal/fs"
)

// boltLog is such a log. bbolt makes a file that is missing, and of one with a changed bit it
// may take an earlier state: without the mark that would be a shorter log.
type boltLog struct {
	*raftboltdb.BoltStore
	mark durableMark
}

// openBoltLog opens the log in a data directory of a level.
func openBoltLog(dir string, level func() uint64, logger *slog.Logger) (*boltLog, error) {
	path := filepath.Join(dir, boltLogName)
	marked := level() >= markedLevel
	if err := boltFile(path); marked && err != nil {
		return nil, err
	}
	store, err := openBolt(path, dir)
	if err != nil {
		return nil, err
	}
	l := &boltLog{BoltStore: store, mark: durableMark{files: logFiles, dir: dir, logger: logger}}
	if marked {
		err = boltReached(l, dir)
	}
	if err == nil {
		err = l.mark.start(l)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// boltFile refuses a file that is missing or empty, which bbolt would make again.
func boltFile(path string) error {
	switch is, err := os.Stat(path); {
	case missing(err):
		return damagedf(path, "the file is missing")
	case err == nil && is.Size() == 0:
		return damagedf(path, "the file is empty")
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
	return reached(osFiles{walfs.New()}, dir, filepath.Join(dir, boltLogName), last)
}

// durable implements markedLog.
func (l *boltLog) durable() *durableMark { return &l.mark }

// StoreLogs implements raft.LogStore.
func (l *boltLog) StoreLogs(logs []*raft.Log) error {
	err := l.BoltStore.StoreLogs(logs)
	if err == nil {
		l.mark.stored(logs)
	}
	return err
}

// StoreLog implements raft.LogStore.
func (l *boltLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// DeleteRange implements raft.LogStore.
func (l *boltLog) DeleteRange(low, high uint64) error {
	if err := l.mark.deletes(l, low, high); err != nil {
		return err
	}
	return l.BoltStore.DeleteRange(low, high)
}

// Close closes the files.
func (l *boltLog) Close() error { return errors.Join(l.BoltStore.Close(), l.mark.close()) }
