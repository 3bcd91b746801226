// Scenarios of coordd's subcommands: a crash leaves what was there or what is new, and running the
// command again works.

package crashpoints

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/crashdisk"
)

// tool is a subcommand that works on a disk that crashes.
type tool struct {
	volume
	base  *crashdisk.Disk
	args  []string
	count *count
	// done is in the error of a command that had finished before the power failed; empty: it can
	// be run again
	done string
	// check looks at what a crash left, before the command runs again; nil: nothing
	check func() error
	// after looks at the disk on which the command has finished
	after func() error
	dead  []*crashdisk.Disk
	said  string // by the newest command
}

// run runs the command once; struck: it is killed when the plan takes effect.
func (l *tool) run(crashes bool) (err error) {
	var struck <-chan struct{}
	if crashes {
		struck = l.disk.Reached()
	}
	l.said, err = coordd(struck, l.disk.Release, l.args...)
	return err
}

// try tries a point of the command.
func (l *tool) try(p point, rnd *rand.Rand) (hit crashdisk.Op, err error) {
	if err := l.insert(l.base.Survivor(crashdisk.Kept, nil)); err != nil {
		return hit, err
	}
	p.plan(l.disk)
	err = l.run(p.outcome != "")
	hit = l.disk.Hit()
	l.count.most = max(l.count.most, first(l.disk.Taken()))
	says := errEnded{}
	switch failed := errors.As(err, &says); {
	case hit.N == 0 && err != nil:
		return hit, fmt.Errorf("before the plan took effect: %w", err)
	case hit.N > 0 && p.outcome == "" && err != nil && !failed:
		return hit, err
	case failed:
		l.count.ended(says.says)
	}
	switch {
	case hit.N == 0:
		p.outcome = crashdisk.Kept
	case p.outcome == "":
		p.outcome = crashdisk.Lost
		if err == nil { // it said that it is done
			return hit, l.next(p, rnd, l.after)
		}
	}
	return hit, l.next(p, rnd, func() error { return l.repeat(hit.N == 0) })
}

// next continues with what is left of the disk.
func (l *tool) next(p point, rnd *rand.Rand, then func() error) error {
	left := l.disk.Survivor(p.outcome, rnd)
	l.dead = []*crashdisk.Disk{l.disk, left.Survivor(crashdisk.Kept, nil)}
	if err := l.insert(left); err != nil {
		return err
	}
	return then()
}

// repeat runs the command again and looks at what it leaves.
func (l *tool) repeat(finished bool) error {
	if l.check != nil {
		if err := l.check(); err != nil {
			return err
		}
	}
	if !finished {
		if err := l.run(false); err != nil && (l.done == "" ||
			!strings.Contains(err.Error(), l.done)) {
			return fmt.Errorf("the command, again: %w", err)
		}
	}
	return l.after()
}

func (l *tool) evidence(dir string) error {
	errs := []error{os.WriteFile(filepath.Join(dir, "said"), []byte(l.said), 0o600)}
	for i, d := range l.dead {
		errs = append(errs, d.Extract(filepath.Join(dir, []string{"crashed", "survivor"}[i])))
	}
	return errors.Join(errs...)
}

// tools are the scenarios of subcommands.
var tools = map[string]func(t *testing.T, l *tool){
	"backup":    func(t *testing.T, l *tool) { backupTo(t, l, false) },
	"overwrite": func(t *testing.T, l *tool) { backupTo(t, l, true) },
	"keep":      keepBackups,
	"restore":   restore,
	"recover":   recoverAlone,
	"reset":     resetUser,
}

// newTool returns a scenario without a command.
func newTool(t *testing.T) *tool {
	needMounts(t)
	l := &tool{volume: volume{dir: t.TempDir()}, base: crashdisk.New()}
	t.Cleanup(func() {
		if err := l.remove(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *tool) path(name string) string { return filepath.Join(l.dir, name) }

// served returns a node with data, on an ordinary directory, that runs until the test ends.
func served(t *testing.T, led *ledger) *node {
	t.Helper()
	n := newNode(t, "n1", "--data-dir", filepath.Join(t.TempDir(), "data"))
	for _, step := range []func() error{n.start, n.await, func() error { return led.serves(n) },
		func() error { return led.writes(n.client, 5) }} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// backupFile returns a backup of a node with data.
func backupFile(t *testing.T, led *ledger) string {
	t.Helper()
	n := served(t, led)
	defer n.kill()
	return backupOf(t, n)
}

// backupOf returns a backup of a node.
func backupOf(t *testing.T, n *node) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup")
	if _, err := coordd(nil, nil, "backup", "--from", n.addr, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// complete reports an error if a file on the disk is there and no complete backup.
func (l *tool) complete(name string) error {
	if _, err := l.disk.ReadFile(name); err != nil {
		return nil
	}
	_, err := coordd(nil, nil, "backup", "verify", l.path(name))
	return err
}

// backupTo backs up to a new file, or over an older backup.
func backupTo(t *testing.T, l *tool, over bool) {
	led := newLedger("b:")
	n := served(t, led)
	l.base.PutDir("to")
	l.args = []string{"backup", "--from", n.addr, l.path("to/file")}
	var old []byte
	if over {
		file := backupFile(t, newLedger("old:"))
		var err error
		if old, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		l.base.Put("to/file", old)
		l.args = append(l.args, "--force")
	} else {
		l.done = "exists; --force overwrites it"
	}
	l.check = func() error {
		if got, err := l.disk.ReadFile("to/file"); over && err != nil {
			return errors.New("the older backup is gone")
		} else if over && bytes.Equal(got, old) {
			return nil
		}
		return l.complete("to/file")
	}
	l.after = func() error {
		got, err := l.disk.ReadFile("to/file")
		if err != nil || bytes.Equal(got, old) {
			return fmt.Errorf("the backup is not there: %v", err)
		}
		return l.complete("to/file")
	}
}

// keepBackups adds a backup to a directory and removes older ones.
func keepBackups(t *testing.T, l *tool) {
	led := newLedger("b:")
	n := served(t, led)
	old, err := os.ReadFile(backupOf(t, n))
	if err = errors.Join(err, led.writes(n.client, 5)); err != nil {
		t.Fatal(err)
	}
	older := "to/backup-20260101T000000.000Z.coordd"
	l.base.Put(older, old)
	l.args = []string{"backup", "--from", n.addr, "--to", l.path("to"), "--keep", "1"}
	backups := func() error {
		whole := 0
		for _, name := range l.disk.Names("to") {
			if strings.HasSuffix(name, ".tmp") {
				continue
			}
			if err := l.complete("to/" + name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			whole++
		}
		if whole == 0 {
			return errors.New("no backup is left")
		}
		return nil
	}
	l.check = backups
	l.after = func() error {
		if _, err := l.disk.ReadFile(older); err == nil {
			return errors.New("the oldest backup was not removed")
		}
		return backups()
	}
}

// starts starts a node on the disk, with the data directory data, and checks what it holds.
func (l *tool) starts(n *node, led *ledger) error {
	defer n.kill()
	if err := n.start(); err != nil {
		return err
	}
	if err := n.await(); err != nil {
		return err
	}
	return led.check(n.client)
}

// restore makes a data directory of a backup.
func restore(t *testing.T, l *tool) {
	led := newLedger("r:")
	file := backupFile(t, led)
	n := newNode(t, "n1", "--data-dir", l.path("data"))
	l.args = []string{"restore", file, "--id", "n1", "--data-dir", l.path("data")}
	l.done = "is not empty"
	l.after = func() error { return l.starts(n, led) }
}

// recoverAlone makes one of three nodes the only one.
func recoverAlone(t *testing.T, l *tool) {
	c := newTrio(t, smallSnapshots...)
	if err := errors.Join(c.led.writes(c.client, 40), c.caughtUp()); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.all() {
		n.kill()
	}
	if err := c.remove(); err != nil {
		t.Fatal(err)
	}
	l.base = c.disk.Survivor(crashdisk.Kept, nil)
	n := newNode(t, "n1", "--data-dir", l.path("data"))
	n.args = append(n.args, "--cluster", c.args[len(c.args)-1])
	l.args = []string{"recover", "--data-dir", l.path("data"), "--accept-lost-writes"}
	l.done = "is the only voter of its cluster"
	l.after = func() error { return l.starts(n, c.led) }
}

// resetUser asks for a new password of the default user.
func resetUser(t *testing.T, l *tool) {
	led := newLedger("u:")
	s := newSingle(t)
	s.from = led
	if err := s.prepare(s.run, s.writes(3)); err != nil {
		t.Fatal(err)
	}
	if err := s.remove(); err != nil {
		t.Fatal(err)
	}
	l.base = s.base
	l.base.Put("password", []byte("secret\n"))
	l.args = []string{"reset-default-user", "--data-dir", l.path("data"), "--password-file",
		l.path("password")}
	n := newNode(t, "n1", "--data-dir", l.path("data"))
	l.after = func() error {
		defer n.kill()
		if err := errors.Join(n.start(), n.await()); err != nil {
			return err
		}
		return until(within, "the default user is reset", func() (bool, error) {
			_, err := n.do("AUTH", "secret")
			return err == nil, nil
		})
	}
}
