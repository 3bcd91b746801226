// The length of tables with holes, which depends on the sizes that C Lua chooses.

package script

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

func TestLengthsLikeRedis(t *testing.T) {
	redis := startRedis(t)
	g := &historyMaker{Rand: rand.New(rand.NewPCG(seeds.Of(t), 1))}
	histories := 3_000
	if tier.Soaking() {
		histories = 60_000
	}
	const together = 30
	for range histories / together {
		list := make([]string, together)
		for i := range list {
			list[i] = g.history()
		}
		lengths := func(list []string) (redisHas, haveHere string) {
			source := "local log = {} do " + strings.Join(list, " end do ") +
				` end return table.concat(log, " ")`
			return redis.eval(t, source), runWhole(t, redis, source)
		}
		if want, got := lengths(list); got == want {
			continue
		}
		for _, one := range list {
			if want, got := lengths([]string{one}); got != want {
				t.Errorf("%s\n  redis: %s\n   here: %s", one, want, got)
			}
		}
		t.FailNow()
	}
}

// runWhole runs a source here and returns its text.
func runWhole(t *testing.T, r *redisServer, source string) string {
	t.Helper()
	r.here.Begin(boundedState(t, 50_000_000, 1<<30).G.Budget)
	v, err := evalHere(r.here, source)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	return showValue(v)
}

// historyMaker makes what happens to a table.
type historyMaker struct{ *rand.Rand }

// history creates a table and changes it, and notes its length after each change.
func (g *historyMaker) history() string {
	var out strings.Builder
	fmt.Fprintf(&out, "local t = %s log[#log + 1] = #t ", g.constructor())
	span := []int{6, 12, 40, 300}[g.IntN(4)]
	for range 5 + g.IntN(40) {
		fmt.Fprintf(&out, "%s log[#log + 1] = #t ", g.change(span))
	}
	return out.String()
}

func (g *historyMaker) constructor() string {
	parts := make([]string, g.IntN(8))
	for i := range parts {
		parts[i] = g.pick("1", "nil", "2", "nil", "x = 1", "[3] = 1", "[1.5] = 1", "y = 2",
			"z = nil")
	}
	if g.IntN(4) == 0 {
		parts = append(parts, g.pick("unpack({1, 2, 3})", "unpack({1, nil, 3})",
			"unpack({}, 1, 5)"))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

func (g *historyMaker) change(span int) string {
	k := g.IntN(span) + 1
	switch g.IntN(14) {
	case 0, 1, 2:
		return fmt.Sprintf("t[%d] = 1", k)
	case 3, 4:
		return fmt.Sprintf("t[%d] = nil", k)
	case 5:
		return "t[#t + 1] = 1"
	case 6:
		return "t[#t] = nil"
	case 7:
		return fmt.Sprintf("t.%c%d = %s", 'a'+g.IntN(20), g.IntN(9), g.pick("1", "nil"))
	case 8:
		return fmt.Sprintf("t[%s] = %s", g.pick("true", "false", "-1", "0", "2.5", "1e9", "'k'",
			"12345678", "-0.25"), g.pick("1", "nil"))
	case 9:
		return "table.insert(t, 1)"
	case 10:
		return fmt.Sprintf("table.insert(t, %d, 1)", g.IntN(span/2+1)+g.IntN(2))
	case 11:
		return "table.remove(t)"
	case 12:
		return fmt.Sprintf("table.remove(t, %d)", g.IntN(span/2+1))
	}
	return fmt.Sprintf("for i = %d, %d do t[i] = %s end", k, k+g.IntN(20), g.pick("1", "nil", "i"))
}

func (g *historyMaker) pick(from ...string) string { return from[g.IntN(len(from))] }
