// The files of raft-wal's log: preparing their blocks, so that a sync writes the entries and
// nothing else; making their names durable; and returning the space that an early seal leaves.

package raftlog

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/cluster/disk"
)

// zeroAhead is how many bytes after the last entry are zeroed in advance. The first write to a
// reserved block converts it, which the file system must journal: a second write with each sync.
// Blocks that were written before cost only their data. A sync with that many zeros takes less than
// a millisecond longer (docs/adr/0011).
const zeroAhead = 512 << 10

var zeros [zeroAhead]byte

// indexEntry is how many bytes an entry takes in the index of a segment.
const indexEntry = 4

// walFiles is a file layer that writes blocks before they are needed.
type walFiles struct {
	disk.Files
	newest  *walFile      // the last one created or opened for writing
	room    *atomic.Int64 // receives the bytes reserved in it that are left; may be nil
	left    func() int64  // the bytes that the log may take; nil: all
	opening bool          // the log is being opened: raft-wal leaks files if that fails
	opened  []io.Closer
}

// endOpening ends the opening of the log, with the error that it failed with, if any.
func (v *walFiles) endOpening(err error) error {
	if err != nil {
		for _, f := range v.opened {
			if e := f.Close(); !errors.Is(e, fs.ErrClosed) { // who failed may have closed it
				err = errors.Join(err, e)
			}
		}
	}
	v.opening, v.opened = false, nil
	return err
}

// note keeps a file for endOpening.
func (v *walFiles) note(f io.Closer) {
	if v.opening {
		v.opened = append(v.opened, f)
	}
}

// OpenReader opens a sealed segment.
func (v *walFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	r, err := v.Files.OpenReader(dir, name)
	if err == nil {
		v.note(r)
	}
	return r, err
}

// Create creates a segment.
//
// If there is no space for a whole segment, it reserves none. raft-wal creates a segment after
// sealing the last one, and refuses all entries until that succeeds, even if some would fit.
func (v *walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if v.left != nil && v.left() < int64(size) {
		size = 0
	}
	f, err := v.Files.Create(dir, name, size)
	if disk.NoSpace(err) {
		if err := v.Delete(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			// the file layer leaves it behind
			return nil, err
		}
		f, err = v.Files.Create(dir, name, 0)
	}
	if err != nil {
		return nil, err
	}
	return v.prepare(dir, f)
}

// OpenWriter opens the last segment. A killed process may have left entries, and the file's name,
// that are not durable yet. From now on Raft counts them as stored, so they are synced first.
func (v *walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.Files.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	w, err := v.prepare(dir, f)
	if err != nil {
		return nil, err
	}
	if err := w.Sync(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (v *walFiles) prepare(dir string, w types.WritableFile) (types.WritableFile, error) {
	f := &walFile{File: w.(disk.File), room: v.room,
		syncDir: func() error { return v.SyncDir(dir) }}
	if v.room != nil {
		v.room.Store(0) // until it is written
	}
	if !f.Reserved() { // a file system without that, or a call that was interrupted
		f.room = nil
		if v.room != nil {
			v.room.Store(noRoom)
		}
	}
	var err error
	if f.size, err = f.Size(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	v.newest = f
	v.note(f)
	return f, nil
}

// walFile is a writable segment, written front to back by one goroutine.
type walFile struct {
	disk.File
	room    *atomic.Int64 // see walFiles
	syncDir func() error
	size    int64 // reserved
	end     int64 // where the last entry written ends
	zeroed  int64 // bytes before this one were written
	index   int64 // size of the index that sealing the segment appends
	synced  bool  // including the name
}

// WriteAt writes a block of entries, and zeros after it if there are none yet. Nothing reads what
// follows the end of a write: raft-wal writes front to back, and after a crash continues after the
// last complete entry. Failure to write zeros is ignored: the entries will run into the same
// problem.
func (f *walFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	f.end = at + int64(n)
	if err == nil && f.end > f.zeroed {
		f.zeroed = max(f.end, min(f.end+zeroAhead, f.size))
		_, _ = f.File.WriteAt(zeros[:f.zeroed-f.end], f.end)
	}
	if f.room != nil {
		f.room.Store(f.size - f.end - f.index)
	}
	return n, err
}

// Sync makes writes durable; the first time also the file's name, without which the entries would
// be gone.
func (f *walFile) Sync() error {
	if f.synced {
		return f.SyncData()
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	if err := f.syncDir(); err != nil {
		return err
	}
	f.synced = true
	return nil
}

// walFiler creates raft-wal's segments, and checks the entries that are read from them.
type walFiler struct {
	*segment.Filer
	files *walFiles
	sums  *segmentSums
}

func (f *walFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.Filer.Create(info)
	return f.writer(info, w, err)
}

func (f *walFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.Filer.RecoverTail(info)
	return f.writer(info, w, err)
}

func (f *walFiler) writer(info types.SegmentInfo, w types.SegmentWriter,
	err error) (types.SegmentWriter, error) {
	if err != nil {
		return nil, err
	}
	return segmentWriter{w, f.files.newest, info, f.sums}, nil
}

func (f *walFiler) Open(info types.SegmentInfo) (types.SegmentReader, error) {
	r, err := f.Filer.Open(info)
	if err != nil {
		return nil, err
	}
	return segmentReads{r, info, f.sums}, nil
}

func (f *walFiler) Delete(base, id uint64) error {
	f.sums.drop(id)
	return f.Filer.Delete(base, id)
}

// segmentReads is a sealed segment.
type segmentReads struct {
	types.SegmentReader
	info types.SegmentInfo
	sums *segmentSums
}

func (r segmentReads) GetLog(index uint64) (*types.PooledBuffer, error) {
	return r.sums.checked(r.info, index)(r.SegmentReader.GetLog(index))
}

// segmentWriter is a writable segment and its file.
type segmentWriter struct {
	types.SegmentWriter
	file *walFile
	info types.SegmentInfo
	sums *segmentSums
}

// Append appends entries, and the index if that fills the segment.
func (w segmentWriter) Append(entries []types.LogEntry) error {
	if len(entries) > 0 {
		w.file.index = int64(entries[len(entries)-1].Index-w.info.BaseIndex+1) * indexEntry
		w.sums.add(w.info, entries)
	}
	return w.SegmentWriter.Append(entries)
}

func (w segmentWriter) GetLog(index uint64) (*types.PooledBuffer, error) {
	return w.sums.checked(w.info, index)(w.SegmentWriter.GetLog(index))
}

// ForceSeal seals the segment before it is full, when the end of the log is truncated. It returns
// reserved space to the file system; if that fails, reopening the log does it.
func (w segmentWriter) ForceSeal() (uint64, error) {
	start, err := w.SegmentWriter.ForceSeal()
	if err == nil && w.file.end > 0 {
		_ = w.file.Truncate(w.file.end)
	}
	return start, err
}
