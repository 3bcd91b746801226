package backups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/files"
)

// Directory is a directory that exists.
type Directory string

// String implements Store.
func (d Directory) String(name string) string { return filepath.Join(string(d), name) }

// Put implements Store.
func (d Directory) Put(ctx context.Context, name string, take Take) (fsm.BackupInfo, error) {
	return WriteFile(ctx, d.String(name), false, take, nil) // Add reads it back
}

// Open implements Store.
func (d Directory) Open(_ context.Context, name string) (*File, error) {
	f, err := os.Open(d.String(name))
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{f, info.Size(), info.ModTime()}, nil
}

// staleAfter is the age of a temporary file that nobody writes to any more. Its process was killed.
const staleAfter = time.Hour

// Names implements Store. It removes temporary files that killed processes left.
func (d Directory) Names(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		name, _, temporary := strings.Cut(e.Name(), nameSuffix+".")
		if _, ok := timeOf(name + nameSuffix); !temporary || !ok {
			names = append(names, e.Name())
			continue
		}
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), temporarySuffix) &&
			time.Since(info.ModTime()) > staleAfter {
			_ = os.Remove(d.String(e.Name())) // best effort, as with any garbage
		}
	}
	return names, err
}

// Remove implements Store.
func (d Directory) Remove(_ context.Context, name string) error {
	err := files.Remove(d.String(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

const temporarySuffix = ".tmp"

// WriteFile writes to a temporary file and renames it when it is complete and on disk, and was read
// back unless check is nil. The temporary name is unique and created exclusively: concurrent
// backups do not collide, and no link is followed.
func WriteFile(ctx context.Context, file string, force bool, take Take, check Check) (
	info fsm.BackupInfo, err error) {
	// with mode 0600: it holds all data
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*"+temporarySuffix)
	if err != nil {
		return info, err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if info, err = take(ctx, tmp); err != nil {
		return info, err
	}
	if err := errors.Join(tmp.Sync(), tmp.Close()); err != nil {
		return info, err
	}
	if check != nil {
		if err := readFile(tmp.Name(), file, info, check); err != nil {
			return info, err
		}
	}
	if err := publish(tmp.Name(), file, force); err != nil {
		return info, err
	}
	return info, files.SyncDir(filepath.Dir(file))
}

// readFile reads a file back that is to get the name file.
func readFile(tmp, file string, want fsm.BackupInfo, check Check) error {
	f, err := os.Open(tmp)
	if err != nil {
		return err
	}
	defer f.Close()
	return compare(f, file, want, check)
}

// publish gives a finished file its name. Unless force is set, it replaces no file, not even a
// concurrent one.
func publish(tmp, file string, force bool) error {
	if !force {
		switch err := os.Link(tmp, file); {
		case err == nil:
			return os.Remove(tmp)
		case errors.Is(err, fs.ErrExist):
			return err
		}
		if _, err := os.Lstat(file); err == nil { // a file system without hard links
			return fmt.Errorf("%s: %w", file, fs.ErrExist)
		}
	}
	return os.Rename(tmp, file)
}
