// Scripts that attack a node's time or memory: each ends at its budget, at the same charged work on
// every node, and within the memory that its budget allows.

package script

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm/script/lua"
)

// hostile are scripts that never end by themselves, and the error that stops each within a tenth of
// the usual budget.
var hostile = []struct{ stop, source string }{
	// Open upvalues of nested calls: at depth 500 each instruction took a millisecond.
	{errScriptMemory,
		`local function f(n) local a, b = n, n local g = function() return a + b end if n > 0 then f(n - 1) end while true do local x = n local h = function() return x end end end f(500)`},
	{errScriptInstructions,
		`local function f(n) local a = n local g = function() return a end if n > 0 then f(n - 1) end while true do g() end end f(500)`},
	{errScriptMemory,
		`local function f(n) local a = n local g = function() a = a + 1 return a end if n > 0 then f(n - 1) end while true do (function() return g() end)() end end f(500)`},
	// Coroutines: yielding from a deep one, creating them, passing values.
	{errScriptInstructions,
		`local co = coroutine.wrap(function() local function f(n) if n > 0 then f(n - 1) else while true do coroutine.yield() end end end f(150) end) while true do co() end`},
	{errScriptMemory, `while true do coroutine.wrap(function() end)() end`},
	{errScriptMemory,
		`local t = {} for i = 1, 1e9 do t[i] = coroutine.wrap(function() local function f(n) if n > 0 then f(n - 1) else coroutine.yield() end end f(150) end) t[i]() end`},
	{errScriptInstructions,
		`local t = {} for i = 1, 7000 do t[i] = i end local f = coroutine.wrap(function(...) while true do coroutine.yield(...) end end) while true do f(unpack(t)) end`},
	// Allocations.
	{errScriptMemory,
		`local keep = {} for i = 1, 1e9 do local a, b, c, d, e, f = i, i, i, i, i, i keep[#keep + 1] = function() return a, b, c, d, e, f end end`},
	{errScriptMemory,
		`local keep = {} for i = 1, 1e9 do local a = i keep[#keep + 1] = function() return a end end`},
	{errScriptMemory,
		`redis.setresp(3) local keep = {} while true do keep[#keep + 1] = redis.call("hgetall", "h") end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[i + 0.5] = true end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t["k" .. i] = true end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[i] = i * 1.5 end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[i] = {i} end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[i] = {a = i, b = i} end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[{}] = i end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[i] = ("x"):rep(100):sub(i % 100) end`},
	{errScriptMemory, `local s = "" while true do s = s .. "x" end`},
	{errScriptMemory, `local t = {} while true do t[#t + 1] = tostring(#t) end`},
	{errScriptMemory,
		`local t = {} for i = 1, 200 do t[i] = i end local function f(...) local x = {...} end while true do f(unpack(t)) end`},
	{errScriptMemory,
		`local t = {} for i = 1, 200 do t[i] = i end local function f(...) return arg end while true do f(unpack(t)) end`},
	{errScriptMemory, `local t = {} for i = 1, 1e9 do t[50000000 + 3 * i] = true end`},
	{errScriptInstructions, `local t = {} t[1000000] = 1 while true do table.maxn(t) end`},
	{errScriptInstructions, `while true do table.insert({}, 2^31, 1) end`},
	{errScriptInstructions, `while true do tonumber("2.2250738585072011e-308e") end`},
	// Work in one instruction or one call.
	{errScriptInstructions,
		`while true do math.fmod(1.7976931348623157e308, 3.3333333333333333e-308) end`},
	{errScriptInstructions,
		`local t = setmetatable({}, {__newindex = function() end}) for i = 1, 9 do rawset(t, "k" .. i, 1) end local k = ("k"):rep(1e6) while true do t[k] = 1 end`},
	{errScriptInstructions,
		`local t = {} for i = 1, 2000 do t[i] = 1 end t[60000] = 1 while true do for i = 1, 2000 do t[i] = 1 end t[60000] = 1 table.sort(t, function() while #t > 2000 do t[#t] = nil end return false end) end`},
	{errScriptInstructions, `local s = "1" .. (" "):rep(2e5) while true do redis.log(s, 1) end`},
	{errScriptInstructions,
		`local s = "3" .. (" "):rep(2e5) while true do redis.setresp(s) end`},
	{errScriptInstructions,
		`local s = "1" .. (" "):rep(2e5) while true do redis.set_repl(s) end`},
	{errScriptInstructions,
		`local s = "1" .. (" "):rep(2e5) while true do pcall(struct.unpack, "c200001c0", s) end`},
	{errScriptInstructions,
		`local s = ("\n"):rep(1e6) while true do redis.error_reply(s) end`},
	{errScriptInstructions,
		`local s = ("x"):rep(1e6) while true do pcall(struct.unpack, "s", s) end`},
	{errScriptInstructions,
		`local u = "ab" .. ("c"):rep(14) local s, p = u:rep(4e4), u:rep(2e4) .. "x" while true do s:find(p, 1, true) end`},
	{errScriptInstructions, `local t = {} t[1e5] = 1 while true do table.maxn(t) end`},
	{errScriptInstructions, `while true do tonumber("2.2250738585072011e-308") end`},
	{errScriptInstructions,
		`local s = "1." .. ("0"):rep(700) .. "1" while true do tonumber(s) end`},
	{errScriptMemory, `while true do ("%.17g %.99f %e"):format(1.1, 1e300, 3.3) end`},
	{errScriptInstructions,
		`local t = {} for i = 1, 10000 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t, 1) end`},
	{errScriptInstructions,
		`local t = {} for i = 1, 5000 do t["k" .. i] = i end for i = 1, 4999 do t["k" .. i] = nil end while true do next(t) end`},
	{errScriptInstructions, `local t = {} while true do t[100000] = 1 t[100000] = nil end`},
	{errScriptInstructions,
		`local t = {} for i = 1, 90 do t = setmetatable({}, {__index = t}) end while true do local x = t.x end`},
	{errScriptInstructions,
		`local t = {} setmetatable(t, {__index = function(t, k) if k == 0 then error("x") end return t[k - 1] end}) while true do pcall(function() return t[190] end) end`},
	{errScriptInstructions,
		`local s = ("a"):rep(10000) local p = ("a"):rep(1000) .. "b" while true do s:find(p, 1, true) end`},
	{errScriptInstructions, `local s = ("a"):rep(1000) while true do s:find("a-a-a-b") end`},
	{errScriptInstructions,
		`local s = ("local a = 1 + b * c if a then b(c) end "):rep(100) while true do loadstring(s) end`},
	{errScriptInstructions,
		`local s = ("f(function() end) "):rep(1000) while true do loadstring(s) end`},
	{errScriptInstructions,
		`local a, b = ("x"):rep(10000) .. "a", ("x"):rep(10000) .. "b" while true do local x = a < b or a == b end`},
	{errScriptInstructions, `while true do local x = "10" + "20.5" end`},
	{errScriptMemory, `local s = ("i"):rep(1000) local t = {} for i = 1, 1000 do t[i] = i end
		while true do struct.pack(s, unpack(t)) end`},
	{errScriptMemory, `while true do redis.pcall("nosuch") end`},
	{errScriptMemory, `while true do redis.error_reply("no such") redis.status_reply("OK") end`},
}

// runHostile runs a script with a tenth of the budget, and returns the reply and the budget left.
func runHostile(t *testing.T, in *interpreter, source string) (reply string, left lua.Budget) {
	t.Helper()
	return runHostileWithin(t, in, source, lua.Budget{Instructions: scriptInstructions / 10,
		Bytes: scriptBytes / 40})
}

func runHostileWithin(t *testing.T, in *interpreter, source string,
	limit lua.Budget) (reply string, left lua.Budget) {
	t.Helper()
	ks := keyspace.New()
	ks.Begin(1, keyspace.NewRevision(0, 1, 0))
	env := &commands.Env{Keyspace: ks, ClockMs: 1, Level: commands.FeatureLevel,
		Emit: func(commands.Event) {}}
	args := []string{"HSET", "h"}
	for i := range 100 {
		args = append(args, "field"+string(rune('a'+i%26))+string(rune('a'+i/26)), "v")
	}
	runCall(in.table, &commands.Call{Env: env, Tx: &commands.Tx{}, Out: commands.Discard{},
		Args: commandtest.Args(args...)})
	p, err := compileScript([]byte(source), commands.FeatureLevel)
	if err != nil {
		t.Fatalf("%s: %v", source, err)
	}
	out := &commands.RESP{Proto: 2}
	in.runWithin(&commands.Call{Env: env, Tx: &commands.Tx{}, Out: out}, p, "sha",
		commands.Script{}, limit)
	return string(out.Buf), *in.budget
}

func TestHostileScriptsEndAtTheSameWork(t *testing.T) {
	used := newInterpreter(testTable(), true)
	for _, c := range hostile {
		first, left := runHostile(t, newInterpreter(testTable(), true), c.source)
		if !strings.Contains(first, c.stop) {
			t.Errorf("%s\n  %.200q, want %q", c.source, first, c.stop)
		}
		second, again := runHostile(t, used, c.source) // on an interpreter that has run others
		if second != first || again.Instructions != left.Instructions || again.Bytes != left.Bytes {
			t.Errorf("%s\n  one node  %.200q %+v\n  the other %.200q %+v", c.source, first, left,
				second, again)
		}
	}
}

// A script that fails with what has no text, just before its budget ends, fails like others.
func TestErrorsAtTheEndOfTheBudget(t *testing.T) {
	p, err := compileScript([]byte(`error(type)`), commands.FeatureLevel)
	if err != nil {
		t.Fatal(err)
	}
	for units := range int64(200) {
		for _, bytes := range []int64{1 << 20, units} {
			in, out := newInterpreter(testTable(), true), &commands.RESP{Proto: 2}
			ks := keyspace.New()
			env := &commands.Env{Keyspace: ks, ClockMs: 1, Level: commands.FeatureLevel}
			in.runWithin(&commands.Call{Env: env, Tx: &commands.Tx{}, Out: out}, p, "sha",
				commands.Script{}, lua.Budget{Instructions: units, Bytes: bytes})
			if !strings.HasPrefix(string(out.Buf), "-ERR ") {
				t.Errorf("%d units, %d bytes: %q", units, bytes, out.Buf)
			}
		}
	}
}

// A library function with a long argument, or an instruction with many registers, is charged for
// its work: at least one unit per 64 bytes, and each byte that it allocates.
func TestLongArgumentsAreCharged(t *testing.T) {
	names := make([]string, 190)
	for i := range names {
		names[i] = fmt.Sprintf("a%d", i)
	}
	locals := strings.Join(names, ",")
	for _, c := range []struct {
		source       string
		units, bytes int64
	}{
		{`local p = ("a"):rep(1e5) .. "." for i = 1, 100 do ("b"):find(p) end`, 100 * 1e5 / 64, 0},
		{`local p = ("a"):rep(1e5) for i = 1, 100 do ("b"):match(p) end`, 100 * 1e5 / 64, 0},
		{`local p = ("a"):rep(1e5) for i = 1, 100 do ("b"):gmatch(p) end`, 100 * 1e5 / 64, 0},
		{`local p = ("a"):rep(1e5) for i = 1, 100 do ("b"):gsub(p, "") end`, 100 * 1e5 / 64, 0},
		{`local s, t = ("x"):rep(1e5), {} for i = 1, 100 do t[i] = s end redis.pcall("exists", unpack(t))`, 100 * 1e5 / 64, 100 * 1e5},
		{`local s = ("x"):rep(1e5) for i = 1, 100 do pcall(collectgarbage, s) end`, 100 * 1e5 / 64,
			100 * 1e5},
		{`local s = ("x"):rep(1e5) for i = 1, 100 do pcall(function() assert(false, s) end) end`,
			100 * 1e5 / 64, 100 * 1e5},
		{`local s = ("x"):rep(1e5) for i = 1, 100 do pcall(coroutine.wrap(function() error(s, 0) end)) end`, 0, 0},
		{`local s = ("x"):rep(1e5) for i = 1, 100 do loadstring('return "' .. s) end`, 100 * 1e5,
			3 * 100 * 1e5},
		{`for i = 1, 100 do cjson.decode("[1e-310,2e-310,3e-310,2.2250738585072011e-308]") end`,
			100 * 4 * 900, 0},
		{`local e = {a = 1} local t = {} for i = 1, 10000 do t[i] = e end return t`, 10 * 10000, 0},
		{`local e = {} local t = {} for i = 1, 10000 do t[i] = e end return t`, 3 * 10000, 0},
		{`local t = {} for i = 1, 10000 do t[i] = i end return t`, 3 * 10000, 0},
		{`local t = {} for i = 1, 10000 do t[i] = "abc" end return t`, 4 * 10000, 0},
		{`cjson.decode("[" .. ("1,"):rep(10000) .. "1]")`, 5 * 10000, 0},
		{`cjson.decode('"' .. ("\\n"):rep(10000) .. '"')`, 10000 / 2, 0},
		{`local t = {} for i = 1, 5000 do t[i + .5] = i end for i = 1, 20000 do local x = t[1.5] end`, 36*5000 + 5*20000, 0},
		{`local s = "return {" .. ("1e-310,"):rep(100) .. "}" for i = 1, 10 do loadstring(s) end`,
			10 * 100 * 30 * tokenWork, 0},
		{`local k = ("k"):rep(100) local t = {[k .. 1] = 1, [k .. 2] = 2} for i = 1, 1000 do local x = t[k .. 3] x = t[k .. 4] end`, 1000 * 2 * (100/32 + 2), 0},
		{`for i = 1, 1000 do local ` + locals + ` end`, 1000 * 190 / 40, 0},
		{`local function f() local ` + locals + ` end for i = 1, 1000 do f() end`,
			1000 * 2 * 190 / 40, 0},
	} {
		limit := lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40}
		_, left := runHostileWithin(t, newInterpreter(testTable(), true), c.source, limit)
		if units := limit.Instructions - left.Instructions; units < c.units {
			t.Errorf("%.80s: %d units, want at least %d", c.source, units, c.units)
		}
		if bytes := limit.Bytes - left.Bytes; bytes < c.bytes {
			t.Errorf("%.80s: %d bytes, want at least %d", c.source, bytes, c.bytes)
		}
	}
}

func TestLongTextsAreChargedFirst(t *testing.T) {
	for _, source := range []string{
		`return cjson.encode(("\1"):rep(1e6))`,
		`return cjson.encode({[("\1"):rep(1e6)] = 1})`,
		`return ("%q"):format(("\0"):rep(1e6))`,
		`local s, t = ("x"):rep(1e6), {} for i = 1, 100 do t[i] = s end redis.pcall("exists", unpack(t))`,
	} {
		limit := lua.Budget{Instructions: 1 << 40, Bytes: 3e6}
		var before, after runtime.MemStats
		in := newInterpreter(testTable(), true)
		runtime.ReadMemStats(&before)
		reply, _ := runHostileWithin(t, in, source, limit)
		runtime.ReadMemStats(&after)
		if !strings.Contains(reply, errScriptMemory) {
			t.Errorf("%s: %.80q", source, reply)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 4*3e6 {
			// a growing buffer leaves others behind
			t.Errorf("%s: %d bytes were allocated", source, made)
		}
	}
}

// A script's memory is about what it is charged for, at most. The worst five cases found before
// took 2 to 13 times the promised bound.
func TestMemoryIsChargedForWhatItTakes(t *testing.T) {
	for _, source := range []string{
		`local keep = {} for i = 1, N do local a, b, c, d, e, f = i + .5, i + .5, i + .5, i + .5, i + .5, i + .5 keep[i] = function() return a, b, c, d, e, f end end return function() return keep end`,
		`local keep = {} for i = 1, N do local a = i + .5 keep[i] = function() return a end end return function() return keep end`,
		`local keep = {} for i = 1, N / 100 do keep[i] = redis.setresp(3) or redis.call("hgetall", "h") end return function() return keep end`,
		`local t = {} for i = 1, N do t[i + 0.5] = true end return function() return t end`,
		`local t = {} for i = 1, N do t["k" .. i] = true end return function() return t end`,
		`local t = {} for i = 1, N do t[i] = i * 1.5 end return function() return t end`,
		`local t = {} for i = 1, N do t[i] = {i} end return function() return t end`,
		`local t = {} for i = 1, N do t[i] = {a = i, b = i} end return function() return t end`,
		`local t = {} for i = 1, N do t[{}] = {} end return function() return t end`,
		`local t = {} for i = 1, N / 5 do t[i] = coroutine.wrap(function() coroutine.yield() end) t[i]() end return function() return t end`,
		`local s, t = ("x"):rep(1000), {} for i = 1, N do t[i] = s:sub(i % 100) end return function() return t end`,
		`local t = {} for i = 1, N do t[i] = "a" .. i end return function() return t end`,
		`local t = {} for i = 1, N do t[i] = cjson.decode('{"a":[1.5,2.5],"b":{"c":"d"}}') end return function() return t end`,
	} {
		in := newInterpreter(testTable(), true)
		source = strings.ReplaceAll(source, "N", "30000")
		p, err := compileScript([]byte(source), commands.FeatureLevel)
		if err != nil {
			t.Fatal(err)
		}
		ks := keyspace.New()
		ks.Begin(1, keyspace.NewRevision(0, 1, 0))
		env := &commands.Env{Keyspace: ks, ClockMs: 1, Emit: func(commands.Event) {}}
		args := []string{"HSET", "h"}
		for i := range 100 {
			args = append(args, "field"+string(rune('a'+i%26))+string(rune('a'+i/26)), "v")
		}
		runCall(in.table, &commands.Call{Env: env, Tx: &commands.Tx{}, Out: commands.Discard{},
			Args: commandtest.Args(args...)})
		L := in.L
		in.begin(lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
		in.x, in.tx = &commands.Call{Env: env, Tx: &commands.Tx{}, Out: commands.Discard{}},
			commands.Tx{Proto: 2, Script: true}
		before := heapInUse()
		L.Push(L.NewFunctionFromProto(p.proto))
		if err := L.PCall(0, 1); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		took, charged := heapInUse()-before, 1<<40-L.G.Budget.Bytes
		if took > charged+charged/2 {
			t.Errorf("%s\n  %d bytes, charged %d", source, took, charged)
		}
		runtime.KeepAlive(L.Get(-1))
	}
}

// heapInUse returns how many bytes are reachable.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// table.concat builds its text once.
func TestConcatBuildsItsTextOnce(t *testing.T) {
	var before, after runtime.MemStats
	in := newInterpreter(testTable(), true)
	runtime.ReadMemStats(&before)
	source := `local s, t = ("x"):rep(1e5), {} for i = 1, 200 do t[i] = s end return #table.concat(t, ",")`
	reply, _ := runHostileWithin(t, in, source, lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
	runtime.ReadMemStats(&after)
	if made := after.TotalAlloc - before.TotalAlloc; reply != ":20000199\r\n" || made > 22e6 {
		t.Errorf("%q, %d bytes were allocated", reply, made)
	}
}
