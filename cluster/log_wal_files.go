// This file holds the files of raft-wal's log: how their blocks are made ready, so that a sync writes the entries and nothing else, how their
// names are made to last, and how the room that an early end leaves is given back.
package cluster

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// zeroAhead is how many bytes behind the last entry are written as zeros, time and again, before entries come there. Blocks that were only
// reserved become written ones with the first write to them, which the file system has to put into its journal: a second write with each
// sync. Blocks that were written before cost nothing but their data. A sync that has this many zeros to write takes
// below a millisecond longer (docs/adr/0011).
const zeroAhead = 512 << 10

var zeros [zeroAhead]byte

// fileLayer is where the log's files are: the file system, but in tests. Its files that are written to are segmentFiles.
type fileLayer interface {
	types.VFS
	// SyncDir makes the names in a directory last.
	SyncDir(dir string) error
}

// segmentFile is a file of the layer.
type segmentFile interface {
	types.WritableFile
	Size() (int64, error)
	Truncate(size int64) error
	SyncData() error // Sync without the file's times
}

// osFiles is the file system.
type osFiles struct{ *walfs.FS }

func (v osFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := v.FS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	f := osFile{&w.(*walfs.File).File} // what raft-wal adds to it, a sync of the directory, walFile does
	if err := f.Chmod(fileMode); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (v osFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	w, err := v.FS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return osFile{w.(*os.File)}, nil
}

func (osFiles) SyncDir(dir string) error { return syncDir(dir) }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) SyncData() error { return syncData(f.File) }

// walFiles is a file layer with files of which the blocks are written before they are needed.
type walFiles struct {
	fileLayer
	newest  *walFile // that was created or opened for writing last
	opening bool     // the log is being opened: raft-wal leaves files open where that fails
	opened  []io.Closer
}

// endOpening ends the opening of the log, with the error that it failed with, if any.
func (v *walFiles) endOpening(err error) error {
	if err != nil {
		for _, f := range v.opened {
			err = errors.Join(err, f.Close())
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

// OpenReader opens a segment that was ended.
func (v *walFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	r, err := v.fileLayer.OpenReader(dir, name)
	if err == nil {
		v.note(r)
	}
	return r, err
}

// Create makes a segment.
//
// Where there is no room for a whole segment it makes one without reserving any. raft-wal makes a segment when it has ended the last one; until
// that succeeds it takes no entry, though there be room for some.
func (v *walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.fileLayer.Create(dir, name, size)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		if err := v.Delete(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) { // the file layer leaves it behind
			return nil, err
		}
		f, err = v.fileLayer.Create(dir, name, 0)
	}
	if err != nil {
		return nil, err
	}
	return v.prepare(dir, f)
}

// OpenWriter opens the segment that was written to last. A process that was killed may have left entries, and the file's name, that are
// not on the disk yet. From now on Raft counts them as stored, so they are made to last first.
func (v *walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.fileLayer.OpenWriter(dir, name)
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
	f := &walFile{segmentFile: w.(segmentFile), syncDir: func() error { return v.SyncDir(dir) }}
	var err error
	if f.size, err = f.Size(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	v.newest = f
	v.note(f)
	return f, nil
}

// walFile is a segment that is written to: from front to back, by one goroutine.
type walFile struct {
	segmentFile
	syncDir func() error
	size    int64 // that was reserved
	end     int64 // of the last entry that was written
	zeroed  int64 // bytes before this one were written
	synced  bool  // whole, with its name
}

// WriteAt writes a block of entries, and zeros behind it where none are yet. What stands behind the end of a write is never of use: raft-wal
// writes front to back, and after a crash it begins behind the last entry that it finds whole. Zeros that cannot be written are not
// missed; what is wrong with the disk the entries find out.
func (f *walFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.segmentFile.WriteAt(p, at)
	f.end = at + int64(n)
	if err == nil && f.end > f.zeroed {
		f.zeroed = max(f.end, min(f.end+zeroAhead, f.size))
		_, _ = f.segmentFile.WriteAt(zeros[:f.zeroed-f.end], f.end)
	}
	return n, err
}

// Sync makes what was written last; the first time with the file's name, without which the entries would be gone.
func (f *walFile) Sync() error {
	if f.synced {
		return f.SyncData()
	}
	if err := f.segmentFile.Sync(); err != nil {
		return err
	}
	if err := f.syncDir(); err != nil {
		return err
	}
	f.synced = true
	return nil
}

// walFiler makes raft-wal's segments.
type walFiler struct {
	*segment.Filer
	files *walFiles
}

func (f *walFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	return f.writer(f.Filer.Create(info))
}

func (f *walFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	return f.writer(f.Filer.RecoverTail(info))
}

func (f *walFiler) writer(w types.SegmentWriter, err error) (types.SegmentWriter, error) {
	if err != nil {
		return nil, err
	}
	return segmentWriter{w, f.files.newest}, nil
}

// segmentWriter is a segment that is written to, and its file.
type segmentWriter struct {
	types.SegmentWriter
	file *walFile
}

// ForceSeal ends the segment before it is full, where the end of the log is cut off. What was reserved for it goes back to the file system;
// where that fails, it does when the log is opened again.
func (w segmentWriter) ForceSeal() (uint64, error) {
	start, err := w.SegmentWriter.ForceSeal()
	if err == nil && w.file.end > 0 {
		_ = w.file.Truncate(w.file.end)
	}
	return start, err
}
