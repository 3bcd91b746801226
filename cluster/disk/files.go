// The files below the log and beside it: those of the system, or a test's.

package disk

import (
	"errors"
	"os"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"github.com/coordd/coordd/internal/files"
)

// fileMode is the mode of files that are created.
const fileMode = 0o600

// Files are the files of a log and those beside it: of the system, except in tests and
// simulations. Those open for writing are of type File.
type Files interface {
	types.VFS
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
}

// File is a file of Files that is open for writing.
type File interface {
	types.WritableFile
	Size() (int64, error)
	Truncate(size int64) error
	Reserved() bool  // all of its blocks are on disk
	SyncData() error // Sync without the file's times
}

// System is the file system.
type System struct{ *walfs.FS }

// NewSystem returns the file system.
func NewSystem() System { return System{walfs.New()} }

// Create creates a file, with so many bytes reserved if size is not 0.
func (v System) Create(dir, name string, size uint64) (types.WritableFile, error) {
	w, err := v.FS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	// what raft-wal adds to it, a sync of the directory, walFile does
	f := osFile{&w.(*walfs.File).File}
	if err := f.Chmod(fileMode); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// OpenWriter implements Files.
func (v System) OpenWriter(dir, name string) (types.WritableFile, error) {
	w, err := v.FS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return osFile{w.(*os.File)}, nil
}

// SyncDir implements Files.
func (System) SyncDir(dir string) error { return files.SyncDir(dir) }

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Sync() error {
	slow()
	return f.File.Sync()
}

func (f osFile) SyncData() error {
	slow()
	return syncData(f.File)
}

func (f osFile) Reserved() bool { return reserved(f.File) }
