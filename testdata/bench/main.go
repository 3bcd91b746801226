// Command bench measures coordd beside other servers on this machine: alternating servers, ratios
// within a round, medians of rounds.
//
//	go run . [-rounds 3] [-time 3s] [-only WORDS]         the tables of copies.go and rows.go
//	go run . -copies [-rounds 3] [-time 3s]               the first of them: CSV and SVG files
//	go run . -full [-rounds 3] [-time 3s] [-only WORDS]   curves: CSV and SVG files
//	go run . -tails [-time 3s] [-only WORDS]              waits while something is slow: SVG too
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
	beside := flag.Bool("copies", false,
		"measure only beside servers with as many copies, and draw the results")
	disturbed := flag.Bool("tails", false, "measure waits while something happens instead")
	slow := flag.Bool("slow", false, "measure waits while a node is slow instead; as root")
	out := flag.String("out", "../../docs/performance",
		"with -full, -copies, -tails and -slow: where the files are written")
	work := flag.Duration("time", 3*time.Second, "how long one measurement of a load lasts")
	only := flag.String("only", "", "only the rows, curves or loads whose names contain this")
	binary := flag.String("coordd", "", "a binary; empty: build one")
	flag.Parse()
	var flags []string
	if *slow {
		flags = []string{"-tags", "coordd_tests"}
	}
	err := withServers(*binary, flags, func(s *servers) error {
		switch {
		case *heavy:
			return heavyTable(s, *only, *work)
		case *careless:
			return carelessTable(s, *only, *work)
		case *full:
			return measureCurves(s, *out, *only, *rounds, *work)
		case *disturbed:
			return measureTails(s, *out, *only, *work)
		case *slow:
			return measureSlow(s, *out, *only, *work)
		case *beside:
			return measureCopies(s, *out, *rounds, *work)
		}
		_, err := table(s, slices.Concat(copies, limits), *only, *rounds, *work)
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func withServers(binary string, flags []string, run func(s *servers) error) error {
	s, err := newServers(binary, flags...)
	if err != nil {
		return err
	}
	defer s.end()
	return run(s)
}

// result is what the rounds of a row measured.
type result struct {
	*row
	ours, theirs []outcome
	ratio        float64 // the median
}

// table measures rows whose names contain only, and prints a line for each.
func table(s *servers, rows []row, only string, rounds int,
	work time.Duration) (all []result, failed error) {
	fmt.Printf("Medians of %d rounds of %v each. In brackets: median wait [ms], processor time of "+
		"all\nprocesses of the server per request [µs], and how busy the machine's processors "+
		"were, of 1.\n\n", rounds, work)
	fmt.Printf("%-40s %-8s %32s   %-18s %32s %7s %8s\n", "", "", "coordd", "against", "",
		"ratio", "wanted")
	for i := range rows {
		r := &rows[i]
		if !strings.Contains(r.name, only) {
			continue
		}
		measured, err := r.measure(s, rounds, work)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
			continue
		}
		measured.print()
		all = append(all, measured)
	}
	return all, failed
}

func (r *row) measure(s *servers, rounds int, work time.Duration) (result, error) {
	if r.once {
		rounds = 1
	}
	m := result{row: r}
	var ratios []float64
	for i := range rounds {
		measureOurs := func() error { return r.add(&m.ours, r.ours, s, work) }
		measureTheirs := func() error { return r.add(&m.theirs, r.theirs, s, work) }
		sides := []func() error{measureTheirs, measureOurs}
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, measure := range sides {
			if err := measure(); err != nil {
				return m, err
			}
		}
		ratio := m.ours[i].value
		if r.theirs != nil {
			ratio /= m.theirs[i].value
		}
		ratios = append(ratios, ratio)
	}
	m.ratio = median(ratios)
	return m, nil
}

func (m *result) print() {
	sign := "≥"
	if m.most {
		sign = "≤"
	}
	fmt.Printf("%-40s %-8s %32s   %-18s %32s %7.2f %s %.4g\n", m.name, m.unit, summary(m.ours),
		m.against, summary(m.theirs), m.ratio, sign, m.wanted)
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
		cpu = append(cpu, microseconds(o.cpu))
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

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
