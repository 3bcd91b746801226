// The simulations of one process, under the changed runtime: a range of seeds, a seed again and
// again, or a schedule. TestSimulations starts it.

package sim

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/invariant"
)

var (
	firstSeed    = flag.Uint64("sim.seed", 1, "the first seed")
	seedCount    = flag.Uint64("sim.seeds", 1, "how many seeds, one after another")
	period       = flag.Duration("sim.for", 0, "begin no seed after that time; 0: run all")
	repeats      = flag.Int("sim.repeats", 1, "how often each seed runs, to compare the histories")
	scheduleFile = flag.String("sim.schedule", "", "run the schedule in this file instead")
	firstOnly    = flag.Bool("sim.first", false, "end at the first seed that fails, as it is")
	verbose      = flag.Bool("sim.log", false, "print what nodes log, and all operations")
)

func TestMain(m *testing.M) {
	flag.Parse()
	invariant.Ends = func(name string) bool {
		return name != "snapshots-read-back" // which faults of the disk break
	}
	if patched {
		runtime.GOMAXPROCS(1)
		runtime.MemProfileRate = 0 // sampling draws random numbers
		debug.SetGCPercent(-1)     // see run
		debug.SetMemoryLimit(2 << 30)
	}
	os.Exit(m.Run())
}

// attempts is how often a schedule is tried: it need not fail each time.
const attempts = 3

func TestWorker(t *testing.T) {
	if !patched {
		t.Skip("TestSimulations runs it")
	}
	if *scheduleFile != "" {
		runFile(t)
		return
	}
	began := time.Now()
	var all result
	done := 0
	for seed := *firstSeed; seed-*firstSeed < *seedCount; seed++ {
		if *period > 0 && time.Since(began) > *period {
			break
		}
		fmt.Printf("seed %d\n", seed)
		sc := newSchedule(seed)
		r := run(t, sc, logging(os.Stdout))
		done++
		all.operations += r.operations
		all.answered += r.answered
		all.undecided += r.undecided
		all.simulated += r.simulated
		if len(r.violations) > 0 {
			t.Fail()
			fmt.Printf("%s\nseed %d failed\n", r, seed) // at once: the process may be ended
			if *firstOnly {
				return
			}
			fmt.Printf("a shorter schedule that fails:\n%s", shrink(t, sc))
		}
		if *repeats > 1 {
			compareRuns(t, sc)
		}
	}
	fmt.Printf("simulated %d seeds, %d operations, %d answered, %d keys undecided, %v in %v\n",
		done, all.operations, all.answered, all.undecided, all.simulated.Round(time.Second),
		time.Since(began).Round(time.Millisecond))
}

func logging(to *os.File) func(*simulation) {
	return func(s *simulation) {
		if *verbose {
			s.log = to
		}
	}
}

// runFile runs a schedule that was written down.
func runFile(t *testing.T) {
	text, err := os.ReadFile(*scheduleFile)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := parseSchedule(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for i := range *repeats {
		if r := run(t, sc, logging(os.Stdout)); len(r.violations) > 0 {
			t.Fatalf("run %d:\n%s", i, r)
		}
	}
}

// compareRuns runs a schedule again and again, and prints how far the histories are equal.
func compareRuns(t *testing.T, sc *schedule) {
	var first []byte
	same, common := 0, 0
	for i := range *repeats {
		var log bytes.Buffer
		run(t, sc, func(s *simulation) { s.log = &log })
		switch b := log.Bytes(); {
		case i == 0:
			first = b
		case bytes.Equal(first, b):
			same++
			common += len(first)
		default:
			for n := range min(len(first), len(b)) {
				if first[n] != b[n] {
					common += n
					break
				}
			}
		}
	}
	fmt.Printf("seed %d: %d of %d runs have the log of the first; on average they share the first "+
		"%d of %d bytes\n", sc.seed, same, *repeats-1, common/(*repeats-1), len(first))
}

// shrinkTime bounds the search for a shorter schedule.
const shrinkTime = 3 * time.Minute

// shrink looks for a short schedule that still fails: it leaves out ever smaller parts. Each try
// has a process of its own: what earlier simulations left in this one changes the next.
func shrink(t *testing.T, sc *schedule) *schedule {
	began := time.Now()
	file := filepath.Join(t.TempDir(), "schedule")
	fails := func(events []event) bool {
		try := *sc
		try.events = events
		if err := os.WriteFile(file, []byte(try.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		for range attempts {
			fmt.Printf("seed %d with %d of %d events\n", sc.seed, len(events), len(sc.events))
			ctx, stop := context.WithTimeout(t.Context(), stuckAfter/2)
			err := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestWorker$",
				"-sim.schedule", file).Run()
			stop()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				return true
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return false
	}
	best := sc.events
	for size := len(best) / 2; size > 0 && time.Since(began) < shrinkTime; {
		shorter := false
		for from := 0; from < len(best) && time.Since(began) < shrinkTime; {
			to := min(from+size, len(best))
			rest := append(append([]event{}, best[:from]...), best[to:]...)
			if fails(rest) {
				best, shorter = rest, true
			} else {
				from = to
			}
		}
		if !shorter || size > len(best) {
			size /= 2
		}
	}
	short := *sc
	short.events = best
	return &short
}

// TestScheduleAsText writes schedules and reads them again.
func TestScheduleAsText(t *testing.T) {
	for seed := range uint64(50) {
		text := newSchedule(seed).String()
		sc, err := parseSchedule(text)
		if err != nil || sc.String() != text {
			t.Fatalf("seed %d: %v:\n%s\n%s", seed, err, text, sc)
		}
	}
	if _, err := parseSchedule(strings.Repeat("x\n", 3)); err == nil {
		t.Error("nonsense is a schedule")
	}
}
