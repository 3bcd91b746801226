// This file holds the log store that Raft sees (a cache that also notes arrivals), and the opening of all stores.
package cluster

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"go.etcd.io/bbolt"
)

// The log cache holds the newest entries for replication, bounded in entries and bytes. raft.LogCache bounds entries
// alone, and entries here may have 32 MiB each.
const (
	cacheEntries = 512
	cacheBytes   = 64 << 20
)

// logStore wraps the store on disk.
type logStore struct {
	raft.LogStore
	arrivals  *arrivals
	appliedMs func() int64 // the machine's clock; must not block

	mu     sync.RWMutex
	ring   [cacheEntries]*raft.Log // by index modulo its length
	oldest uint64                  // every cached index is ≥ oldest
	newest uint64
	bytes  int
	// silent holds the newest indexes of entries that never reach the machine (noop, barrier), ascending.
	silent []uint64
	cut    func(after uint64) // told when entries behind an index were dropped; may be nil
	guard  *levelGuard        // may be nil

	commands atomic.Bool // an entry for the machine is, or was, in the log or behind a snapshot

	storing stopwatch // a write to the store

	growth        *growth
	trailing      uint64 // entries that stay behind a snapshot at most
	trailingBytes int    // and their bytes
}

// maxSilent is far more than a cluster without a single write collects: two for each change of leader.
const maxSilent = 1024

func newLogStore(inner raft.LogStore, a *arrivals, appliedMs func() int64) *logStore {
	return &logStore{
		LogStore: inner, arrivals: a, appliedMs: appliedMs,
		growth: newGrowth(), trailing: defaultTrailing, trailingBytes: trailingBytes,
	}
}

// IsMonotonic says whether the store refuses gaps, which Raft asks.
func (s *logStore) IsMonotonic() bool {
	m, ok := s.LogStore.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

func (s *logStore) GetLog(index uint64, out *raft.Log) error {
	s.mu.RLock()
	l := s.ring[index%cacheEntries]
	s.mu.RUnlock()
	if l != nil && l.Index == index {
		*out = *l
		return nil
	}
	return s.LogStore.GetLog(index, out)
}

func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *logStore) StoreLogs(logs []*raft.Log) error {
	for _, l := range logs {
		if s.guard == nil {
			break
		}
		if err := s.guard.entry(l); err != nil {
			return err
		}
	}
	s.storing.start()
	err := s.LogStore.StoreLogs(logs)
	s.storing.stop()
	if err != nil {
		return fmt.Errorf("storing %d log entries: %w", len(logs), err)
	}
	s.arrivals.note(logs)
	s.growth.add(logs)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range logs {
		if l.Type == raft.LogCommand {
			s.commands.Store(true)
		}
		if isSilent(l) {
			if len(s.silent) == maxSilent {
				s.silent = slices.Delete(s.silent, 0, 1)
			}
			s.silent = append(s.silent, l.Index)
		}
		s.cacheLocked(l)
	}
	return nil
}

// isSilent reports whether an entry never reaches the machine or its applier.
func isSilent(l *raft.Log) bool { return l.Type == raft.LogNoop || l.Type == raft.LogBarrier }

// survey notes the silent entries at the end of a log that was just opened, and returns the index of the last entry
// that is not silent; 0 when there is none.
func (s *logStore) survey() (uint64, error) {
	first, err := s.FirstIndex()
	if err != nil {
		return 0, err
	}
	index, err := s.LastIndex()
	if err != nil || index == 0 {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; index >= max(first, 1); index-- {
		var l raft.Log
		err := s.LogStore.GetLog(index, &l)
		if errors.Is(err, raft.ErrLogNotFound) {
			index = 0 // raft-boltdb keeps what was there before a snapshot came that is far ahead: the snapshot holds it
			break
		}
		if err != nil {
			return 0, fmt.Errorf("log entry %d: %w", index, err)
		}
		if !isSilent(&l) {
			break
		}
		if len(s.silent) < maxSilent {
			s.silent = append(s.silent, index)
		}
	}
	slices.Reverse(s.silent)
	if index < first {
		return 0, nil // all of them are silent
	}
	return index, nil
}

// findCommand notes whether a log that was just opened has an entry for the machine.
func (s *logStore) findCommand() error {
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for i := max(first, 1); i <= last && !s.commands.Load(); i++ {
		var l raft.Log
		if err := s.LogStore.GetLog(i, &l); err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
		s.commands.Store(l.Type == raft.LogCommand)
	}
	return nil
}

// cacheLocked adds l as the newest entry and drops the oldest ones past the bounds.
func (s *logStore) cacheLocked(l *raft.Log) {
	slot := &s.ring[l.Index%cacheEntries]
	if *slot != nil {
		s.bytes -= len((*slot).Data)
	}
	*slot = l
	s.bytes += len(l.Data)
	if s.oldest == 0 || l.Index < s.oldest {
		s.oldest = l.Index
	}
	s.newest = l.Index
	for s.bytes > cacheBytes && s.oldest < s.newest {
		slot := &s.ring[s.oldest%cacheEntries]
		if *slot != nil && (*slot).Index == s.oldest {
			s.bytes -= len((*slot).Data)
			*slot = nil
		}
		s.oldest++
	}
}

// DeleteRange drops entries: those that a snapshot holds, but for the newest that are kept for followers. When the end of the log goes (a
// conflict with a new leader, or a snapshot that replaced the log), the newest stamp is that of the last entry that stays, with now as its arrival.
func (s *logStore) DeleteRange(low, high uint64) error {
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if high < last {
		if high = min(high, last-s.retained(low, last)); high < low {
			return nil
		}
	}
	s.mu.Lock()
	clear(s.ring[:])
	s.bytes, s.oldest, s.newest = 0, 0, 0
	if high >= last {
		s.silent = slices.DeleteFunc(s.silent, func(i uint64) bool { return i >= low })
	}
	s.mu.Unlock()
	if err := s.LogStore.DeleteRange(low, high); err != nil {
		return err
	}
	if high >= last {
		s.resetArrival()
		if s.cut != nil {
			s.cut(low - 1)
		}
	}
	return nil
}

// resetArrival notes the last stamped entry on disk as arrived now, or the machine's clock when the log has none.
func (s *logStore) resetArrival() {
	const lookBack = 1024 // commands are never further from the end than a run of noops and barriers
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err1 == nil && err2 == nil && last > 0 {
		for i := last; i >= max(first, 1) && last-i < lookBack; i-- {
			var l raft.Log
			if s.LogStore.GetLog(i, &l) != nil {
				break
			}
			if newest, ok := s.arrivals.stampOf(&l); ok {
				if appliedMs := s.appliedMs(); appliedMs > newest.clockMs {
					newest = stamp{clockMs: appliedMs}
				}
				s.arrivals.reset(newest)
				return
			}
		}
	}
	s.arrivals.reset(stamp{clockMs: s.appliedMs()})
}

// audible returns the largest index ≤ index whose entry the machine sees.
func (s *logStore) audible(index uint64) uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := len(s.silent) - 1; i >= 0 && s.silent[i] >= index; i-- {
		if s.silent[i] == index {
			index--
		}
	}
	return index
}

// stores is what a data directory holds, opened.
type stores struct {
	stable    *raftboltdb.BoltStore
	log       raft.LogStore
	snapshots *snapshotStore
	closers   []io.Closer
}

// openStores opens the stable store (whose file lock makes this process the owner of the directory), the log and the
// snapshots.
func openStores(dir, kind string, logger *slog.Logger) (*stores, error) {
	stable, err := openBolt(filepath.Join(dir, stableName), dir)
	if err != nil {
		return nil, err
	}
	s := &stores{stable: stable, closers: []io.Closer{stable}}
	switch kind {
	case LogStoreBolt:
		log, err := openBolt(filepath.Join(dir, boltLogName), dir)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.log, s.closers = log, append(s.closers, log)
	default:
		walDir := filepath.Join(dir, walName)
		if err := os.MkdirAll(walDir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("data directory %s: %w", dir, err), s.close())
		}
		log, err := wal.Open(walDir, wal.WithLogger(newRaftLogger(logger)), wal.WithSegmentFiler(segment.NewFiler(walDir, walFiles{walfs.New()})))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("the log in data directory %s cannot be opened: %w", dir, err), s.close())
		}
		s.log, s.closers = log, append(s.closers, log)
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, newRaftLogger(logger))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the snapshots in data directory %s cannot be opened: %w", dir, err), s.close())
	}
	s.snapshots = newSnapshotStore(snapshots, logger)
	return s, nil
}

func openBolt(path, dir string) (*raftboltdb.BoltStore, error) {
	store, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: time.Second}})
	switch {
	case errors.Is(err, bbolt.ErrTimeout):
		return nil, fmt.Errorf("data directory %s is in use by another process", dir)
	case err != nil:
		return nil, fmt.Errorf("%s in data directory %s cannot be opened: %w", filepath.Base(path), dir, err)
	}
	return store, nil
}

// close closes in reverse order, the stable store with its lock last.
func (s *stores) close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
