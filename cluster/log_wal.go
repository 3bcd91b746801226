// raft-wal's log, made to accept entries again after anything that happened to it: a process that
// ended at any moment, a disk that was full, a process without file descriptors.
//
// raft-wal seals a full segment with the append that fills it, and creates the next one in the
// background. If that does not happen, because the process ends or anything fails, it refuses every
// entry, also when reopened; and if a truncation fails halfway, its memory contradicts its
// metadata. So opening finishes what was begun, through raft-wal's own metadata; and after any
// error the log is reopened, beside the old one, before the next write (docs/adr/0013).

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// walLog is the log. One goroutine writes to it at a time; any number read.
type walLog struct {
	dir         string
	files       fileLayer
	meta        *walMeta
	segmentSize int // 0: raft-wal's own
	logger      *slog.Logger
	space       *space // may be nil

	w      atomic.Pointer[wal.WAL]
	reads  sync.RWMutex // raft-wal must not be closed while it reads
	failed bool         // w must not be written to any more
	room   atomic.Int64 // bytes that are reserved in the last segment; 0: unknown
}

// openWAL opens the log in a directory.
func openWAL(dir string, files fileLayer, meta types.MetaStore, segmentSize int,
	logger *slog.Logger) (*walLog, error) {
	l := &walLog{dir: dir, files: files, meta: &walMeta{MetaStore: meta, files: files,
		keep: math.MaxUint64, trim: true}, segmentSize: segmentSize, logger: logger}
	w, err := l.open()
	if err != nil {
		return nil, errors.Join(err, meta.Close())
	}
	l.w.Store(w)
	return l, nil
}

func (l *walLog) open() (*wal.WAL, error) {
	files := &walFiles{fileLayer: l.files, room: &l.room, opening: true,
		left: func() int64 { return l.space.left() }}
	filer := &walFiler{Filer: segment.NewFiler(l.dir, files), files: files}
	w, err := wal.Open(l.dir, wal.WithLogger(newRaftLogger(l.logger)), wal.WithMetaStore(l.meta),
		wal.WithSegmentFiler(filer), wal.WithSegmentSize(l.segmentSize))
	return w, files.endOpening(err)
}

// renew reopens the log after a failed write, without anything of that write.
func (l *walLog) renew() error {
	if !l.failed {
		return nil
	}
	old := l.w.Load()
	last, err := old.LastIndex()
	if err != nil {
		return err
	}
	l.meta.keep, l.meta.trim = last, false
	w, err := l.open()
	if err != nil {
		return fmt.Errorf("reopening the log: %w", err)
	}
	l.w.Store(w)
	l.failed = false
	l.reads.Lock()
	defer l.reads.Unlock()
	if err := old.Close(); err != nil {
		l.logger.Warn("closing the log before reopening failed", "error", err)
	}
	return nil
}

// write performs one write operation, twice if it could not begin because no segment could be
// created after the last entries.
func (l *walLog) write(do func(*wal.WAL) error) error {
	err := l.attempt(do)
	if errors.Is(err, wal.ErrSealed) || errors.Is(err, errNotCommitted) {
		l.logger.Warn("creating the next log segment, which failed earlier")
		err = l.attempt(do)
	}
	return err
}

func (l *walLog) attempt(do func(*wal.WAL) error) error {
	if err := l.renew(); err != nil {
		return err
	}
	err := do(l.w.Load())
	if l.failed = err != nil; l.failed {
		l.room.Store(0)
	}
	return err
}

// noRoom is the room in a segment for which nothing is reserved.
const noRoom = -1

// Room implements roomyLog.
func (l *walLog) Room() int64 { return l.room.Load() }

// StoreLogs stores all entries or none.
func (l *walLog) StoreLogs(logs []*raft.Log) error {
	return l.write(func(w *wal.WAL) error { return w.StoreLogs(logs) })
}

func (l *walLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// DeleteRange truncates the beginning or the end of the log.
func (l *walLog) DeleteRange(low, high uint64) error {
	return l.write(func(w *wal.WAL) error { return w.DeleteRange(low, high) })
}

// read performs one read operation.
func (l *walLog) read(do func(*wal.WAL) error) error {
	l.reads.RLock()
	defer l.reads.RUnlock()
	return do(l.w.Load())
}

func (l *walLog) GetLog(index uint64, entry *raft.Log) error {
	return l.read(func(w *wal.WAL) error { return w.GetLog(index, entry) })
}

func (l *walLog) FirstIndex() (index uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { index, err = w.FirstIndex(); return err })
	return index, err
}

func (l *walLog) LastIndex() (index uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { index, err = w.LastIndex(); return err })
	return index, err
}

// IsMonotonic reports that the log has no gaps.
func (l *walLog) IsMonotonic() bool { return true }

func (l *walLog) Close() error {
	l.reads.Lock()
	defer l.reads.Unlock()
	return errors.Join(l.w.Load().Close(), l.meta.MetaStore.Close())
}

// walMeta is raft-wal's metadata. It stays open while the log is reopened, unless a commit failed,
// and Load never returns a sealed segment without a successor.
type walMeta struct {
	types.MetaStore
	files  fileLayer
	keep   uint64      // entries after this one were not acknowledged; Load drops them
	trim   bool        // give back space reserved in sealed segments
	failed atomic.Bool // a commit, since the file was opened
}

// Close does nothing: whoever reopens the log continues with it.
func (m *walMeta) Close() error { return nil }

// errNotCommitted is the answer of metadata of which an earlier commit failed.
var errNotCommitted = errors.New("the metadata of the log could not be committed earlier")

// CommitState replaces the metadata. After a commit that failed it refuses all until Load: what
// bbolt believes of its file may be neither the old content nor the new one, and it would panic.
func (m *walMeta) CommitState(state types.PersistentState) error {
	if m.failed.Load() {
		return errNotCommitted
	}
	err := m.MetaStore.CommitState(state)
	m.failed.Store(err != nil)
	return err
}

// Load reads the metadata, drops what follows the last complete batch of entries, and finishes
// sealing a segment. After a commit that failed it opens the file again.
func (m *walMeta) Load(dir string) (types.PersistentState, error) {
	again := m.failed.Load()
	if again {
		if err := m.MetaStore.Close(); err != nil {
			return types.PersistentState{}, err
		}
		m.failed.Store(false)
	}
	state, err := m.MetaStore.Load(dir)
	if again && err == nil { // what is read may not be durable
		err = m.CommitState(state)
	}
	if err != nil || len(state.Segments) == 0 {
		return state, err
	}
	if m.trim {
		for _, s := range state.Segments {
			m.giveBack(dir, s)
		}
	}
	tail := &state.Segments[len(state.Segments)-1]
	if tail.SealTime.IsZero() {
		end, err := m.endOf(dir, *tail)
		if err != nil {
			return state, err
		}
		if end.index == 0 {
			return state, nil
		}
		tail.SealTime, tail.MaxIndex, tail.IndexStart = time.Now(), end.last, end.index
	}
	state.Segments = append(state.Segments, types.SegmentInfo{
		ID: state.NextSegmentID, BaseIndex: tail.MaxIndex + 1, MinIndex: tail.MaxIndex + 1,
		SizeLimit: tail.SizeLimit, Codec: tail.Codec, CreateTime: time.Now(),
	})
	state.NextSegmentID++
	return state, m.CommitState(state)
}

// endOf cleans the last segment, and returns where it ends.
func (m *walMeta) endOf(dir string, tail types.SegmentInfo) (segmentEnd, error) {
	w, err := (&walFiles{fileLayer: m.files}).OpenWriter(dir, segmentName(tail))
	if errors.Is(err, fs.ErrNotExist) {
		return segmentEnd{}, nil // raft-wal creates it
	}
	if err != nil {
		return segmentEnd{}, err
	}
	f := w.(*walFile)
	end, err := scanSegment(f, f.size, tail, m.keep)
	if err == nil {
		err = clearAfter(f.segmentFile, end.at, f.size)
	}
	return end, errors.Join(err, f.Close())
}

// giveBack returns space reserved after the end of a sealed segment, which another version or a
// killed process may have left.
func (m *walMeta) giveBack(dir string, s types.SegmentInfo) {
	if s.SealTime.IsZero() || s.IndexStart == 0 {
		return
	}
	w, err := m.files.OpenWriter(dir, segmentName(s))
	if err != nil {
		return // raft-wal reports it
	}
	defer w.Close()
	f := w.(segmentFile)
	end, err1 := endOfSealed(f, s.IndexStart)
	size, err2 := f.Size()
	if err1 == nil && err2 == nil && size > end {
		_ = f.Truncate(end)
	}
}

func segmentName(s types.SegmentInfo) string { return segment.FileName(s) }
