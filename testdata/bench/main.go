// Command bench measures coordd beside other servers on this machine: alternating servers, ratios
// within a round, medians of rounds.
//
//	go run . [-rounds 3] [-time 3s] [-only WORDS]         the table of rows.go
//	go run . -full [-rounds 3] [-time 3s] [-only WORDS]   curves: CSV and SVG files
//	go run . -heavy [-time 3s] [-only WORDS]              a light client beside 20 heavy ones
//	go run . -careless [-time 3s] [-only WORDS]           the same beside careless ones
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 3, "how often each row is measured on each server, alternating")
	heavy := flag.Bool("heavy", false,
		"measure what a light client waits for beside 20 heavy ones instead")
	careless := flag.Bool("careless", false,
		"measure what a light client waits for beside careless ones instead")
	full := flag.Bool("full", false, "measure curves instead")
	out := flag.String("out", "../../docs/performance", "with -full: where the curves are written")
	work := flag.Duration("time", 3*time.Second, "how long one measurement of a load lasts")
	only := flag.String("only", "", "only the rows, curves or loads whose names contain this")
	binary := flag.String("coordd", "", "a binary; empty: build one")
	flag.Parse()
	err := withServers(*binary, func(s *servers) error {
		switch {
		case *heavy:
			return heavyTable(s, *only, *work)
		case *careless:
			return carelessTable(s, *only, *work)
		case *full:
			return measureCurves(s, *out, *only, *rounds, *work)
		}
		return table(s, *only, *rounds, *work)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func withServers(binary string, run func(s *servers) error) error {
	s, err := newServers(binary)
	if err != nil {
		return err
	}
	defer s.end()
	return run(s)
}

// table measures the rows, and prints a line for each.
func table(s *servers, only string, rounds int, work time.Duration) error {
	fmt.Printf("Medians of %d rounds of %v each. In brackets: median wait [ms], processor time of "+
		"all\nprocesses of the server per request [µs], and how busy the machine's processors "+
		"were, of 1.\n\n", rounds, work)
	fmt.Printf("%-40s %-8s %32s   %-18s %32s %7s %8s\n", "", "", "coordd", "against", "",
		"ratio", "wanted")
	var failed error
	for _, r := range rows {
		if !strings.Contains(r.name, only) {
			continue
		}
		if err := r.print(s, rounds, work); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
		}
	}
	return failed
}

// print measures a row and prints it.
func (r *row) print(s *servers, rounds int, work time.Duration) error {
	if r.once {
		rounds = 1
	}
	var ours, theirs []outcome
	var ratios []float64
	for i := range rounds {
		measureOurs := func() error { return r.add(&ours, r.ours, s, work) }
		measureTheirs := func() error { return r.add(&theirs, r.theirs, s, work) }
		sides := []func() error{measureTheirs, measureOurs}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, measure := range sides {
			if err := measure(); err != nil {
				return err
			}
		}
		ratio := ours[i].value
		if r.theirs != nil {
			ratio /= theirs[i].value
		}
		ratios = append(ratios, ratio)
	}
	sign := "≥"
	if r.most {
		sign = "≤"
	}
	fmt.Printf("%-40s %-8s %32s   %-18s %32s %7.2f %s %.4g\n", r.name, r.unit, summary(ours),
		r.against, summary(theirs), median(ratios), sign, r.wanted)
	return nil
}

// add measures one side of a row, if there is one.
func (r *row) add(list *[]outcome, m measurement, s *servers, work time.Duration) error {
	if m == nil {
		return nil
	}
	o, err := m(s, work)
	*list = append(*list, o)
	return err
}

// summary shows the medians of outcomes.
func summary(list []outcome) string {
	var values, waits, cpu, busy []float64
	for _, o := range list {
		values = append(values, o.value)
		waits = append(waits, milliseconds(o.wait(0.5)))
		cpu = append(cpu, float64(o.cpu.Nanoseconds())/1000)
		busy = append(busy, o.busy)
	}
	switch {
	case len(list) == 0:
		return ""
	case median(cpu) == 0:
		return fmt.Sprintf("%.5g", median(values))
	case median(busy) == 0: // not measured
		return fmt.Sprintf("%.5g (%.3g, %.3g)", median(values), median(waits), median(cpu))
	}
	return fmt.Sprintf("%.5g (%.3g, %.3g, %.2f)", median(values), median(waits), median(cpu),
		median(busy))
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
