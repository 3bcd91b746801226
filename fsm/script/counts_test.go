// What scripts and libraries count is a function of the state: not of how a node came to have them,
// nor of its processor.

package script

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/libm"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// platformPower returns a power that package math rounds otherwise than package libm, and what that
// is rounded correctly.
func platformPower(g *rand.Rand) (power string, rounded float64) {
	for {
		x, y := float64(2+g.IntN(1000)), float64(g.IntN(60))+0.5
		z, _ := libm.Pow(x, y)
		if z != math.Pow(x, y) && !math.IsInf(z, 0) {
			return fmt.Sprintf("%v^%v", x, y), z
		}
	}
}

// restoredAt returns an engine that has restored another's state, at its level.
func restoredAt(t *testing.T, e *Engine) *Engine {
	t.Helper()
	restored := NewEngine(e.table)
	restored.SetLevel(e.level)
	if err := restored.Restore(e.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return restored
}

// atLevel does a call on a node at the level of its engine, and fails if that fails.
func (n *node) atLevel(t *testing.T, words ...string) {
	t.Helper()
	n.level = n.engine.level
	raw, err := n.Do(commandtest.Args(words...))
	if err != nil || raw[0] == '-' {
		t.Fatalf("%q: %q %v", words, raw, err)
	}
}

// Nodes that ran scripts at any level, that were restored, and that were restored before the level
// rose count the same. Constant powers have two values, by level.
func TestRestoredEnginesCountAlike(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 1))
	powers := func() string {
		list := make([]string, 1+g.IntN(20))
		for i := range list {
			list[i], _ = platformPower(g)
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	for _, level := range []uint64{commands.LevelFirst, commands.LevelSecond} {
		n := newNode()
		n.engine.SetLevel(level)
		for i := range 5 {
			n.atLevel(t, "EVAL", "return "+powers(), "0")
			n.atLevel(t, "SCRIPT", "LOAD", "return "+powers())
			n.atLevel(t, "FUNCTION", "LOAD", fmt.Sprintf("#!lua name=l%d\nlocal t = %s "+
				"redis.register_function('f%d', function() return #t + #%s end)", i, powers(), i,
				powers()))
		}
		n.atLevel(t, "EVAL", "return 1", "0")
		before := restoredAt(t, n.engine)
		for _, e := range []*Engine{n.engine, before} {
			e.SetLevel(commands.FeatureLevel)
		}
		for name, e := range map[string]*Engine{"restored": restoredAt(t, n.engine),
			"restored before the level rose": before} {
			if got, want := e.Counts(), n.engine.Counts(); got != want || e.Size() !=
				n.engine.Size() || e.loadedBytes != n.engine.loadedBytes {
				t.Errorf("level %d: %s: %d, want %d", level, name, got, want)
			}
			for _, s := range n.engine.bySHA {
				if r := e.bySHA[s.sha]; r == nil || r.size() != s.size() {
					t.Errorf("level %d: %s: another size of %s", level, name, s.source)
				}
			}
		}
	}
}

// What a library counts that runs at earlier levels alone is that of the functions of package libm:
// those of package math have last bits of the processor.
func TestOlderLibrariesCountWithoutTheProcessor(t *testing.T) {
	power, rounded := platformPower(rand.New(rand.NewPCG(seeds.Of(t), 1)))
	base, exponent, _ := strings.Cut(power, "^")
	// the length of such a table is another one at LevelSecond
	const older = "local u = {1} u[7] = 1 if #u ~= 7 then u = nil + 1 end "
	load := func(code string) *library {
		n := newNode()
		n.engine.SetLevel(commands.LevelFirst)
		n.atLevel(t, "FUNCTION", "LOAD", "#!lua name=l\n"+older+code+
			" redis.register_function('f', function() return 1 end)")
		n.engine.SetLevel(commands.LevelSecond)
		restored := restoredAt(t, n.engine)
		if n.engine.Counts() != restored.Counts() {
			t.Errorf("%s: %d, restored %d", code, n.engine.Counts(), restored.Counts())
		}
		return n.engine.libraries.list[0]
	}
	const loop = "local x, y, z = %s, %s, %.17g if %s ~= z then for i = 1, 5000 do end end"
	for _, term := range []string{"x^y", power} {
		l := load(fmt.Sprintf(loop, base, exponent, rounded, term))
		if l.cost > 5000 {
			t.Errorf("%s costs %d: it is not rounded", term, l.cost)
		}
	}
}
