package crashpoints

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/coordd/coordd/internal/tests/crashdisk"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// alone are the scenarios of single nodes.
var alone = map[string]func(t *testing.T) *single{
	"life": func(t *testing.T) *single {
		s := newSingle(t, smallSnapshots...)
		s.life = []func() error{s.run, s.writes(20), s.command("ACL", "SETUSER", "u", "on", "~*"),
			s.command("ACL", "SAVE"), s.writes(25), s.command("RAFT", "SNAPSHOT"), s.writes(5),
			s.stop}
		return s
	},
	"open": func(t *testing.T) *single {
		s := newSingle(t, smallSnapshots...)
		if err := s.prepare(s.run, s.writes(40)); err != nil {
			t.Fatal(err)
		}
		s.life = []func() error{s.run, s.writes(1)}
		return s
	},
	"bolt": func(t *testing.T) *single {
		s := newSingle(t, "--log-store", "bolt", smallSnapshots[0], smallSnapshots[1])
		s.life = []func() error{s.run, s.writes(20)}
		return s
	},
	"auto": func(t *testing.T) *single {
		s := newSingle(t)
		s.args[1] = "auto"
		s.life = []func() error{s.run, s.writes(2)}
		return s
	},
	"level": func(t *testing.T) *single {
		s := newSingle(t)
		if err := s.prepare(s.run, s.writes(3)); err != nil {
			t.Fatal(err)
		}
		s.during, s.after = nextRelease, nextRelease
		s.life = []func() error{s.run, s.raised, s.writes(2)}
		return s
	},
}

// raised waits until the cluster has the next release's level.
func (s *single) raised() error {
	return s.until("the level is raised", func() (bool, error) {
		if s.ended() {
			return false, s.ending()
		}
		known, err := s.info("known_feature_level")
		level, err2 := s.info("feature_level")
		return err == nil && err2 == nil && level == known, nil
	})
}

// TestCrashPoints has the power fail, or the disk return an error, at operations of nodes' lives
// and of subcommands.
func TestCrashPoints(t *testing.T) {
	needMounts(t)
	if _, err := thisRelease(); err != nil {
		t.Fatal(err)
	}
	r := &runner{seed: sampleSeed}
	if !samples() {
		r.seed = seeds.Of(t)
	}
	scenarios := r.scenarios()
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		t.Run(name, func(t *testing.T) {
			if samples() && name != "life" && name != "open" {
				tier.Check(t)
			}
			scenarios[name](t)
		})
	}
	reportAll(t)
}

// runner runs scenarios.
type runner struct{ seed uint64 }

// scenarios returns all scenarios by their names.
func (r *runner) scenarios() map[string]func(t *testing.T) {
	all := map[string]func(t *testing.T){}
	for name, of := range alone {
		all[name] = func(t *testing.T) {
			s := of(t)
			r.both(t, &s.count, s.crash, s.fail, s.evidence)
		}
	}
	for name, of := range trios {
		all[name] = func(t *testing.T) {
			c := newTrio(t, smallSnapshots...)
			of(c)
			r.both(t, &c.count, c.try, c.try, c.evidence)
		}
	}
	for name, of := range tools {
		all[name] = func(t *testing.T) {
			l := newTool(t)
			of(t, l)
			r.both(t, &l.count, l.try, l.try, l.evidence)
		}
	}
	return all
}

// samples reports whether only a sample is tried.
func samples() bool {
	return os.Getenv(pointsVariable)+os.Getenv(pointVariable) == ""
}

type trial = func(p point, rnd *rand.Rand) (crashdisk.Op, error)

// both tries crashes and errors in a scenario, which counts in *to.
func (r *runner) both(t *testing.T, to **count, crash, fail trial, evidence func(string) error) {
	most := 0 // operations, counted once
	for _, kind := range []string{"crash", "error"} {
		t.Run(kind, func(t *testing.T) {
			y := &try{t: t, seed: r.seed, run: crash, evidence: evidence,
				whats: []string{string(crashdisk.Lost), string(crashdisk.Torn),
					string(crashdisk.Kept)}}
			if kind == "error" {
				y.run, y.whats = fail, []string{"EIO", "ENOSPC", "EMFILE", "ENOSPC+"}
			}
			y.count = newCount()
			y.count.most = most
			*to = y.count
			defer y.count.report(t)
			y.all()
			most = y.count.most
		})
	}
}
