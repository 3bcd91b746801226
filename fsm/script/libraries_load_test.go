// A library's code runs once, and no call of its functions can notice that.

package script

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// libraryEngine returns an engine with a library that is costly to load.
func libraryEngine(t *testing.T, code string) *Engine {
	t.Helper()
	e := NewEngine(testTable())
	x := newestCall()
	x.Level = commands.LevelFirst // the cost of loading is irrelevant here
	source := "#!lua name=lib\nfor i = 1, 10000 do local x = i end\n" + code
	if _, err := e.LoadLibrary(x, []byte(source), false); err != nil {
		t.Fatal(err)
	}
	return e
}

// callFunction calls function f and returns its reply and its work.
func callFunction(t *testing.T, e *Engine) (reply string, work uint64) {
	t.Helper()
	return callNamed(t, e, "f")
}

func callNamed(t *testing.T, e *Engine, name string) (reply string, work uint64) {
	t.Helper()
	out := &commands.RESP{Proto: 2}
	x := newestCall()
	x.Out, x.Scripts, x.Keyspace, x.Args = out, e, keyspace.New(),
		commandtest.Args("FCALL", name, "0")
	runCall(e.table, x)
	return string(out.Buf), x.Work
}

func TestLibrariesRunOnce(t *testing.T) {
	for _, c := range []struct {
		code string
		kept bool
	}{
		{`redis.register_function('f', function() return 1 end)`, true},
		{`local a, t = 7, {1, 2, x = {3}} local function g() return a + t.x[1] end redis.register_function('f', function() return g() + #t end)`, true},
		{`local s = ("x"):rep(3) redis.register_function('f', function() local n = 0 local function up() n = n + 1 end up() return n + #s end)`, true},
		{`local n = 0 redis.register_function('f', function() n = n + 1 return n end)`, false},
		{`local n = 0 local function g() n = n + 1 end redis.register_function('f', function() pcall(g) return n end)`, false},
		{`local t = {} redis.register_function('f', function() t.x = (t.x or 0) + 1 return t.x end)`, false},
		{`local t = {a = {}} redis.register_function('f', function() local u = t.a u[#u + 1] = 1 return #u end)`, false},
		{`local t = {} redis.register_function('f', function() table.insert(t, 1) return #t end)`,
			false},
		{`local t = {1, 2} redis.register_function('f', function() table.remove(t) return #t end)`,
			false},
		{`local t = {2, 1} redis.register_function('f', function() table.sort(t) return t[1] * 10 + t[2] end)`, false},
		{`local t = {} redis.register_function('f', function() rawset(t, #t + 1, 1) return #t end)`,
			false},
		{`local t = {} redis.register_function('f', function() local old = getmetatable(t) setmetatable(t, {}) return old and 1 or 0 end)`, false},
		{`local t = {} redis.register_function('f', function() local ok = pcall(function() t[1] = 1 error('x') end) return #t end)`, false},
		{`local n = 0 redis.register_function('f', function() n = n + 1 error('x' .. n) end)`,
			false},
		{`local k redis.register_function('f', function(keys) local old = k k = keys old = old or keys old[1] = 1 return #old + (old == keys and 0 or 5) end)`, false},
		{`local g = ("a b c"):gmatch("%a") redis.register_function('f', function() return g() end)`,
			false},
	} {
		e := libraryEngine(t, c.code)
		first, work := callFunction(t, e)
		l := e.writer.libraries
		if c.kept != (len(l) == 1) {
			t.Errorf("%s: kept: %v, want %v", c.code, len(l) == 1, c.kept)
		}
		for range 3 {
			if again, w := callFunction(t, e); again != first || w != work {
				t.Errorf("%s: %q with work %d, then %q with work %d", c.code, first, work, again, w)
			}
		}
		if c.kept && (len(e.writer.libraries) != 1 || e.writer.libraries[0] != l[0]) {
			t.Errorf("%s: the library was loaded again", c.code)
		}
		if least := uint64(e.libraries.list[0].cost); c.kept && work > least/2 || !c.kept &&
			work < least {
			t.Errorf("%s: work %d, loading takes %d", c.code, work, least)
		}
		restored := NewEngine(e.table)
		if err := restored.Restore(e.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if other, w := callFunction(t, restored); other != first || w != work {
			t.Errorf("%s: %q with work %d, on a restored node %q with work %d", c.code,
				first, work, other, w)
		}
	}
}

// An interpreter drops replaced libraries and those past the limit.
func TestKeptLibrariesAreBounded(t *testing.T) {
	e := NewEngine(testTable())
	x := newestCall()
	x.Level = commands.LevelFirst
	for i := range maxKeptLibraries + 1 {
		source := fmt.Sprintf(
			"#!lua name=l%d\nredis.register_function('f%d', function() return %d end)", i, i, i)
		if _, err := e.LoadLibrary(x, []byte(source), false); err != nil {
			t.Fatal(err)
		}
		callNamed(t, e, fmt.Sprintf("f%d", i))
		if n := len(e.writer.libraries); n > maxKeptLibraries {
			t.Fatalf("%d libraries are kept", n)
		}
	}
	for i := range 2 {
		code := fmt.Sprintf(
			"#!lua name=same\nredis.register_function('f', function() return %d end)", i)
		if _, err := e.LoadLibrary(x, []byte(code), true); err != nil {
			t.Fatal(err)
		}
		if got, _ := callFunction(t, e); got != fmt.Sprintf(":%d\r\n", i) {
			t.Errorf("%q after version %d was loaded", got, i)
		}
	}
	wide := `local t = {} for i = 1, 100000 do t[i] = i end `
	for i := range 8 {
		source := fmt.Sprintf(
			"#!lua name=w%d\n%sredis.register_function('w%d', function() return #t end)", i, wide,
			i)
		source = strings.ReplaceAll(source, "100000", "60000")
		if _, err := e.LoadLibrary(x, []byte(source), false); err != nil {
			t.Fatal(err)
		}
		callNamed(t, e, fmt.Sprintf("w%d", i))
		kept := int64(0)
		for _, l := range e.writer.libraries {
			kept += l.bytes
		}
		if kept > maxKeptLibraryBytes {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
}

// If there are more libraries than are kept, calls of those past the limit pay for running their
// code, and the others stay: calling all in turn does not reload them each time without being
// charged.
func TestLibrariesPastTheLimitPay(t *testing.T) {
	const past = maxKeptLibraries
	e := NewEngine(testTable())
	x := newestCall()
	x.Level = commands.LevelFirst
	for i := range past + 1 {
		source := fmt.Sprintf(
			"#!lua name=l%03d\nfor i = 1, 10000 do end redis.register_function('f%d', function() "+
				"end)", i, i)
		if _, err := e.LoadLibrary(x, []byte(source), false); err != nil {
			t.Fatal(err)
		}
	}
	var first []*loadedLibrary
	for range 3 {
		for i, l := range e.libraries.list {
			_, work := callNamed(t, e, fmt.Sprintf("f%d", i))
			if pays := work >= uint64(l.cost); pays != (i == past) {
				t.Errorf("library %d: work %d, loading takes %d", i, work, l.cost)
			}
		}
		if first == nil {
			first = slices.Clone(e.writer.libraries)
		}
		if !slices.Equal(first, e.writer.libraries) {
			t.Errorf("libraries were loaded again")
		}
	}
	if !e.DeleteLibrary(x, []byte("l000")) {
		t.Fatal("l000 is gone")
	}
	callNamed(t, e, fmt.Sprintf("f%d", past))
	if _, work := callNamed(t, e, fmt.Sprintf("f%d",
		past)); work >= uint64(e.libraries.list[0].cost) {
		t.Errorf("work %d for a library that has room now", work)
	}
}

// What loading libraries takes is the same on a node that loaded them at a lower level, and on one
// that restores them. Calls of one whose code fails now pay for running it.
func TestLevelsCountLibrariesAlike(t *testing.T) {
	const loops = "#!lua name=%s\nlocal t = {} for i = 1, 2000 do t['k' .. i] = 1 end " +
		"local function f(...) local a, b, c, d, e, f, g, h, i, j = ... end " +
		"for i = 1, 100 do f() end %s " +
		"redis.register_function('%s', function() return #t end)"
	sources := []string{
		fmt.Sprintf(loops, "a", "", "fa"),
		fmt.Sprintf(loops, "b", "t[50000] = 1", "fb"),
		fmt.Sprintf(loops, "c", "local u = {1} u[7] = 1 if #u ~= 7 then u = nil + 1 end", "fc"),
	}
	table := testTable()
	old := NewEngine(table)
	old.SetLevel(commands.LevelFirst)
	for _, source := range sources {
		x := newestCall()
		x.Level = commands.LevelFirst
		if _, err := old.LoadLibrary(x, []byte(source), false); err != nil {
			t.Fatal(err)
		}
	}
	low := old.libraries.list[0].cost
	old.SetLevel(commands.LevelSecond)
	restored := NewEngine(table)
	restored.SetLevel(commands.LevelSecond)
	if err := restored.Restore(old.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	for _, e := range []*Engine{old, restored, old} {
		last := e.libraries.list[2] // its code fails at this level
		reply, work := callNamed(t, e, "fc")
		if want := uint64(loadWork(last.cost, last.bytes)); reply[0] != '-' || work < want {
			t.Errorf("%q, charged %d of %d", reply, work, want)
		}
	}
	for i, l := range old.libraries.list {
		r := restored.libraries.list[i]
		if l.cost != r.cost || l.bytes != r.bytes || l.program.keep != r.program.keep ||
			len(r.Functions) != 1 {
			t.Errorf("%s: raised %d %d, restored %d %d", l.Name, l.cost, l.bytes, r.cost, r.bytes)
		}
	}
	if high := restored.libraries.list[0].cost; high <= low {
		t.Errorf("%d, below LevelSecond %d", high, low)
	}
}

// What a library registers may differ at the level to which the machine rises: it may be nothing,
// or what another library has, or depend on the processor. A node on which the level rises has the
// same as one that restores its snapshot, and what that writes can be read.
func TestRaisedLibrariesAreReadBack(t *testing.T) {
	power, _ := platformPower(rand.New(rand.NewPCG(seeds.Of(t), 1)))
	base, exponent, _ := strings.Cut(power, "^")
	x, _ := strconv.ParseFloat(base, 64)
	y, _ := strconv.ParseFloat(exponent, 64)
	// the length of such a table is another one at LevelSecond
	const older = "local u = {1} u[7] = 1 local old = #u == 7 "
	register := func(name string) string {
		return "redis.register_function(" + name + ", function() return 1 end) "
	}
	for what, c := range map[string]struct {
		libraries []string
		functions string
	}{
		"nothing": {[]string{"if old then " + register("'f'") + "end"}, "f"},
		"the same name": {[]string{register("old and 'f' or 'x'"),
			register("old and 'g' or 'x'")}, "xx"},
		"the name that another had": {[]string{register("old and 'f' or 'g'"),
			register("old and 'g' or 'g'")}, "gg"},
		"by the processor's power": {[]string{fmt.Sprintf(
			"if not old or %s ~= %.17g then u = nil + 1 end ", power, math.Pow(x, y)) +
			register("'f'")}, ""},
	} {
		n := newNode()
		n.engine.SetLevel(commands.LevelFirst)
		for i, code := range c.libraries {
			n.atLevel(t, "FUNCTION", "LOAD", fmt.Sprintf("#!lua name=l%d\n", i)+older+code)
		}
		before := restoredAt(t, n.engine)
		for _, e := range []*Engine{n.engine, before} {
			e.SetLevel(commands.LevelSecond)
		}
		for how, e := range map[string]*Engine{"raised": n.engine,
			"restored": restoredAt(t, n.engine), "restored and raised": before} {
			functions := namesOfFunctions(e)
			if functions != c.functions || e.Counts() != n.engine.Counts() ||
				e.LibraryCount() != len(c.libraries) {
				t.Errorf("%s, %s: functions %q, want %q; %d, want %d", what, how, functions,
					c.functions, e.Counts(), n.engine.Counts())
			}
		}
		// what a library is does not depend on those that were beside it
		n.atLevel(t, "FUNCTION", "DELETE", "l0")
		restored := restoredAt(t, n.engine)
		if a, b := namesOfFunctions(n.engine), namesOfFunctions(restored); a != b ||
			n.engine.Counts() != restored.Counts() {
			t.Errorf("%s, without the first: %q, restored %q; %d, %d", what, a, b,
				n.engine.Counts(), restored.Counts())
		}
		for _, name := range []string{"f", "g", "x"} {
			a := n.engine.HasFunction(commands.LevelSecond, []byte(name))
			if b := restored.HasFunction(commands.LevelSecond, []byte(name)); a != b {
				t.Errorf("%s, without the first: there is %s: %v, restored %v", what, name, a, b)
			}
		}
	}
}

// namesOfFunctions returns the names of all functions.
func namesOfFunctions(e *Engine) (names string) {
	for _, l := range e.Libraries() {
		for _, f := range l.Functions {
			names += f.Name
		}
	}
	return names
}
