// Which operations are tried, what is reported, and what remains of a failure.

package crashpoints

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/coordd/coordd/internal/tests/crashdisk"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// Variables of the environment.
const (
	// pointsVariable is how many operations of each scenario are tried, by chance, or all of them.
	// Without it, a sample is tried that is the same each time: who changes something else must not
	// meet a fault of long ago. It has a crash and an error of each scenario in make check, of two
	// in make test.
	pointsVariable = "COORDD_CRASHPOINTS"
	// pointVariable is one operation with an outcome or an error: 123 torn.
	pointVariable = "COORDD_CRASHPOINT"
)

// sampleSeed chooses the sample.
const sampleSeed = 1

// point is an operation, and what happens there: a crash with an outcome, or an error.
type point struct {
	n       int
	outcome crashdisk.Outcome // empty: an error
	errno   syscall.Errno
	lasting bool // of the error: from the operation on, for the rest of the life
}

// String names a point, as COORDD_CRASHPOINT has it.
func (p point) String() string { return fmt.Sprint(p.n, " ", p.what()) }

func (p point) what() string {
	if p.outcome != "" {
		return string(p.outcome)
	}
	for name, errno := range errnos {
		if errno == p.errno && p.lasting {
			return name + lastingSuffix
		} else if errno == p.errno {
			return name
		}
	}
	return p.errno.Error()
}

// lastingSuffix follows the name of an error that lasts.
const lastingSuffix = "+"

// errnos are the errors that operations return, by their names.
var errnos = map[string]syscall.Errno{"EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC,
	"EMFILE": syscall.EMFILE}

// plan makes the disk fail at the point.
func (p point) plan(d *crashdisk.Disk) {
	if p.outcome != "" {
		d.CrashAt(p.n)
	} else {
		d.FailAt(p.n, p.errno, p.lasting)
	}
}

// count is what became of the points of a scenario.
type count struct {
	whats map[string]int // by outcome or error
	kinds map[string]int // by operation
	most  int            // operations in the scenario
	ends  map[string]int // sentences with which nodes ended
}

var counts []*count

func newCount() *count {
	c := &count{whats: map[string]int{}, kinds: map[string]int{}, ends: map[string]int{}}
	counts = append(counts, c)
	return c
}

// try is one scenario with the means to try points of it.
type try struct {
	t     *testing.T
	seed  uint64
	count *count
	whats []string // outcomes and errors to try
	// run tries a point, and reports the operation that was hit; its N is 0 if the scenario ended
	// before
	run func(p point, rnd *rand.Rand) (crashdisk.Op, error)
	// evidence copies what a failure leaves to a directory
	evidence func(dir string) error
}

// all tries the points that the environment asks for.
func (y *try) all() {
	if text := os.Getenv(pointVariable); text != "" {
		number, what, _ := strings.Cut(text, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			y.t.Fatal(pointVariable, ": ", err)
		}
		y.one(n, what)
		return
	}
	switch text := os.Getenv(pointsVariable); text {
	case "all":
		for _, what := range y.whats {
			for n := 1; y.one(n, what); n++ {
			}
		}
	case "":
		y.some(1)
	default:
		n, err := strconv.Atoi(text)
		if err != nil {
			y.t.Fatal(pointsVariable, ": ", err)
		}
		y.some(n)
	}
}

// some tries points by chance, so many for each outcome or error; one: for one of these.
func (y *try) some(each int) {
	rnd := y.random("points")
	if y.count.most == 0 {
		const beyond = 1 << 30
		y.one(beyond, y.whats[0]) // counts the operations
	}
	whats := y.whats
	if each == 1 {
		whats = []string{whats[rnd.IntN(len(whats))]}
	}
	for _, what := range whats {
		for _, n := range rnd.Perm(y.count.most)[:min(each, y.count.most)] {
			y.one(n+1, what)
		}
	}
}

// one tries a point and reports whether the scenario reached it. A failure ends the test.
func (y *try) one(n int, what string) bool {
	p := point{n: n, outcome: crashdisk.Outcome(what)}
	name, lasting := strings.CutSuffix(what, lastingSuffix)
	if errno, ok := errnos[name]; ok {
		p.outcome, p.errno, p.lasting = "", errno, lasting
	}
	hit, err := y.run(p, y.random(p.String()))
	if err != nil {
		y.keep(p, hit, err)
	}
	if hit.N == 0 {
		return false
	}
	y.count.whats[what]++
	y.count.kinds[hit.Kind]++
	return true
}

// random returns a source for a purpose, which depends on the seed alone.
func (y *try) random(purpose string) *rand.Rand {
	h := fnv.New64()
	_, _ = h.Write([]byte(y.t.Name() + purpose))
	return rand.New(rand.NewPCG(y.seed, h.Sum64()))
}

// keep copies the evidence of a failure, says how to repeat it, and ends the test.
func (y *try) keep(p point, hit crashdisk.Op, err error) {
	y.t.Helper()
	dir, e := os.MkdirTemp("", "coordd-crashpoint-")
	if e == nil {
		e = y.evidence(dir)
	}
	name := strings.ReplaceAll(y.t.Name(), "/", "$/^")
	y.t.Fatalf("%s, at operation %s: %v\nkept in %s (%v); to repeat it:\n"+
		"%s=%d %s='%s' go test ./internal/tests/crashpoints -count 1 -run '^%s$'", p, hit, err, dir,
		e, seeds.Variable, y.seed, pointVariable, p, name)
}

// ended counts a node that ended with a sentence.
func (c *count) ended(says string) { c.ends[digits.Replace(says)]++ }

// digits makes sentences that differ by numbers equal.
var digits = strings.NewReplacer("0", "", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "",
	"7", "", "8", "", "9", "")

// report prints the counts.
func (c *count) report(t *testing.T) {
	t.Logf("%d operations; tried %s; at %s", c.most, words(c.whats), words(c.kinds))
	for _, says := range slices.Sorted(maps.Keys(c.ends)) {
		t.Logf("    %d ended: %s", c.ends[says], says)
	}
}

// reportAll prints the sums over all scenarios.
func reportAll(t *testing.T) {
	whats, kinds, points := map[string]int{}, map[string]int{}, 0
	for _, c := range counts {
		for what, n := range c.whats {
			whats[what] += n
			points += n
		}
		for kind, n := range c.kinds {
			kinds[kind] += n
		}
	}
	t.Logf("%d points: %s; at %s", points, words(whats), words(kinds))
}

func words(counts map[string]int) string {
	var text []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		text = append(text, fmt.Sprint(name, " ", counts[name]))
	}
	return strings.Join(text, ", ")
}

// writeLogs writes the outputs of nodes as evidence.
func writeLogs(dir string, nodes ...*node) error {
	var errs []error
	for _, n := range nodes {
		path := filepath.Join(dir, n.id+".log")
		errs = append(errs, os.WriteFile(path, []byte(n.log.String()), 0o600),
			os.WriteFile(path+".before", []byte(n.old.String()), 0o600))
	}
	return errors.Join(errs...)
}
