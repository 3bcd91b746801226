// Scenarios of a single node: what it alone acknowledged must be on its disk.

package crashpoints

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/crashdisk"
)

// smallSnapshots makes a node take a snapshot every few writes.
var smallSnapshots = []string{"--snapshot-entries", "64"}

// everybody is a file of users who let everybody in.
const everybody = "user default on nopass sanitize-payload ~* &* +@all\n"

// single is a node alone, on a disk that crashes.
type single struct {
	*node
	volume
	led  *ledger
	base *crashdisk.Disk // where each life begins
	from *ledger         // what it holds
	// life is what the node does; each step may fail once the plan took effect
	life  []func() error
	reach <-chan struct{}
	// the error of the plan lasts until the life is over
	lasting bool
	count   *count
	// the binary of the life, and of the starts after it
	during, after func() (string, error)
	dead          []*crashdisk.Disk // of the last crash, for evidence: before and after it
}

func newSingle(t *testing.T, flags ...string) *single {
	needMounts(t)
	s := &single{volume: volume{dir: t.TempDir()}, base: crashdisk.New(), from: newLedger("a:"),
		during: thisRelease, after: thisRelease}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	s.node = newNode(t, "n1", append([]string{"--data-dir", s.path("data"), "--users-file",
		s.path("users.acl"), "--audit-log", s.path("audit.log")}, flags...)...)
	s.node.limit = func() time.Duration {
		if s.lasting && s.reached() {
			return lastingWait
		}
		return within
	}
	s.base.Put("users.acl", []byte(everybody))
	return s
}

// plan makes the disk fail at the point, in the life that begins.
func (s *single) plan(p point) {
	p.plan(s.disk)
	s.reach, s.lasting = s.disk.Reached(), p.lasting
}

// heal ends an error that lasts.
func (s *single) heal() {
	if s.lasting {
		s.disk.Go()
		s.lasting = false
	}
}

// path returns the path of a file on the disk.
func (s *single) path(name string) string { return filepath.Join(s.volume.dir, name) }

// reached reports whether the plan took effect.
func (s *single) reached() bool {
	select {
	case <-s.reach:
		return true
	default:
		return false
	}
}

// begin starts a life on a copy of the base.
func (s *single) begin(p point) error {
	s.led = s.from.clone()
	if err := s.insert(s.base.Survivor(crashdisk.Kept, nil)); err != nil {
		return err
	}
	s.node.binary = s.during
	s.plan(p)
	return nil
}

// live runs the life until it ends, the power fails, or an error of the disk has ended the process.
func (s *single) live(p point) error {
	struck := make(chan struct{})
	if p.outcome != "" {
		over := make(chan struct{})
		go func() {
			defer close(struck)
			select {
			case <-s.reach:
				s.strike()
				s.disk.Release()
			case <-over:
			}
		}()
		defer func() { close(over); <-struck }()
	}
	for i, step := range s.life {
		err := step()
		switch {
		case p.outcome != "" && s.reached():
			return nil
		case s.reached(): // a request may fail, but not the node in silence
			if s.cmd != nil && s.ended() {
				return nil
			}
		case err != nil:
			return fmt.Errorf("step %d, before the plan took effect: %w", i, err)
		}
	}
	return nil
}

// crash tries a point at which the power fails.
func (s *single) crash(p point, rnd *rand.Rand) (crashdisk.Op, error) {
	if err := s.begin(p); err != nil {
		return crashdisk.Op{}, err
	}
	err := s.live(p)
	s.kill()
	hit := s.disk.Hit()
	s.count.most = max(s.count.most, first(s.disk.Taken()))
	if err != nil {
		return hit, err
	}
	if hit.N == 0 {
		p.outcome = crashdisk.Kept // the end of the life
	}
	return hit, s.next(p, rnd)
}

func first(n int, _ map[string]int) int { return n }

// next starts the node on what is left of the disk, and checks it.
func (s *single) next(p point, rnd *rand.Rand) error {
	left := s.disk.Survivor(p.outcome, rnd)
	s.dead = []*crashdisk.Disk{s.disk, left.Survivor(crashdisk.Kept, nil)}
	if err := s.insert(left); err != nil {
		return err
	}
	s.node.binary = s.after
	if err := s.start(); err != nil {
		return err
	}
	defer s.kill()
	if err := s.await(); err != nil {
		return err
	}
	if err := s.led.check(s.client); err != nil {
		return err
	}
	return s.led.serves(s.node)
}

// fail tries a point at which the disk returns an error: the node ends and says why, or serves
// again; then the power fails.
func (s *single) fail(p point, rnd *rand.Rand) (crashdisk.Op, error) {
	if err := s.begin(p); err != nil {
		return crashdisk.Op{}, err
	}
	err := s.live(p)
	hit := s.disk.Hit()
	s.count.most = max(s.count.most, first(s.disk.Taken()))
	s.heal()
	if err == nil {
		err = s.goesOn()
	}
	s.kill()
	if err != nil {
		return hit, err
	}
	p.outcome = crashdisk.Lost
	return hit, s.next(p, rnd)
}

// goesOn checks that a node serves, or has ended with a sentence.
func (s *single) goesOn() error {
	if s.ended() && s.cmd.ProcessState.Success() { // it was stopped
		return nil
	}
	err := s.await()
	if err == nil {
		err = s.led.serves(s.node)
	}
	if err == nil {
		return s.led.check(s.client)
	}
	if says := (errEnded{}); errors.As(err, &says) {
		s.count.ended(says.says)
		return nil
	}
	return err
}

func (s *single) evidence(dir string) error {
	errs := []error{writeLogs(dir, s.node)}
	for i, d := range s.dead {
		errs = append(errs, d.Extract(filepath.Join(dir, []string{"crashed", "survivor"}[i])))
	}
	return errors.Join(errs...)
}

// run starts the node and waits until it serves.
func (s *single) run() error {
	if err := s.start(); err != nil {
		return err
	}
	return s.until(s.id+" acknowledges its first write", func() (bool, error) {
		switch err := s.led.write(s.client); {
		case s.ended():
			return false, s.ending()
		case err != nil && s.reached():
			return false, err // what follows is looked at after the life
		default:
			return err == nil, nil
		}
	})
}

// writes returns a step that writes.
func (s *single) writes(n int) func() error {
	return func() error { return s.led.writes(s.client, n) }
}

// command returns a step with a command.
func (s *single) command(args ...any) func() error {
	return func() error { _, err := s.do(args...); return err }
}

// prepare runs a life and makes the disk that it leaves the base.
func (s *single) prepare(life ...func() error) error {
	s.life = life
	if err := s.begin(point{n: 1 << 30, outcome: crashdisk.Kept}); err != nil {
		return err
	}
	if err := s.live(point{}); err != nil {
		return err
	}
	s.kill()
	s.base, s.from = s.disk.Survivor(crashdisk.Kept, nil), s.led
	return nil
}
