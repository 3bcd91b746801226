// Command suites runs test suites of Redis and of its client libraries against coordd, and writes
// docs/suites.md from what they report. It fails if a test fails that the file known does not list.
// It is run from the top of the repository: go run ./testdata/suites [SUITE[/UNIT]...]
// Given suites, it replaces their rows alone; given units, none.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	sources = "testdata/suites"
	report  = "docs/suites.md"
	// atOnce is how many nodes run at a time: units mostly wait, and fail if the machine is busy.
	atOnce = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if filepath.Base(os.Args[0]) == standInName {
		err = runStandIn(os.Args[1:])
	} else {
		err = run(ctx, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// suite is a test suite that is fetched from a registry.
type suite struct {
	name string
	// fetch puts the suite into dir and returns its version and the units that run by themselves.
	fetch func(ctx context.Context, dir string) (version string, units []string, err error)
	// test runs a unit against the server.
	test func(ctx context.Context, dir, unit string, s server) ([]outcome, error)
	// startsServers is set if the suite starts redis-server itself. Then server has no port.
	startsServers bool
	flags         []string // of the nodes
	// targets are the kinds of server to test; nil: all.
	targets []target
}

// server is what a suite runs against.
type server struct {
	port string
	env  []string // environment of the suite
}

var suites = []suite{redisSuite, goRedisSuite, redisRateSuite, redislockSuite, redsyncSuite,
	redigoSuite, radixSuite, rueidisSuite, rueidiscompatSuite, asynqSuite, asynqRDBSuite,
	miniredisSuite, hiredisSuite, phpredisSuite}

// outcome is what a suite reports of one test.
type outcome struct {
	Test    string
	Failure string // empty if it passed
	Skipped bool
}

// result holds the outcomes of one suite on one kind of server.
type result struct {
	suite, version, target string
	outcomes               []outcome
}

func run(ctx context.Context, only []string) error {
	file := filepath.Join(sources, "known")
	if _, err := readKnown(file); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "coordd-suites")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "coordd")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/coordd")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building coordd: %w", err)
	}
	var all []result
	for _, s := range suites {
		if !named(only, s.name, "") {
			continue
		}
		results, err := s.run(ctx, filepath.Join(dir, s.name), binary, only)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, results...)
	}
	// Read again: reasons may have been added meanwhile.
	known, err := readKnown(file)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		return err
	}
	if !slices.ContainsFunc(only, func(arg string) bool { return strings.Contains(arg, "/") }) {
		err = writeReport(all, known)
	}
	return errors.Join(err, known.check(all))
}

// named reports whether the arguments name a unit of a suite, or the suite if unit is empty.
func named(only []string, suite, unit string) bool {
	if len(only) == 0 {
		return true
	}
	return slices.ContainsFunc(only, func(arg string) bool {
		s, u, _ := strings.Cut(arg, "/")
		return s == suite && (u == "" || unit == "" || u == unit)
	})
}

// run fetches a suite and runs its units, each on servers of its own.
func (s suite) run(ctx context.Context, dir, binary string, only []string) ([]result, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	version, names, err := s.fetch(ctx, dir)
	if err != nil {
		return nil, err
	}
	var results []result
	targets := s.targets
	if targets == nil {
		targets = []target{oneNode, follower}
	}
	for _, t := range targets {
		slots := make(chan struct{}, atOnce/t.nodes)
		var mu sync.Mutex
		var units sync.WaitGroup
		r := result{suite: s.name, version: version, target: t.name}
		for _, unit := range names {
			if !named(only, s.name, unit) {
				continue
			}
			slots <- struct{}{}
			units.Go(func() {
				defer func() { <-slots }()
				of := s.runUnit(ctx, dir, unit, binary, t)
				mu.Lock()
				defer mu.Unlock()
				r.outcomes = append(r.outcomes, of...)
			})
		}
		units.Wait()
		if passed, failed, _ := count(r.outcomes); passed+failed == 0 {
			r.outcomes = append(r.outcomes, outcome{Test: "(whole)", Failure: "nothing ran"})
		}
		slices.SortStableFunc(r.outcomes, func(a, b outcome) int {
			return cmp.Compare(a.Test, b.Test)
		})
		results = append(results, r)
	}
	return results, nil
}

// runUnit runs a unit on a server of its own. That it could not, or did not end, is a failure.
func (s suite) runUnit(ctx context.Context, dir, unit, binary string, t target) []outcome {
	ctx, cancel := context.WithTimeout(ctx, unitLimit)
	defer cancel()
	begin := time.Now()
	outcomes, err := func() ([]outcome, error) {
		if s.startsServers {
			env, err := standIn(dir, binary, t)
			if err != nil {
				return nil, err
			}
			return s.test(ctx, dir, unit, server{env: env})
		}
		served, stop, err := t.start(ctx, binary, dir, s.flags...)
		defer stop()
		if err != nil {
			return nil, err
		}
		outcomes, err := s.test(ctx, dir, unit, server{served.port(), os.Environ()})
		return outcomes, err
	}()
	if err = cmp.Or(ctx.Err(), err); err != nil {
		outcomes = append(outcomes, outcome{Test: unit + ": (whole)", Failure: err.Error()})
	}
	passed, failed, _ := count(outcomes)
	fmt.Printf("%-10s %-14s %-24s %4d passed, %4d failed, %s\n", s.name, t.name, unit, passed,
		failed, time.Since(begin).Round(time.Second))
	return outcomes
}

// count counts outcomes.
func count(outcomes []outcome) (passed, failed, skipped int) {
	for _, o := range outcomes {
		switch {
		case o.Skipped:
			skipped++
		case o.Failure != "":
			failed++
		default:
			passed++
		}
	}
	return passed, failed, skipped
}
