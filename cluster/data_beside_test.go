// Tests of who waits for the lock of a data directory while its holder changes what is there.

package cluster

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coordd/coordd/internal/tests/detector"
)

// stageAlone stages what a recovery of n1 stages in a directory.
func stageAlone(t *testing.T, dir string, level uint64) exchange {
	t.Helper()
	x := exchangeOf(dir, "7")
	err := Seed(Config{ID: "n1", DataDir: x.staged, LogStore: LogStoreWAL, Logger: testLogger()},
		Origin{Cluster: "recovered", Index: 1 << 20, Term: 1 << 32, Level: level},
		func(w io.Writer) error {
			return json.NewEncoder(w).Encode(toyState{List: []string{"staged"}})
		})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// aloneAndClosed returns a closed cluster of n1 that has one batch, and its directory.
func aloneAndClosed(t *testing.T, level uint64) (c *testCluster, dir string) {
	t.Helper()
	c = newCluster(t, 1, nil)
	c.write(c.leader(), "old")
	c.close("n1")
	return c, lockedDir(t, c, "n1", level, true)
}

// beside has f wait for the lock of a directory until its holder has changed something and ended.
func beside[T any](t *testing.T, dir string, f func() T, change func()) T {
	t.Helper()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan T, 1)
	go func() { done <- f() }()
	synctest.Wait() // it has read what it reads before
	change()
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	return <-done
}

// TestStartBesideAnExchange ends a recovery at each of its steps while a node waits for the lock:
// it serves what was there before, or what is there then, or says how to go on.
func TestStartBesideAnExchange(t *testing.T) {
	detector.Skip(t)
	const steps = 1 + 2*4 + 1 + 1 // see runUntil, and none
	for _, level := range []uint64{firstLevel, markedLevel} {
		for step := range steps {
			simulated(t, func(t *testing.T) {
				c, dir := aloneAndClosed(t, level)
				x := stageAlone(t, dir, level)
				err := beside(t, dir, func() error { return c.tryOpen("n1", nil) }, func() {
					runUntil(t, x, step)
				})
				switch want := "without --before-entry, finishes it"; {
				case step == 0 || step == steps-1:
					if err != nil {
						t.Fatalf("level %d, step %d: %v", level, step, err)
					}
				case err == nil || !strings.Contains(err.Error(), want):
					t.Fatalf("level %d, step %d: %v", level, step, err)
				default:
					if kept, err := FinishRecovery(dir); err != nil || kept != x.kept {
						t.Fatal(kept, err)
					}
					c.reopen("n1")
				}
				c.ready("n1")
				want := []string{"staged"}
				if step == 0 {
					want[0] = "old"
				}
				if got := c.toys["n1"].batches(); !slices.Equal(got, want) {
					t.Errorf("level %d, step %d: %q, want %q", level, step, got, want)
				}
			})
		}
	}
}

// runUntil makes some of the steps of an exchange: the version file goes, the others are exchanged,
// the new version file comes.
func runUntil(t *testing.T, x exchange, steps int) {
	t.Helper()
	if err := makeDir(x.kept); err != nil {
		t.Fatal(err)
	}
	moves := [][2]string{{x.dir, x.kept}}
	names := []string{versionName}
	for _, name := range []string{promisesName, stableName, walName, snapshotsName} {
		moves = append(moves, [2]string{x.dir, x.kept}, [2]string{x.staged, x.dir})
		names = append(names, name, name)
	}
	moves, names = append(moves, [2]string{x.staged, x.dir}), append(names, versionName)
	for i := range min(steps, len(moves)) {
		err := os.Rename(filepath.Join(moves[i][0], names[i]), filepath.Join(moves[i][1], names[i]))
		if err != nil && !(missing(err) && names[i] == stableName) {
			t.Fatal(err)
		}
	}
}

// TestStartBesideARestore kills a restore while a node waits for the lock of the new directory: the
// node makes nothing there, and the restore can be run again.
func TestStartBesideARestore(t *testing.T) {
	simulated(t, func(t *testing.T) {
		dir := t.TempDir()
		started := func() error {
			n, err := Open(Config{ID: "n1", DataDir: dir, Logger: testLogger()}, newToy())
			if err == nil {
				err = errors.Join(errors.New("it runs"), n.Close())
			}
			return err
		}
		err := beside(t, dir, started, func() {
			err := errors.Join(checkEmpty(dir), markSeeding(dir), removeSeeded(dir))
			if err != nil {
				t.Fatal(err)
			}
			s, err := openLocked(closers{}, dir, LogStoreWAL, nil, fresh, testLogger())
			if err = errors.Join(err, s.close()); err != nil {
				t.Fatal(err)
			}
		})
		if err == nil || !strings.HasSuffix(err.Error(), "run coordd restore again") {
			t.Error(err)
		}
		// and one whose version file has gone
		_, err = openStores(dir, "n1", LogStoreWAL, fresh, testLogger())
		if err == nil || !strings.HasSuffix(err.Error(), "run coordd restore again") {
			t.Error(err)
		}
		err = Seed(Config{ID: "n1", DataDir: dir},
			Origin{Cluster: "x", Index: 5, Term: 5, Level: firstLevel}, func(w io.Writer) error {
				return json.NewEncoder(w).Encode(toyState{})
			})
		if err != nil {
			t.Error("the restore again:", err)
		}
	})
}

// TestStartsBesideASettingAside has two starts set a removed node aside: the second takes nothing
// of what the first made then, and none runs in a directory that is another's.
func TestStartsBesideASettingAside(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.leader().markRemoved()
		c.close("n1")
		dir := filepath.Join(c.dir, "n1")
		aside := func() (err error) {
			kept, err := SetAsideRemoved(dir)
			if kept != "" {
				err = errors.Join(err, errors.New("it has set aside "+kept))
			}
			return err
		}
		moved := func() { // as the first does, up to the lock of its new directory
			kept := filepath.Join(dir, setAsidePrefix+"n1")
			if err := os.Mkdir(kept, dirMode); err != nil {
				t.Fatal(err)
			}
			for _, name := range append(slices.Clone(storeNames), versionName) {
				err := os.Rename(filepath.Join(dir, name), filepath.Join(kept, name))
				if err != nil && !missing(err) {
					t.Fatal(err)
				}
			}
			v := dirVersion{format: dataFormat, node: "n1.bcdfgh", logStore: LogStoreWAL,
				level: firstLevel}
			if err := writeVersion(dir, v, os.Link); err != nil {
				t.Fatal(err)
			}
		}
		if err := beside(t, dir, aside, moved); err != nil {
			t.Error(err)
		}
		_, err := openStores(dir, "n1", LogStoreWAL, fresh, testLogger())
		if err == nil || !strings.Contains(err.Error(), "has just changed") {
			t.Error("as n1:", err)
		}
		s, err := openStores(dir, "n1.bcdfgh", LogStoreWAL, fresh, testLogger())
		if err = errors.Join(err, s.close()); err != nil {
			t.Error(err)
		}
	})
}

// TestStagedAndNeverBegun kills a recovery that has staged everything. The node goes on, is
// removed, and set aside: nothing says then that a recovery is to be finished.
func TestStagedAndNeverBegun(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c, dir := aloneAndClosed(t, firstLevel)
		x := stageAlone(t, dir, firstLevel)
		gone := func(when string) {
			t.Helper()
			if _, err := os.Stat(x.staged); !missing(err) {
				t.Errorf("%s leaves it: %v", when, err)
			}
		}
		c.reopen("n1")
		gone("a start")
		c.nodes["n1"].markRemoved()
		c.close("n1")
		stageAlone(t, dir, firstLevel)
		if _, err := SetAsideRemoved(dir); err != nil {
			t.Fatal(err)
		}
		gone("setting aside")
		stageAlone(t, dir, firstLevel) // an earlier release has left it
		if err := refuseForeign(dir); err != nil {
			t.Error(err)
		}
		if kept, err := FinishRecovery(dir); kept != "" || err != nil {
			t.Errorf("%q %v", kept, err)
		}
	})
}
