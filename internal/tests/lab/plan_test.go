//go:build linux

// Which runs there are.

package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	workloadsARun = 6
	// defaultRuns are so many that each fault and each workload takes part.
	defaultRuns = 14
	defaultLoad = 8 * time.Second
)

// plan is what a run does.
type plan struct {
	number    int
	seed      uint64
	faults    [2]string
	variants  [2]variant
	kind      kind
	workloads []workload
	lasts     time.Duration // the clients, without what faults need to end
	apart     bool          // nodes have networks and disks of their own
	tls       bool
}

func (p *plan) needs(n need) bool {
	return (p.variants[0].needs|p.variants[1].needs)&n != 0
}

func (p *plan) String() string {
	var names []string
	for _, w := range p.workloads {
		names = append(names, w.name)
	}
	return fmt.Sprintf("%s + %s; clients: %s; %s", p.variants[0].name, p.variants[1].name,
		p.kind.name, strings.Join(names, ", "))
}

// numberOf returns a number of the environment.
func numberOf(t *testing.T, name string, otherwise int) int {
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// pairsOf returns all pairs of n in rounds. In each round every one is in one pair, but for one of
// them if n is odd.
func pairsOf(n int) (pairs [][2]int) {
	m := n + n%2 // with one who rests
	for r := range m - 1 {
		for k := range m / 2 {
			a, b := (r+k)%(m-1), (r-k+m-1)%(m-1)
			if k == 0 {
				b = m - 1
			}
			if a < n && b < n {
				pairs = append(pairs, [2]int{a, b})
			}
		}
	}
	return pairs
}

// chosen returns the pairs of faults that COORDD_CHAOS_FAULT selects, with their variants: those
// with its words in a name, or, if there is a plus, with the words before it in the name of one and
// those after it in that of the other.
func chosen(rnd *rand.Rand) (pairs [][2]fault) {
	one, other, _ := strings.Cut(os.Getenv("COORDD_CHAOS_FAULT"), "+")
	one, other = strings.TrimSpace(one), strings.TrimSpace(other)
	order := rnd.Perm(len(faults))
	for _, pair := range pairsOf(len(faults)) {
		a, b := faults[order[pair[0]]], faults[order[pair[1]]]
		if !a.matches(one) || !b.matches(other) {
			a, b = b, a
		}
		if a.matches(one) && b.matches(other) {
			a.variants, b.variants = a.choose(one), b.choose(other)
			pairs = append(pairs, [2]fault{a, b})
		}
	}
	return pairs
}

// deck deals cards in a random order, all of them before one comes again.
type deck[T any] struct {
	rnd   *rand.Rand
	cards []T
	left  []T
}

// deal returns the next card that fits.
func (d *deck[T]) deal(fits func(T) bool) T {
	for {
		i := slices.IndexFunc(d.left, fits)
		if i >= 0 {
			card := d.left[i]
			d.left = slices.Delete(d.left, i, i+1)
			return card
		}
		more := slices.Clone(d.cards)
		d.rnd.Shuffle(len(more), func(i, j int) { more[i], more[j] = more[j], more[i] })
		d.left = append(d.left, more...)
	}
}

// named returns those of all whose names a variable of the environment lists, all without it.
func named[T any](t *testing.T, variable string, all []T, name func(T) string) []T {
	s := os.Getenv(variable)
	if s == "" {
		return all
	}
	var some []T
	for _, word := range strings.Split(s, ",") {
		i := slices.IndexFunc(all, func(v T) bool { return name(v) == strings.TrimSpace(word) })
		if i < 0 {
			t.Fatalf("%s: there is no %q", variable, word)
		}
		some = append(some, all[i])
	}
	return some
}

// plans draws runs from a seed. skipped has the reasons why faults are left out.
func plans(t *testing.T, seed uint64, runs int) (all []*plan, skipped map[string]string) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	skipped = map[string]string{}
	can := named(t, "COORDD_LAB_WORKLOADS", workloads, func(w workload) string { return w.name })
	work := deck[workload]{rnd: rnd, cards: can}
	clients := deck[kind]{rnd: rnd,
		cards: named(t, "COORDD_LAB_CLIENTS", kinds, func(k kind) string { return k.name })}
	pairs := chosen(rnd)
	if len(pairs) == 0 {
		t.Fatal("COORDD_CHAOS_FAULT names no pair of faults")
	}
	for i := 0; len(all) < runs && i < runs*len(pairs); i++ {
		p := &plan{number: len(all) + 1, seed: rnd.Uint64(),
			lasts: time.Duration(numberOf(t, "COORDD_LAB_SECONDS",
				int(defaultLoad.Seconds()))) * time.Second}
		for j, f := range pairs[i%len(pairs)] {
			p.faults[j], p.variants[j] = f.name, f.variants[rnd.IntN(len(f.variants))]
			if why := p.variants[j].needs.missing(); why != "" {
				skipped[f.name] = why
			}
		}
		if skipped[p.faults[0]] != "" || skipped[p.faults[1]] != "" ||
			p.needs(oldRelease) && p.needs(secured) || // release 0.1 has no TLS
			p.variants[0].needs&p.variants[1].needs&minority != 0 {
			continue
		}
		p.kind = clients.deal(func(k kind) bool { return true })
		if p.kind.tls && p.needs(oldRelease) {
			p.kind = kinds[0]
		}
		p.apart = missingNetwork() == ""
		p.tls = p.kind.tls || p.needs(secured) || p.seed%2 == 1 && !p.needs(oldRelease)
		fits := func(w workload) bool { return !w.newer || !p.needs(oldRelease) }
		fitting := slices.DeleteFunc(slices.Clone(can), func(w workload) bool { return !fits(w) })
		if len(fitting) == 0 {
			continue
		}
		for range min(workloadsARun, len(fitting)) {
			p.workloads = append(p.workloads, work.deal(func(w workload) bool {
				return fits(w) && !slices.ContainsFunc(p.workloads, func(o workload) bool {
					return o.name == w.name
				})
			}))
		}
		all = append(all, p)
	}
	return all, skipped
}
