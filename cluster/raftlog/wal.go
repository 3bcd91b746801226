// raft-wal's log, made to accept entries again after anything that happened to it: a process that
// ended at any moment, a disk that was full, a process without file descriptors.
//
// raft-wal seals a full segment with the append that fills it, and creates the next one in the
// background. If that does not happen, because the process ends or anything fails, it refuses every
// entry, also when reopened; and if a truncation fails halfway, its memory contradicts its
// metadata. So opening finishes what was begun, through raft-wal's own metadata; and after any
// error the log is reopened, beside the old one, before the next write (docs/adr/0013).

package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
	"github.com/coordd/coordd/internal/lockorder"
)

// WAL is raft-wal's log. One goroutine writes to it at a time; any number read.
type WAL struct {
	dir         string
	files       disk.Files
	meta        *walMeta
	segmentSize int // 0: raft-wal's own
	logger      *slog.Logger
	libLogger   hclog.Logger
	left        func() int64 // the bytes that the log may take; nil: all
	mark        durableMark
	sums        segmentSums

	w      atomic.Pointer[wal.WAL]
	reads  lockorder.RWMutex // raft-wal must not be closed while it reads
	failed bool              // w must not be written to any more
	room   atomic.Int64      // bytes that are reserved in the last segment; 0: unknown
}

// Options say how a log is opened.
type Options struct {
	Files disk.Files
	// Earlier is the list of segments that earlier releases read; nil: they never did.
	Earlier types.MetaStore
	// Marked reports whether only releases open the directory that keep a mark and a list of
	// segments in files of coordd: then both are demanded, and Earlier is no longer written.
	Marked      func() bool
	SegmentSize int // 0: raft-wal's own
	Logger      *slog.Logger
	LibLogger   hclog.Logger // gets what raft-wal logs
}

// OpenWAL opens the log in a directory.
func OpenWAL(dir string, o Options) (*WAL, error) {
	l := &WAL{dir: dir, files: o.Files, segmentSize: o.SegmentSize, logger: o.Logger,
		libLogger: o.LibLogger, mark: durableMark{logger: o.Logger}}
	l.meta = &walMeta{segmentList: &segmentList{files: o.Files, marked: o.Marked,
		earlier: o.Earlier}, log: l, keep: math.MaxUint64, first: true}
	w, err := l.open()
	if err != nil {
		return nil, errors.Join(err, l.meta.segmentList.Close())
	}
	l.w.Store(w)
	l.mark.files, l.mark.dir = l.files, l.dir
	if err := l.mark.start(l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *WAL) open() (*wal.WAL, error) {
	files := &walFiles{Files: l.files, room: &l.room, opening: true,
		left: func() int64 {
			if l.left == nil {
				return math.MaxInt64
			}
			return l.left()
		}}
	filer := &walFiler{Filer: segment.NewFiler(l.dir, files), files: files, sums: &l.sums}
	w, err := wal.Open(l.dir, wal.WithLogger(l.libLogger), wal.WithMetaStore(l.meta),
		wal.WithSegmentFiler(filer), wal.WithSegmentSize(l.segmentSize))
	return w, files.endOpening(err)
}

// renew reopens the log after a failed write, without anything of that write.
func (l *WAL) renew() error {
	if !l.failed {
		return nil
	}
	old := l.w.Load()
	last, err := old.LastIndex()
	if err != nil {
		return err
	}
	l.meta.keep, l.meta.first = last, false
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
func (l *WAL) write(do func(*wal.WAL) error) error {
	err := l.attempt(do)
	if errors.Is(err, wal.ErrSealed) || errors.Is(err, errNotCommitted) {
		l.logger.Warn("creating the next log segment, which failed earlier")
		err = l.attempt(do)
	}
	return err
}

func (l *WAL) attempt(do func(*wal.WAL) error) error {
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

// Room returns how many bytes can be appended for sure, besides the index of the entries that it
// has; 0: unknown, negative: no space is reserved.
func (l *WAL) Room() int64 { return l.room.Load() }

// EnsureMark implements Marked.
func (l *WAL) EnsureMark() error { return l.mark.exists() }

// SyncMark implements Marked.
func (l *WAL) SyncMark() { l.mark.sync() }

// Limit has the log reserve no segment that is larger than what is left. It is called once, before
// the first write.
func (l *WAL) Limit(left func() int64) { l.left = left }

// Takes returns why the log cannot hold an entry. raft-wal writes entries of any size, and reads
// none that is larger than MaxEntrySize.
func (l *WAL) Takes(entry *raft.Log) error {
	if len(entry.Data)+len(entry.Extensions) <= segment.MaxEntrySize-walEntryOverhead {
		return nil
	}
	var size walEntrySize
	if err := (&wal.BinaryCodec{}).Encode(entry, &size); err != nil {
		return err
	}
	if size > segment.MaxEntrySize {
		return fmt.Errorf("entry %d has %d bytes, and the log reads at most %d", entry.Index, size,
			segment.MaxEntrySize)
	}
	return nil
}

// walEntryOverhead is more than what raft-wal adds to the bytes of an entry.
const walEntryOverhead = 128

// walEntrySize counts the bytes that are written to it.
type walEntrySize int

func (n *walEntrySize) Write(b []byte) (int, error) {
	*n += walEntrySize(len(b))
	return len(b), nil
}

// StoreLogs stores all entries or none.
func (l *WAL) StoreLogs(logs []*raft.Log) error {
	for _, entry := range logs {
		if err := l.Takes(entry); err != nil {
			return err
		}
	}
	err := l.write(func(w *wal.WAL) error { return w.StoreLogs(logs) })
	if err == nil {
		l.mark.stored(logs)
	}
	return err
}

// StoreLog is StoreLogs of one.
func (l *WAL) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// DeleteRange truncates the beginning or the end of the log.
func (l *WAL) DeleteRange(low, high uint64) error {
	if err := l.mark.deletes(l, low, high); err != nil {
		return err
	}
	return l.write(func(w *wal.WAL) error { return w.DeleteRange(low, high) })
}

// read performs one read operation.
func (l *WAL) read(do func(*wal.WAL) error) error {
	l.reads.RLock()
	defer l.reads.RUnlock()
	return do(l.w.Load())
}

// GetLog implements raft.LogStore.
func (l *WAL) GetLog(index uint64, entry *raft.Log) error {
	return l.read(func(w *wal.WAL) error { return w.GetLog(index, entry) })
}

// FirstIndex implements raft.LogStore.
func (l *WAL) FirstIndex() (index uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { index, err = w.FirstIndex(); return err })
	return index, err
}

// LastIndex implements raft.LogStore.
func (l *WAL) LastIndex() (index uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { index, err = w.LastIndex(); return err })
	return index, err
}

// IsMonotonic reports that the log has no gaps.
func (l *WAL) IsMonotonic() bool { return true }

// Close closes the files.
func (l *WAL) Close() error {
	l.reads.Lock()
	defer l.reads.Unlock()
	return errors.Join(l.w.Load().Close(), l.mark.close(), l.meta.segmentList.Close())
}
