package invariant

import (
	"log/slog"
	"math/bits"
	"slices"
	"sync/atomic"
)

// Rule is something that always holds. Rules are package variables.
type Rule struct {
	Name      string
	Holds     string // what
	Otherwise string // what the node does if it does not

	broken atomic.Uint64
}

var (
	rules  []*Rule
	logger atomic.Pointer[slog.Logger]
)

// New declares a rule.
func New(name, holds, otherwise string) *Rule {
	r := &Rule{Name: name, Holds: holds, Otherwise: otherwise}
	rules = append(rules, r)
	return r
}

// All returns the rules that the process looks at, in the order of their names.
func All() []*Rule {
	return slices.SortedFunc(slices.Values(rules), func(a, b *Rule) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
}

// SetLogger sets where rules that do not hold are logged; without it, nowhere.
func SetLogger(l *slog.Logger) { logger.Store(l) }

// Ends says by their names which rules end the process if they do not hold; nil: none. Tests set it
// before anything else runs.
var Ends func(name string) bool

// Times returns how often the rule did not hold since the process started.
func (r *Rule) Times() uint64 { return r.broken.Load() }

// Broken notes that the rule does not hold. args are those of a log line. What happens again and
// again is logged ever less.
func (r *Rule) Broken(args ...any) {
	if Ends != nil && Ends(r.Name) {
		panic(r.Name + " does not hold")
	}
	n := r.broken.Add(1)
	if l := logger.Load(); l != nil && bits.OnesCount64(n) == 1 {
		l.Error("an invariant of coordd does not hold; docs/alerts.md says what to do",
			append([]any{"invariant", r.Name, "times", n}, args...)...)
	}
}
