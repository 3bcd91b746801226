// Tests of the lock of a data directory.

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/internal/tests/detector"
)

// lockedDir returns the directory of a closed member at a level, with the lock's file or without
// it, as an earlier release leaves it.
func lockedDir(t *testing.T, c *testCluster, id string, level uint64, file bool) string {
	t.Helper()
	dir := filepath.Join(c.dir, id)
	if err := noteLevel(dir, level); err != nil {
		t.Fatal(err)
	}
	if !file {
		if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLocksExcludeEachOther has each use of a data directory meet each other one, with the lock's
// file and, where only earlier releases have been, without it.
func TestLocksExcludeEachOther(t *testing.T) {
	detector.Skip(t)
	uses := map[string]func(c *testCluster, dir string) (io.Closer, error){
		"a node": func(c *testCluster, dir string) (io.Closer, error) {
			ln := c.net.listen(c.t, "n1", "")
			n, err := Open(Config{ID: "n1", DataDir: dir, PeerListener: ln, Clock: c.clock("n1"),
				dial: c.net.dialer("n1"), Logger: testLogger()}, newToy())
			if err != nil {
				_ = ln.Close()
			}
			return closing(n, err)
		},
		"looking": func(_ *testCluster, dir string) (io.Closer, error) {
			return closing(OpenOffline(dir, newToy(), testLogger()))
		},
		"refetching": func(_ *testCluster, dir string) (io.Closer, error) {
			_, err := Refetch(dir, newToy(), testLogger())
			return closers{}, err
		},
		"setting aside": func(_ *testCluster, dir string) (io.Closer, error) {
			_, err := SetAsideRemoved(dir)
			return closers{}, err
		},
	}
	runs := func(t *testing.T, level uint64, file bool, first, second string) {
		c := newCluster(t, 1, nil)
		c.write(c.leader(), "a")
		c.close("n1")
		dir := lockedDir(t, c, "n1", level, file)
		has, err := uses[first](c, dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := uses[second](c, dir); !errors.Is(err, ErrInUse) {
			t.Errorf("level %d, file %v: %v", level, file, err)
		}
		if err := has.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, first := range []string{"a node", "looking"} { // the others have ended
		for second := range uses {
			runSimulated(t, second+" beside "+first, func(t *testing.T) {
				runs(t, firstLevel, true, first, second)
				runs(t, firstLevel, false, first, second)
				runs(t, markedLevel, true, first, second)
				// without it: TestLookingCreatesNothing, TestLockDeletedUnderANode
			})
		}
	}
}

// closing drops a nil pointer that an interface would hold.
func closing[T io.Closer](c T, err error) (io.Closer, error) { return c, err }

// Looking creates nothing, not even the lock's file. Where it would be the only lock, looking says
// what is missing.
func TestLookingCreatesNothing(t *testing.T) {
	for _, level := range []uint64{firstLevel, markedLevel} {
		for _, file := range []bool{true, false} {
			c := newCluster(t, 1, nil)
			c.write(c.leader(), "a")
			c.close("n1")
			dir := lockedDir(t, c, "n1", level, file)
			before := tree(t, dir)
			o, err := OpenOffline(dir, newToy(), testLogger())
			if level >= markedLevel && !file {
				if err == nil || !strings.Contains(err.Error(), "create an empty one") {
					t.Errorf("without a lock: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if err := o.Close(); err != nil {
				t.Fatal(err)
			}
			if after := tree(t, dir); !maps.Equal(before, after) {
				t.Errorf("level %d, file %v: looking wrote", level, file)
			}
		}
	}
}

// NFS passes on locks of regular files that are open for writing, which are otherwise the
// machine's.
func TestLockIsOneThatNFSPassesOn(t *testing.T) {
	c := newCluster(t, 1, nil)
	dir := filepath.Join(c.dir, "n1")
	c.close("n1")
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if is, err := f.Stat(); err != nil || !is.Mode().IsRegular() {
		t.Fatal(is, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	if err := c.tryOpen("n1", nil); !errors.Is(err, ErrInUse) {
		t.Errorf("a node beside the lock of the file: %v", err)
	}
	held, err := lockFile(dir, versionName, os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	const access = syscall.O_RDONLY | syscall.O_WRONLY | syscall.O_RDWR
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, held.(*os.File).Fd(), syscall.F_GETFL, 0)
	if errno != 0 || flags&access != syscall.O_RDWR {
		t.Errorf("the lock's file is open with flags %#x, %v", flags, errno)
	}
}

// Who waits for the lock while its holder removes the file gets the lock of the file that is there.
func TestLockOfARemovedFile(t *testing.T) {
	dir := t.TempDir()
	held, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if !sameFile(gone, gone.Name()) {
		t.Error("the file is not its own")
	}
	if err := os.Remove(gone.Name()); err != nil {
		t.Fatal(err)
	}
	if sameFile(gone, gone.Name()) {
		t.Error("a removed file counts")
	}
	other, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if sameFile(gone, gone.Name()) {
		t.Error("a file that was replaced counts")
	}
	if err := errors.Join(held.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
}

// Who finds no lock where there must have been one opens the directory after a node that ran there
// without it has ended.
func TestLockDeletedUnderANode(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ended := make(chan error, 10)
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Fatal = func(err error) { ended <- err }
		})
		c.write(c.leader(), "a")
		c.close("n1")
		dir := lockedDir(t, c, "n1", markedLevel, true)
		c.reopen("n1")
		if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
			t.Fatal(err)
		}
		lock, err := lockDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		select {
		case err := <-ended:
			if !strings.Contains(err.Error(), "its file LOCK was") {
				t.Error(err)
			}
		default:
			t.Error("two processes have the directory")
		}
	})
}

// Who finds the lock's file need not wait, so who missed it makes it only after it has waited: not
// even one that is killed meanwhile, or comes first to the file of another, spares the next a wait.
func TestStartsThatMissTheLockAllWait(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ended := make(chan error, 10)
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Fatal = func(err error) { ended <- err }
		})
		c.write(c.leader(), "a")
		c.close("n1")
		dir := lockedDir(t, c, "n1", markedLevel, true)
		c.reopen("n1")
		if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
			t.Fatal(err)
		}
		const starts = 3
		locks := make(chan io.Closer, starts)
		for range starts {
			go func() {
				lock, err := lockDir(dir)
				if err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				if len(ended) == 0 {
					t.Error("a start has ended its wait, and the node runs")
				}
				locks <- lock
			}()
		}
		synctest.Wait()
		if _, err := os.Stat(filepath.Join(dir, lockName)); !missing(err) {
			t.Error("the file is there before anybody has waited:", err)
		}
		held := 0
		for range starts {
			if lock := <-locks; lock != nil {
				held++
				defer lock.Close()
			}
		}
		if held != 1 {
			t.Errorf("%d of %d have the lock", held, starts)
		}
	})
}

// Two restores into one directory: the second fails, and takes nothing away from the first. What
// either leaves of the lock alone counts as empty.
func TestSeedBesideSeed(t *testing.T) {
	dir := t.TempDir()
	held, err := lockDir(dir)
	if err := errors.Join(err, held.Close()); err != nil {
		t.Fatal(err)
	}
	from := Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}
	cfg := Config{ID: "n1", DataDir: dir}
	state := func(w io.Writer) error { return json.NewEncoder(w).Encode(toyState{}) }
	err = Seed(cfg, from, func(w io.Writer) error {
		if err := Seed(cfg, from, state); !errors.Is(err, ErrInUse) {
			return fmt.Errorf("a second one: %w", err)
		}
		return state(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(Config{ID: "n1", DataDir: dir}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
}

// A restore that was killed as it removed its mark is finished: the mark goes, lest it says later
// that all may be removed.
func TestMarkOfAFinishedSeed(t *testing.T) {
	c := newCluster(t, 1, nil)
	c.write(c.leader(), "a")
	c.close("n1")
	dir := filepath.Join(c.dir, "n1")
	if err := markSeeding(dir); err != nil {
		t.Fatal(err)
	}
	c.reopen("n1")
	if _, err := os.Stat(filepath.Join(dir, seedingName)); !missing(err) {
		t.Error("a node keeps it:", err)
	}
	dir = t.TempDir()
	x := exchangeOf(dir, "7")
	interruptExchange(t, dir, x, 1)
	if err := markSeeding(dir); err != nil {
		t.Fatal(err)
	}
	if err := x.run(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, seedingName)); !missing(err) {
		t.Error("a recovery keeps it:", err)
	}
}

// A file that was about to get its name when the process was killed hinders no restore, and goes at
// the next start.
func TestUnnamedFilesGo(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, versionName+unnamedSuffix+"1")
	if err := os.WriteFile(left, nil, fileMode); err != nil {
		t.Fatal(err)
	}
	err := Seed(Config{ID: "n1", DataDir: dir, Logger: testLogger()},
		Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}, func(w io.Writer) error {
			return json.NewEncoder(w).Encode(toyState{})
		})
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(Config{ID: "n1", DataDir: dir}, newToy())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := os.Stat(left); !missing(err) {
		t.Error("it stays:", err)
	}
}

// A recovery takes the lock before it writes, also where looking found no file of it.
func TestRecoveryTakesTheLock(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.write(c.leader(), "a")
		c.converged()
		c.close("n1")
		dir := lockedDir(t, c, "n1", firstLevel, false)
		o := openOffline(t, dir, newToy())
		if err := o.Replay(0, nil); err != nil {
			t.Fatal(err)
		}
		_, err := o.RecoverAlone(1, 1<<20, 1<<32, func(w io.Writer) error {
			if _, err := lockDir(dir); !errors.Is(err, ErrInUse) {
				t.Errorf("beside a recovery: %v", err)
			}
			return json.NewEncoder(w).Encode(toyState{})
		})
		if err := errors.Join(err, o.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestMovedDirectoryEndsTheNode moves the directory of a running node away, and another node begins
// where it was: the first writes nothing there, and ends.
func TestMovedDirectoryEndsTheNode(t *testing.T) {
	simulated(t, func(t *testing.T) {
		ended := make(chan error, 10)
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Fatal = func(err error) { ended <- err }
		})
		n, dir := c.leader(), filepath.Join(c.dir, "n1")
		c.write(n, "a")
		if err := n.guard.holds(); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir, dir+"-moved"); err != nil {
			t.Fatal(err)
		}
		if _, err := prepareDir(dir, "n2", LogStoreWAL, knows(firstLevel)); err != nil {
			t.Fatal(err)
		}
		s, err := openStores(dir, "n2", LogStoreWAL, fresh, testLogger())
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		says := func(err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), dir+" was moved or replaced") {
				t.Error(err)
			}
		}
		before := tree(t, dir)
		says(n.Snapshot())
		says(received(t, "the end, by the snapshot", ended))
		says(n.guard.pass("an entry", owingLevel))
		if after := tree(t, dir); !maps.Equal(before, after) {
			t.Error("it wrote to the directory of another node")
		}
	})
	simulated(t, func(t *testing.T) { // nothing is written
		ended := make(chan error, 10)
		c := newCluster(t, 1, func(cfg *Config) {
			cfg.Fatal = func(err error) { ended <- err }
		})
		dir := filepath.Join(c.dir, "n1")
		c.leader()
		if err := os.Rename(dir, dir+"-moved"); err != nil {
			t.Fatal(err)
		}
		err := received(t, "the end", ended)
		if !strings.Contains(err.Error(), dir+" was moved or replaced") {
			t.Error(err)
		}
	})
}

// TestLockIsNoLink: whoever may write to a directory can make its lock a link, to a file that is
// missing or of somebody else.
func TestLockIsNoLink(t *testing.T) {
	uses := map[string]func(dir string) error{
		"refetching": func(dir string) error {
			_, err := Refetch(dir, newToy(), testLogger())
			return err
		},
		"looking": func(dir string) error {
			o, err := OpenOffline(dir, newToy(), testLogger())
			if err == nil {
				err = o.Close()
			}
			return err
		},
		"seeding": func(dir string) error {
			if err := os.Remove(filepath.Join(dir, versionName)); err != nil {
				return err
			}
			return Seed(Config{ID: "n1", DataDir: dir, Logger: testLogger()}, Origin{},
				func(io.Writer) error { return nil })
		},
	}
	for name, use := range uses {
		dir, to := t.TempDir(), filepath.Join(t.TempDir(), "led to")
		if err := errors.Join(writeVersion(dir, dirVersion{format: dataFormat, node: "n1",
			logStore: LogStoreWAL, level: firstLevel}, os.Link),
			os.Symlink(to, filepath.Join(dir, lockName))); err != nil {
			t.Fatal(err)
		}
		if err := use(dir); !errors.Is(err, syscall.ELOOP) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(to); !missing(err) {
			t.Errorf("%s follows the link: %v", name, err)
		}
	}
}
