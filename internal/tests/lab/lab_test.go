//go:build linux

package lab

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/tests/binaries"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // it would report every fault
	code := m.Run()
	binaries.Remove()
	os.Exit(code)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// chaos reports whether the slow tests run: make chaos.
func chaos() bool { return os.Getenv("COORDD_CHAOS") != "" }

// TestPairs runs pairs of faults: COORDD_LAB_RUNS of them.
func TestPairs(t *testing.T) {
	if !chaos() {
		t.Skip("run by make chaos")
	}
	seed := seeds.Of(t)
	all, skipped := plans(t, seed, numberOf(t, "COORDD_LAB_RUNS", defaultRuns))
	for name, why := range skipped {
		t.Logf("%s: %s", name, why)
	}
	if len(all) == 0 && len(skipped) == 0 {
		t.Fatal("no such pair of faults can be: release 0.1 has no TLS")
	}
	count, reasons, met := map[outcome]int{}, map[outcome]map[string]int{}, map[string]int{}
	runs := 0
	for _, p := range all {
		t.Run(fmt.Sprint(p.number), func(t *testing.T) {
			r := perform(t, p)
			runs++
			for _, w := range r.works {
				w.addTo(count, reasons)
				met[w.name]++
			}
			met[p.faults[0]]++
			met[p.faults[1]]++
		})
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(met)) {
		names = append(names, fmt.Sprintf("%s %d", name, met[name]))
	}
	t.Logf("%d runs: %d calls acknowledged, %d refused, %d unknown; %v\n  refused:%s\n  unknown:%s",
		runs, count[acked], count[refused], count[unknown], names, list(reasons[refused]),
		list(reasons[unknown]))
}

// TestKillAndPause is a short run on the loopback, with all workloads.
func TestKillAndPause(t *testing.T) {
	tier.Check(t)
	seed := seeds.Of(t)
	p := &plan{number: 1, seed: seed, faults: [2]string{"kill", "pause"},
		variants: [2]variant{kills[seed%2], pauses[1-seed%2]}, kind: kinds[0],
		workloads: workloads, lasts: 5 * time.Second}
	perform(t, p)
}

// TestLocksWithoutFaults is a short run in which nothing fails, of what is judged more strictly
// then.
func TestLocksWithoutFaults(t *testing.T) {
	tier.Check(t)
	p := &plan{number: 1, seed: seeds.Of(t), faults: [2]string{"nothing", "nothing"},
		variants: [2]variant{faults[0].variants[0], faults[0].variants[0]}, kind: kinds[0],
		lasts: time.Duration(numberOf(t, "COORDD_LAB_SECONDS", 4)) * time.Second}
	for _, w := range workloads {
		if slices.Contains([]string{"mutexes", "entered locks", "ranked locks", "permits",
			"readers and writers", "several locks", "attached keys", "leased locks", "repeats",
			"hits"}, w.name) {
			p.workloads = append(p.workloads, w)
		}
	}
	perform(t, p)
}
