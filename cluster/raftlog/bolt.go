// A log of kind bolt, which release 0.1 offered: raft-boltdb's store, with a mark.

package raftlog

import (
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/coordd/coordd/cluster/disk"
)

// Bolt is a log of kind bolt. bbolt makes a file that is missing, and of one with a changed bit it
// may take an earlier state: without the mark that would be a shorter log.
type Bolt struct {
	*raftboltdb.BoltStore
	mark durableMark
}

// NewBolt returns a log over a store that was just opened from the file at path, and closes the
// store if that fails. marked: the log must reach its mark.
func NewBolt(store *raftboltdb.BoltStore, path string, files disk.Files, marked bool,
	logger *slog.Logger) (*Bolt, error) {
	dir := filepath.Dir(path)
	l := &Bolt{BoltStore: store, mark: durableMark{files: files, dir: dir, logger: logger}}
	last, err := l.LastIndex()
	if err == nil && marked {
		err = CheckMark(disk.NewSystem(), dir, path, last)
	}
	if err == nil {
		err = l.mark.start(l)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// EnsureMark implements Marked.
func (l *Bolt) EnsureMark() error { return l.mark.exists() }

// SyncMark implements Marked.
func (l *Bolt) SyncMark() { l.mark.sync() }

// StoreLogs implements raft.LogStore.
func (l *Bolt) StoreLogs(logs []*raft.Log) error {
	err := l.BoltStore.StoreLogs(logs)
	if err == nil {
		l.mark.stored(logs)
	}
	return err
}

// StoreLog implements raft.LogStore.
func (l *Bolt) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// DeleteRange implements raft.LogStore.
func (l *Bolt) DeleteRange(low, high uint64) error {
	if err := l.mark.deletes(l, low, high); err != nil {
		return err
	}
	return l.BoltStore.DeleteRange(low, high)
}

// Close closes the files.
func (l *Bolt) Close() error { return errors.Join(l.BoltStore.Close(), l.mark.close()) }
