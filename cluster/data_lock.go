// The lock of a data directory: whoever holds it is the only process there.

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coordd/coordd/internal/pulse"
)

// lockName is the file whose lock a process holds. It is empty, stays when all others are exchanged
// or moved, and is there before a directory gets markedLevel. Below that level bbolt's lock of the
// stable store holds as well, which processes of earlier releases have.
//
// The lock is flock(2)'s, as bbolt's is. Of a regular file that is open for writing Linux passes it
// to the server of NFS, as a lock of the whole file; of a directory it does not, and two machines
// could have it. One of fcntl(2) would be gone when any other descriptor of the file is closed;
// that of an open file description, which is not, only Linux has.
const lockName = "LOCK"

// lockFlags open that file, and nothing to which somebody has made it a link: root looks at the
// directories of others.
const lockFlags = os.O_RDWR | syscall.O_NOFOLLOW

// ErrInUse means that another process has the lock.
var ErrInUse = errors.New("is in use by another process")

// lockDir takes the lock of a data directory for a process that writes there. Where the file is
// missed, someone may have deleted it under a node, which ends once it notices: that is waited for.
// Only then the file is made: who finds it need not wait.
func lockDir(dir string) (io.Closer, error) {
	lock, err := lockFile(dir, lockName, lockFlags)
	if !missing(err) {
		return lock, err
	}
	if v, err := readVersion(dir); err == nil && v.level >= markedLevel {
		time.Sleep(5 * lockCheck)
	}
	return lockFile(dir, lockName, lockFlags|os.O_CREATE)
}

// lockToLook takes the lock of a data directory of a level for a process that writes nothing there.
// held is false if there is no file: no node of this release has been there, and that of earlier
// ones is the lock.
func lockToLook(dir string, level uint64) (lock io.Closer, held bool, err error) {
	lock, err = lockFile(dir, lockName, lockFlags)
	switch {
	case !missing(err):
		return lock, true, err
	case level < markedLevel:
		return closers{}, false, nil
	}
	return nil, false, dirErrorf("if no process uses the directory, make the file as the owner of "+
		"the others there: sudo -u coordd touch "+filepath.Join(dir, lockName),
		"data directory %s has no file %s, by which processes keep each other out: create an "+
			"empty one if none uses the directory", dir, lockName)
}

// lockFile takes the lock of a file in a data directory.
func lockFile(dir, name string, flags int) (io.Closer, error) {
	path := filepath.Join(dir, name)
	const patience, pause = time.Second, 20 * time.Millisecond // a process may be about to end
	for began := time.Now(); ; time.Sleep(pause) {
		f, err := os.OpenFile(path, flags, fileMode)
		if errors.Is(err, syscall.EROFS) && flags&os.O_CREATE == 0 {
			f, err = os.OpenFile(path, flags&^os.O_RDWR, 0) // nothing writes there
		}
		if err != nil {
			return nil, fmt.Errorf("cannot lock data directory %s: %w", dir, err)
		}
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && sameFile(f, path) {
			return f, nil
		}
		switch err = errors.Join(err, f.Close()); {
		case err != nil && !errors.Is(err, syscall.EWOULDBLOCK):
			return nil, fmt.Errorf("cannot lock data directory %s: %w", dir, err)
		case time.Since(began) > patience:
			return nil, fmt.Errorf("data directory %s %w", dir, ErrInUse)
		}
	}
}

// lockLost returns why f is no longer the lock of a directory: the directory was moved, or another
// has its name, and what is written by that name lands there. nil: it is, or the disk does not say.
func lockLost(f *os.File, dir string) error {
	path := filepath.Join(dir, lockName)
	if _, err := os.Stat(path); err != nil && !missing(err) || sameFile(f, path) {
		return nil
	}
	return fmt.Errorf("data directory %s was moved or replaced, or its file %s was, while this "+
		"node ran: it must not write to what is there now", dir, lockName)
}

// lockCheck is how often a node looks whether it still has the lock of its directory.
const lockCheck = time.Second

// watchLock is the loop that ends the node once it has not.
func (n *Node) watchLock() {
	ticker := pulse.NewTicker(lockCheck)
	defer ticker.Stop()
	for n.guard.holds() == nil {
		select {
		case <-ticker.C:
			ticker.Next()
		case <-n.stop:
			return
		}
	}
}

// sameFile reports whether an open file is still the one that a path names: who had the lock may
// have removed it.
func sameFile(f *os.File, path string) bool {
	is, err1 := f.Stat()
	named, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(is, named)
}
