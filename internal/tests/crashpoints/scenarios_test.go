package crashpoints

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/crashdisk"
	"github.com/coordd/coordd/internal/tests/random"
)

// alone are the scenarios of single nodes.
var alone = []struct {
	name string
	make func(t *testing.T) *single
}{
	{"life", func(t *testing.T) *single {
		s := newSingle(t, smallSnapshots...)
		s.life = []func() error{s.run, s.writes(20), s.command("ACL", "SETUSER", "u", "on", "~*"),
			s.command("ACL", "SAVE"), s.writes(25), s.command("RAFT", "SNAPSHOT"), s.writes(5),
			s.stop}
		return s
	}},
	{"open", func(t *testing.T) *single {
		s := newSingle(t, smallSnapshots...)
		if err := s.prepare(s.run, s.writes(40)); err != nil {
			t.Fatal(err)
		}
		s.life = []func() error{s.run, s.writes(1)}
		return s
	}},
	{"bolt", func(t *testing.T) *single {
		s := newSingle(t, "--log-store", "bolt", smallSnapshots[0], smallSnapshots[1])
		s.life = []func() error{s.run, s.writes(20)}
		return s
	}},
	{"auto", func(t *testing.T) *single {
		s := newSingle(t)
		s.args[1] = "auto"
		s.life = []func() error{s.run, s.writes(2)}
		return s
	}},
	{"level", func(t *testing.T) *single {
		s := newSingle(t)
		if err := s.prepare(s.run, s.writes(3)); err != nil {
			t.Fatal(err)
		}
		s.during, s.after = nextRelease, nextRelease
		s.life = []func() error{s.run, s.raised, s.writes(2)}
		return s
	}},
}

// raised waits until the cluster has the next release's level.
func (s *single) raised() error {
	return until(within, "the level is raised", func() (bool, error) {
		if s.ended() {
			return false, s.ending()
		}
		known, err := s.info("known_feature_level")
		level, err2 := s.info("feature_level")
		return err == nil && err2 == nil && level == known, nil
	})
}

// TestCrashPoints has the power fail, or the disk return an error, at operations of a node's life.
func TestCrashPoints(t *testing.T) {
	needMounts(t)
	r := &runner{t: t, seed: random.Seed(t), began: time.Now()}
	for _, scenario := range alone {
		t.Run(scenario.name, func(t *testing.T) {
			r.need(t)
			s := scenario.make(t)
			r.both(t, &s.count, s.crash, s.fail, s.evidence)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(trios)) {
		t.Run(name, func(t *testing.T) {
			r.need(t)
			c := newTrio(t, smallSnapshots...)
			trios[name](t, c)
			r.both(t, &c.count, c.try, c.try, c.evidence)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		t.Run(name, func(t *testing.T) {
			r.need(t)
			l := newTool(t)
			tools[name](t, l)
			r.both(t, &l.count, l.try, l.try, l.evidence)
		})
	}
	report(t)
}

// runner runs scenarios.
type runner struct {
	t     *testing.T
	seed  uint64
	began time.Time
}

// need skips a scenario if the time of the sample is over.
func (r *runner) need(t *testing.T) {
	t.Helper()
	if os.Getenv(pointsVariable)+os.Getenv(pointVariable) == "" && time.Since(r.began) > sampleTime {
		t.Skip("SKIPPED: the time of the sample is over")
	}
}

type trial = func(p point, rnd *rand.Rand) (crashdisk.Op, error)

// both tries crashes and errors in a scenario, which counts in *to.
func (r *runner) both(t *testing.T, to **count, crash, fail trial, evidence func(string) error) {
	for _, kind := range []string{"crash", "error"} {
		t.Run(kind, func(t *testing.T) {
			r.need(t)
			y := &try{t: t, seed: r.seed, run: crash, evidence: evidence,
				whats: []string{string(crashdisk.Lost), string(crashdisk.Torn),
					string(crashdisk.Kept)}}
			if kind == "error" {
				y.run, y.whats = fail, []string{"EIO", "ENOSPC", "EMFILE"}
			}
			y.count = newCount(t.Name())
			*to = y.count
			y.all()
		})
	}
}
