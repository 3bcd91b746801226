// This file holds the files of raft-wal's log: how their blocks are made ready, so that a sync writes the entries and nothing else.
package cluster

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/hashicorp/raft-wal/types"
)

// zeroAhead is how many bytes behind the last entry are written as zeros, time and again, before entries come there. Blocks that were only
// reserved become written ones with the first write to them, which the file system has to put into its journal: a second write with each
// sync. Blocks that were written before cost nothing but their data. A sync that has this many zeros to write takes
// below a millisecond longer (docs/adr/0011).
const zeroAhead = 512 << 10

var zeros [zeroAhead]byte

// walFiles is a file layer, raft-wal's own but in tests, with files of which the blocks are written before they are needed.
type walFiles struct{ types.VFS }

// Create makes a segment. Its first Sync is the file layer's own, which makes its name last too.
//
// Where there is no room for a whole segment it makes one without reserving any. raft-wal makes a segment when it has ended the last one; if that
// failed it would take no entry ever after, though there be room again.
func (v walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.VFS.Create(dir, name, size)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		if err := v.Delete(dir, name); err != nil && !errors.Is(err, fs.ErrNotExist) { // the file layer leaves it behind
			return nil, err
		}
		f, err = v.VFS.Create(dir, name, 0)
	}
	if err != nil {
		return nil, err
	}
	return newWalFile(f)
}

// OpenWriter opens the segment that was written to last.
func (v walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return newWalFile(f)
}

// walFile is a segment that is written to: from front to back, by one goroutine.
type walFile struct {
	osFile
	size   int64 // that was reserved
	zeroed int64 // bytes before this one were written
	synced bool
}

// osFile is what the file layer's files are, os.File and one around it.
type osFile interface {
	types.WritableFile
	Fd() uintptr
	Stat() (fs.FileInfo, error)
}

func newWalFile(w types.WritableFile) (types.WritableFile, error) {
	f := w.(osFile)
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &walFile{osFile: f, size: info.Size()}, nil
}

// WriteAt writes a block of entries, and zeros behind it where none are yet. What stands behind the end of a write is never of use: raft-wal
// writes front to back, and after a crash it begins behind the last entry that it finds whole. Zeros that cannot be written are not
// missed; what is wrong with the disk the entries find out.
func (f *walFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.osFile.WriteAt(p, at)
	if end := at + int64(n); err == nil && end > f.zeroed {
		f.zeroed = max(end, min(end+zeroAhead, f.size))
		_, _ = f.osFile.WriteAt(zeros[:f.zeroed-end], end)
	}
	return n, err
}

// Sync makes what was written last.
func (f *walFile) Sync() error {
	if f.synced {
		return syncData(f.osFile)
	}
	if err := f.osFile.Sync(); err != nil {
		return err
	}
	f.synced = true
	return nil
}
