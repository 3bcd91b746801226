package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// pipePatience is how long a pipe may send nothing.
const pipePatience = 5 * time.Second

// Read reads a small file, also from a pipe such as that of a shell's <(command). It fails past
// limit bytes, and does not wait for somebody to open the other end of a pipe: a path may lead to
// a device without end, or to a pipe that nobody writes to.
func Read(path string, limit int64) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(pipePatience)) // fails for all but pipes
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(text)) > limit:
		return fail(fmt.Errorf("larger than %d bytes", limit))
	case len(text) == 0 && !info.Mode().IsRegular():
		return fail(errors.New("nobody writes to it"))
	}
	return text, nil
}

// Replace writes a file that only its owner can read, completely or not at all. When it returns
// nil, the file survives a power failure.
func Replace(path string, content []byte) error {
	return replace(path, content, func(*os.File) error { return nil }) // mode 0600
}

// ReplaceAlike is Replace for a file that exists. It keeps the permissions and, as far as the
// process may, the owner.
func ReplaceAlike(path string, content []byte) error {
	old, err := os.Stat(path)
	if err != nil {
		return err
	}
	return replace(path, content, func(f *os.File) error {
		chownAs(f, old)
		return f.Chmod(old.Mode().Perm())
	})
}

func chownAs(f *os.File, other os.FileInfo) {
	if s, ok := other.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(-1, int(s.Gid))
		_ = f.Chown(int(s.Uid), -1)
	}
}

func replace(path string, content []byte, prepare func(*os.File) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(content)
	if err = errors.Join(err, prepare(tmp), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Remove removes a file for good: it does not come back after a power failure.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes the names in a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
