//go:build linux

// What a unit of a script's budget buys: the time and the memory of instructions, library functions
// and metamethods, with many operands and on tables of odd shapes, beside those of a plain loop.

package script

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/threadtime"
)

// The most that a snippet may cost a unit: this many times the time of a plain instruction, the
// least of several tries, and this many bytes, garbage included.
const (
	mostFactor = 8
	mostBytes  = 32
	// other work on the machine slows some tries down, and only what is too slow takes more of them
	mostTries  = 15
	keptFactor = 3 // from which make costs keeps a call for later runs
)

// snippet is what is measured: what comes before, and the body of a loop without end, or a value
// that the script returns.
type snippet struct {
	before, body, result string
}

// String returns the snippet as a script.
func (s snippet) String() string {
	if s.body == "" {
		return s.before + " return " + s.result
	}
	return s.before + " while true do " + s.body + " end"
}

// price is what a snippet took a unit.
type price struct{ ns, bytes float64 }

// scale measures snippets beside plain loops.
type scale struct {
	t     testing.TB
	units int64   // budget of a run
	most  float64 // the highest factor; 0: mostFactor
	plain float64
	in    *interpreter
}

// run measures a snippet once, the work of what comes before excluded.
func (s *scale) run(c snippet) price {
	if s.in == nil {
		s.in = newInterpreter(testTable(), true)
	}
	in := s.in
	L := in.L
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	env := &commands.Env{Keyspace: ks, ClockMs: 1, Level: commands.FeatureLevel,
		Emit: func(commands.Event) {}}
	out := &commands.RESP{Proto: 2}
	defer in.clearStack(nil)
	in.begin(lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
	in.x = &commands.Call{Env: env, Tx: &commands.Tx{}, Out: out}
	in.tx = commands.Tx{Proto: 2, Script: true}
	body := "while true do " + c.body + " end"
	if c.body == "" {
		body = "return " + c.result
	}
	f, err := evalHere(L, c.before+" return function(...) "+body+" end")
	if err != nil {
		s.t.Fatalf("%s: %v", c, err)
	}
	*in.budget = lua.Budget{Instructions: s.units, Bytes: scriptBytes}
	L.Push(f)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	from := threadtime.Now()
	failed := L.PCall(0, 1)
	if failed == nil {
		in.answer(in.x, L.Get(-1))
	}
	took := threadtime.Now() - from
	runtime.ReadMemStats(&after)
	units := float64(s.units - max(in.budget.Instructions, 0))
	charged := float64(scriptBytes - max(in.budget.Bytes, 0))
	units = max(units, charged*scriptInstructions/scriptBytes)
	if c.body != "" && in.budget.Spent() == "" {
		s.t.Fatalf("%s\n  ended with %v", c, failed)
	}
	// what a budget exceeds is one operation
	if left := in.budget.Instructions; left < -scriptInstructions/10 {
		s.t.Errorf("%s\n  ended %d units below zero", c, -left)
	}
	return price{float64(took) / units,
		max(0, float64(after.TotalAlloc-before.TotalAlloc)-2*charged) / units}
}

// memoryFactor is what reading memory takes of a plain instruction's time for each unit that == of
// long strings is charged, on the machine for which the charges were chosen.
const memoryFactor = 3

// long are two equal strings that do not fit into the caches of a processor.
var long = sync.OnceValue(func() (s [2]string) {
	for i := range s {
		s[i] = strings.Repeat("a", 10<<20)
	}
	return s
})

// memory returns by how much memory is slower at the moment, beside the processor, than on the
// machine for which the charges were chosen; 1 if it is not. Other programs use it too, and no
// charge changes that.
func (s *scale) memory() float64 {
	const times = 10
	both := long()
	var from time.Duration
	for i := range 1 + times {
		if i == 1 { // after the first, they are where caches hold what fits
			from = threadtime.Now()
		}
		if both[0] != both[1] {
			s.t.Fatal("they are equal")
		}
	}
	units := float64(times*len(both[0])) / 256
	return max(1, float64(threadtime.Now()-from)/units/s.plain/memoryFactor)
}

// factor returns how many times a plain instruction a snippet takes, and its bytes: the least of
// some tries, of which the first that is low enough ends them. The later ones allow for slow
// memory.
func (s *scale) factor(c snippet, enough float64, tries int) (factor, bytes float64) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range tries {
		if i > 0 || s.plain == 0 { // beside it, if it seems expensive
			s.plain = s.run(plainLoop).ns
		}
		p := s.run(c)
		f := p.ns / s.plain
		if i > 0 {
			f /= s.memory()
		}
		if i == 0 {
			factor, bytes = f, p.bytes
		}
		factor, bytes = min(factor, f), min(bytes, p.bytes)
		if factor <= enough && bytes <= mostBytes {
			break
		}
	}
	return factor, bytes
}

// plainLoop is what others are compared with: moves, sums and comparisons.
var plainLoop = snippet{body: `local a, b = 1, 2 for i = 1, 100 do a = b + i if a > b then b = a end end`}

// list returns n items, the index in place of #.
func list(n int, item string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(item, "#", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

// instructions are snippets of each instruction whose work grows with its operands.
func instructions() []snippet {
	var all []snippet
	add := func(before, body string) { all = append(all, snippet{before: before, body: body}) }
	for _, n := range []int{1, 8, 64, 190} {
		names, zeros := list(n, "a#"), list(n, "0")
		chain := func(item string) string { return strings.ReplaceAll(list(n+1, item), ",", "..") }
		add(`local e = ""`, `local x = `+chain("e"))
		add(`local e = "abc"`, `local x = `+chain("e"))
		add(`local e = 1.5`, `local x = `+chain("e"))
		add(`local m = setmetatable({}, {__concat = function(a) return a end})`,
			`local x = `+chain("m"))
		add(``, `local `+names+` = ...`)
		add(``, `local `+names)
		add(`local function f() end`, `local `+names+` = f()`)
		add(`local function f() return `+zeros+` end`, `local `+names+` = f()`)
		add(`local function f(`+names+`) end`, `f()`)
		add(`local function f(`+names+`) end`, `f(`+zeros+`)`)
		add(`local function f(`+names+`, ...) end`, `f(`+zeros+`)`)
		add(`local function f() local `+names+` end`, `f()`)
		add(`local function f(s, i) if i < 100 then return i + 1 end end`,
			`for `+names+` in f, nil, 0 do end`)
		add(``, `local t = {`+zeros+`}`)
		add(``, `local t = {`+list(n, "k# = 1")+`}`)
		add(`local t = {}`, strings.ReplaceAll(list(n, "t.k# = 1"), ",", " "))
		add(`local n = 0 local function f() n = n + 1 if n % 200 ~= 0 then return f() end end`, `f()`)
		if n <= 64 {
			add(`local `+names+` = `+zeros, names+` = `+names)
			add(`local `+names+` = `+zeros, `local f = function() return `+names+` end`)
			add(``, `local `+names+` = `+zeros+` local f = function() return `+names+` end`)
		}
	}
	for _, n := range []int{1, 8, 64, 200, 7000} {
		values := fmt.Sprintf(`local t = {} for i = 1, %d do t[i] = i end `, n)
		add(values+`local function f(...) end`, `f(unpack(t))`)
		add(values+`local function f(...) return ... end`, `f(unpack(t))`)
		add(values+`local function f(...) local t = {...} end`, `f(unpack(t))`)
		add(values+`local function f(...) return arg end`, `f(unpack(t))`)
		add(values+`local function f(...) `+list(60, "a#")+` = ... end`, ``)
		add(values+`local f = coroutine.wrap(function(...) while true do coroutine.yield(...) end end)`,
			`f(unpack(t))`)
		add(values, `for k, v in pairs(t) do end`)
		add(values, `local x = #t`)
		add(values, `t[#t + 1] = 1 t[#t] = nil`)
		add(values+`for i = 1, #t do t["k" .. i] = i end`, `for k, v in pairs(t) do t[k] = nil t[k] = v end`)
		add(values, `local u = {} for i = 1, #t do u[-i] = i end for i = 1, #t do u[-i] = nil end`)
	}
	for _, f := range []string{"-2^31", "2^31", "-2^53", "2^53", "0", "0/0", "1/0", "-1/0", "1e308",
		"5e-324"} {
		for _, op := range []string{"x + x", "x * x", "x / x", "x % 3", "3 % x", "x ^ 2", "x ^ 0.3",
			"-x", "x < 1", "x == 1", "x .. ''", "t[x]", "tostring(x)"} {
			add(`local x, t = `+f+`, {} for i = 1, 20 do t[i + 0.5] = i end`, `local y = `+op)
		}
	}
	kept := all[:0]
	for _, c := range all {
		if c.body != "" {
			kept = append(kept, c)
		}
	}
	for _, n := range []int{200, 7000} {
		for _, f := range newSearcher(1).functions {
			for _, value := range []string{`i`, `"12"`, `""`, `{}`} {
				kept = append(kept, snippet{
					before: fmt.Sprintf(`local t = {} for i = 1, %d do t[i] = %s end`, n, value),
					body:   "pcall(" + f + ", unpack(t))",
				})
			}
		}
	}
	for _, body := range []string{`local x = #doubling`, `doubling[#doubling + 1] = nil`} {
		kept = append(kept, snippet{before: shapes["doubling"], body: body})
	}
	return append(kept, answers()...)
}

// answers are values whose replies take more than they show.
func answers() []snippet {
	var all []snippet
	for _, before := range []string{
		`local t = {} for i = 1, 100000 do t[i] = t end`,
		`local t = {} for i = 1, 100000 do t[i] = {} end`,
		`local u = {} for i = 1, 100000 do u[i] = 1 end local t = {} for i = 1, 1000 do t[i] = u end`,
		`local t = {map = {}} for i = 1, 100000 do t.map[i] = t end`,
		`local t = {set = {}} for i = 1, 50000 do t.set["k" .. i] = true end`,
		`local u = {} for i = 1, 50000 do u[-i] = true end for i = 1, 50000 do u[-i] = nil end local t = {} for i = 1, 1000 do t[i] = {map = u} end`,
	} {
		all = append(all, snippet{before: before, result: "t"})
	}
	texts := []string{`"a"`, `("a"):rep(80)`, `("\r"):rep(80)`, `("1\n"):rep(2000)`, `("a"):rep(50000)`}
	for _, field := range []string{"big_number", "err", "ok"} {
		for _, text := range texts {
			all = append(all, repeated(field+" = "+text))
		}
	}
	for _, text := range texts {
		all = append(all, repeated(`verbatim_string = {format = "txt", string = `+text+`}`),
			repeated(`verbatim_string = {format = `+text+`, string = ""}`))
	}
	for _, number := range []string{"0", "1/3", "-1/0", "5e-324", "1e308"} {
		all = append(all, repeated("double = "+number))
	}
	return all
}

// repeated is a reply that has a table with one field many times: it is measured and written.
func repeated(field string) snippet {
	return snippet{before: `local u, t = {` + field + `}, {} for i = 1, 1000 do t[i] = u end`,
		result: "t"}
}

// check fails for each snippet whose price is too high.
func check(t *testing.T, s *scale, list []snippet) {
	t.Helper()
	most := cmp.Or(s.most, mostFactor)
	for _, c := range list {
		factor, bytes := s.factor(c, most, mostTries)
		if factor > most || bytes > mostBytes {
			t.Errorf("%.300s\n  %.1f times a plain instruction, %.0f bytes a unit", c, factor,
				bytes)
		}
	}
}

func TestInstructionsAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	check(t, &scale{t: t, units: 20_000}, instructions())
}

// TestErrorsAreChargedForTheirTime measures what an operation took that failed late.
func TestErrorsAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	var all []snippet
	for _, item := range []string{"a?", "a-", "a*"} {
		all = append(all, snippet{before: `local s, p = ("a"):rep(20002), ("` + item + `"):rep(10001)`,
			body: `pcall(string.find, s, p)`})
	}
	for _, end := range []string{"", `\u12`, `"`} {
		all = append(all, snippet{before: `local s = '"' .. ("\\u20ac"):rep(1000) .. '` + end + `'`,
			body: `pcall(cjson.decode, s)`})
	}
	check(t, &scale{t: t, units: 1_000_000, most: 3}, all)
}

// shapes are arguments, and what makes them.
var shapes = map[string]string{
	"emptied": `local emptied = {} for i = 1, 2000 do emptied["k" .. i] = 1 end for k in pairs(emptied) do emptied[k] = nil end`,
	"holes":   `local holes = {} for i = 1, 3000 do holes[i] = 1 end for i = 2, 2999 do holes[i] = nil end`,
	// C Lua looks for its length one by one
	"doubling": `local doubling, at, k = {}, {}, 8193 for i = 1, 8192 do doubling[i] = 1 end while k <= 2^31 do at[#at + 1] = k k = k * 2 end for i = #at, 1, -1 do doubling[at[i]] = 1 end`,
	"sparse":   `local sparse = {} sparse[1000000] = 1`,
	"nils":     `local nils = {unpack({}, 1, 4000)} nils[4000] = 1`,
	"long":     `local long = {} for i = 1, 5000 do long[i] = i end`,
	"negative": `local negative = {} for i = 1, 5000 do negative[-i] = i end`,
	"texts":    `local texts = {} for i = 1, 1000 do texts[i] = "text" .. i end`,
	"keys":     `local keys = {} for i = 1, 1000 do keys["key" .. i] = i end`,
	"meta":     `local meta = setmetatable({1, 2}, {__index = function(t, k) return 1 end, __newindex = function() end, __lt = function() return true end, __concat = function(a) return "" end, __tostring = function() return "m" end, __call = function() end})`,
	"nested":   `local nested = {} for i = 1, 300 do nested = {nested} end`,
	"itself":   `local itself = {} for i = 1, 100 do itself[i] = itself end`,
	"longKeys": `local longKeys = {} for i = 1, 12 do longKeys[("a"):rep(200000):sub(i)] = i end`,
	// no array is chosen: the hash part was made for others
	"hashed":   `local hashed = {} for i = 1, 9000 do hashed["k" .. i] = 1 end for k in pairs(hashed) do hashed[k] = nil end for i = 1, 7000 do hashed[i] = "" end`,
	"empty":    `local empty = ""`,
	"text":     `local text = ("abc"):rep(5000)`,
	"spaces":   `local spaces = (" "):rep(5000) .. "1"`,
	"pattern":  `local pattern = ("a-"):rep(10) .. "b"`,
	"json":     `local json = "[" .. ('{"a":"b","c":1.5e-300},'):rep(100) .. "1]"`,
	"strings":  `local strings = "[" .. ('"a",'):rep(1000) .. "1]"`,
	"packed":   `local packed = cmsgpack.pack({1, 2.5, "x", {1, 2}, {a = 1}})`,
	"denormal": `local denormal = "2." .. ("2"):rep(700) .. "e-308"`,
	"trailed":  `local trailed = "2.2250738585072011e-308e"`,
	"digits":   `local digits = ("9"):rep(700)`,
	"hex":      `local hex = "0x" .. ("f"):rep(700) .. "p-1000"`,
	"source":   `local source = ("local a = 1 + b "):rep(50)`,
	"closures": `local closures = "local a, b, c, d, e, f, g, h = 1 " .. ("return function() "):rep(40) .. " return a + b + c + d + e + f + g + h " .. ("end "):rep(40)`,
	"wide":     `local wide = ("i"):rep(200)`,
	"format":   `local format = "%.99f %10.3s %g %q"`,
	"fun":      `local fun = function(...) return ... end`,
	"yes":      `local yes = function() return true end`,
	"thread":   `local thread = coroutine.create(function() while true do coroutine.yield() end end)`,
	"many":     `local many = {} for i = 1, 7000 do many[i] = i end`,
	"numerals": `local numerals = {} for i = 1, 7000 do numerals[i] = "12" end`,
	"2^31":     ``, "-2^31": ``, "2^53": ``, "-2^53": ``, "0": ``, "0/0": ``, "1/0": ``, "1": ``,
	"-1": ``, "2": ``, "100": ``, "1.5": ``, "1e308": ``, "1e-308": ``, "true": ``, "nil": ``, `"a"`: ``,
	`"set"`: ``, `"get"`: ``, `"#"`: ``, `"*"`: ``,
}

// makers are the names of shapes in order.
var makers = slices.Sorted(maps.Keys(shapes))

// searcher makes calls of library functions and keeps the most expensive.
type searcher struct {
	*rand.Rand
	functions []string
}

// known are functions that were too cheap for some argument once: each run tries all shapes.
var known = []string{"next", "tonumber", "table.maxn", "cjson.encode", "cmsgpack.pack", "unpack",
	"select", "math.max", "math.min", "bit.bor"}

// callOf is a call of a library function, or an operator.
type callOf struct {
	function string
	args     []string
	spread   bool // the last argument is a table whose elements follow
}

func newSearcher(seed uint64) *searcher {
	g := &searcher{Rand: rand.New(rand.NewPCG(seed, 1))}
	in := newInterpreter(testTable(), true)
	for name, value := range in.globals.Pairs() {
		switch v := value.(type) {
		case *lua.LFunction:
			g.functions = append(g.functions, string(name.(lua.LString)))
		case *lua.LTable:
			for inner, f := range v.Pairs() {
				if f.Type() == lua.LTFunction && v != in.globals {
					g.functions = append(g.functions, fmt.Sprint(name, ".", inner))
				}
			}
		}
	}
	return g
}

// call makes a call of a function.
func (g *searcher) call(function string) callOf {
	c := callOf{function: function}
	for range g.IntN(4) {
		c.args = append(c.args, makers[g.IntN(len(makers))])
	}
	if g.IntN(4) == 0 {
		c.args, c.spread = append(c.args, []string{"many", "numerals", "texts"}[g.IntN(3)]), true
	}
	return c
}

// mutate changes one argument.
func (g *searcher) mutate(c callOf) callOf {
	if len(c.args) == 0 {
		return g.call(c.function)
	}
	c.args = slices.Clone(c.args)
	at := g.IntN(len(c.args))
	if !c.spread || at < len(c.args)-1 {
		c.args[at] = makers[g.IntN(len(makers))]
	}
	return c
}

func (c callOf) snippet() snippet {
	var before []string
	args := slices.Clone(c.args)
	for _, a := range c.args {
		if !slices.Contains(before, shapes[a]) {
			before = append(before, shapes[a])
		}
	}
	if c.spread {
		args[len(args)-1] = "unpack(" + args[len(args)-1] + ")"
	}
	return snippet{before: strings.Join(before, " "),
		body: "pcall(" + strings.Join(append([]string{c.function}, args...), ", ") + ")"}
}

// keptCalls has the worst calls that make costs has found, as String writes them.
const keptCalls = "../../testdata/costs/calls.txt"

// spreads ends the last argument of a call whose elements follow.
const spreads = "..."

// String returns the function and the arguments.
func (c callOf) String() string {
	text := strings.Join(append([]string{c.function}, c.args...), " ")
	if c.spread {
		text += spreads
	}
	return text
}

// parseCall reads what String has written.
func parseCall(t testing.TB, text string) callOf {
	list, spread := strings.CutSuffix(text, spreads)
	words := strings.Fields(list)
	for _, a := range words[1:] {
		if _, ok := shapes[a]; !ok {
			t.Fatalf("%s: %q has no shape %s", keptCalls, text, a)
		}
	}
	return callOf{words[0], words[1:], spread}
}

// found is a call with its price.
type found struct {
	callOf
	factor, bytes float64
}

func (f found) rank() float64 { return max(f.factor/mostFactor, f.bytes/mostBytes) }

// search measures rounds of calls of every function, and changes of the worst ones.
func (g *searcher) search(s *scale, rounds int) []found {
	var all []found
	measure := func(c callOf) {
		factor, bytes := s.factor(c.snippet(), mostFactor/2, 2)
		all = append(all, found{c, factor, bytes})
	}
	for _, text := range seeds.Kept(s.t, keptCalls) {
		measure(parseCall(s.t, text))
	}
	for _, f := range g.functions {
		for _, shape := range makers {
			if rounds > 10 || g.IntN(3) == 0 || slices.Contains(known, f) {
				measure(callOf{function: f, args: []string{shape}})
			}
		}
	}
	for range rounds {
		for _, f := range g.functions {
			measure(g.call(f))
		}
		slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.rank(), a.rank()) })
		all = all[:min(len(all), 200)]
		for _, f := range slices.Clone(all[:30]) {
			measure(g.mutate(f.callOf))
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.rank(), a.rank()) })
	return all
}

// The functions of the libraries with arguments of odd shapes, some known to be expensive once, and
// some by chance.
func TestCallsAreChargedForTheirTime(t *testing.T) {
	detector.Skip(t)
	rounds, seed := 3, uint64(1) // always the same: what only chance finds is for make costs
	text := os.Getenv("COORDD_COSTS")
	if text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		seed = seeds.Of(t)
	}
	s := &scale{t: t, units: 5_000}
	all := newSearcher(seed).search(s, rounds)
	if text != "" {
		var worst []string
		for _, f := range all[:30] {
			if f.factor > keptFactor {
				worst = append(worst, f.callOf.String())
			}
		}
		seeds.Keep(t, keptCalls, worst)
	}
	for i, f := range all[:30] {
		if f.rank() > 1 {
			f.factor, f.bytes = s.factor(f.snippet(), mostFactor, mostTries)
		}
		t.Logf("%2d. %5.1f times, %4.0f bytes: %s", i+1, f.factor, f.bytes, f.snippet())
		if f.rank() > 1 {
			t.Errorf("%s\n  %.1f times a plain instruction, %.0f bytes a unit", f.snippet(),
				f.factor, f.bytes)
		}
	}
}
