// error, assert and coroutines compared with Redis's, and the cost of caught errors and coroutines.

package script

import (
	"strings"
	"testing"
)

func TestErrorsAndCoroutinesLikeRedis(t *testing.T) {
	compare(t, []string{
		`error('x')`, `error('x', 0)`, `error('x', 1)`, `error(5)`, `error(5, 0)`, `error({1})`,
		`error()`, `error(nil)`, `error(true)`,
		"local function f()\n error('x', 2) end\n f() return 1",
		"local function f() error('x', 3) end\nlocal function g()\n f() return 1 end\n g() " +
			"return 1",
		`assert(false)`, `assert(nil, 'msg')`, `assert(false, 5)`, `return assert(1, 2, 3)`,
		`assert()`, `assert(false, {})`,
		`local co = coroutine.create(function(a, b) local c = coroutine.yield(a + b) local d, e = coroutine.yield(c * 2) return d, e end) return coroutine.resume(co, 1, 2), coroutine.resume(co, 5), coroutine.status(co), coroutine.resume(co, 7, 8), coroutine.status(co), coroutine.resume(co)`,
		`local f = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) return f(), f(), f(), f(), pcall(f)`, `local f = coroutine.wrap(function() error('x') end) return pcall(f)`, `local f = coroutine.wrap(function() error({1}) end) return pcall(f)`,
		`return coroutine.resume(coroutine.create(function() error('x') end))`,
		`return coroutine.resume(coroutine.create(function() error({4}) end))`,
		`return coroutine.create(string.len)`, `return coroutine.create()`,
		`return coroutine.resume(5)`, `return coroutine.status({})`, `return coroutine.wrap(nil)`,
		`local co co = coroutine.create(function() return coroutine.status(co), coroutine.resume(co) end) return coroutine.resume(co)`, `local a a = coroutine.create(function() local b = coroutine.create(function() return coroutine.status(a), coroutine.resume(a) end) return coroutine.resume(b) end) return coroutine.resume(a)`,
		`return coroutine.resume(coroutine.create(function() return pcall(coroutine.yield, 1) end))`, `return coroutine.resume(coroutine.create(function() table.sort({1, 2, 3}, function() coroutine.yield() end) end))`, `return coroutine.resume(coroutine.create(function() return ('a'):gsub('a', coroutine.yield) end))`,
		`local function gen(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end) end local s = 0 for i in gen(100) do s = s + i end return s`,
	})
}

// TestCaughtErrorsAreCheap runs a script that only fails, deep in calls, within its budget.
func TestCaughtErrorsAreCheap(t *testing.T) {
	L := boundedState(t, 300_000, 1<<30)
	err := doString(L,
		`local function f(n) if n == 0 then while true do pcall(error, 'x') end end f(n - 1) end f(150)`)
	if err == nil || !strings.Contains(err.Error(), errScriptInstructions) {
		t.Fatal(err)
	}
}

func TestCoroutinesCountOnTheSameBudget(t *testing.T) {
	for _, c := range []struct{ code, want string }{
		{`coroutine.wrap(function() while true do end end)()`, errScriptInstructions},
		{`while true do coroutine.resume(coroutine.create(function() while true do end end)) end`,
			errScriptInstructions},
		{`local function f() coroutine.wrap(f)() end while true do pcall(f) end`,
			errScriptInstructions},
		{`while true do coroutine.create(function() end) end`, errScriptMemory},
		{`local t = {} while true do t[1] = coroutine.wrap(function() coroutine.yield() while true do end end) t[1]() t[1]() end`, errScriptInstructions},
	} {
		left := map[int64]bool{}
		for range 2 {
			L := boundedState(t, 1_000_000, 1<<25)
			err := doString(L, c.code)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.code, err, c.want)
			}
			left[L.G.Budget.Instructions+L.G.Budget.Bytes] = true
		}
		if len(left) != 1 {
			t.Errorf("%s: two runs ended at different counts: %v", c.code, left)
		}
	}
}

func TestLibrariesHaveOneOrder(t *testing.T) {
	const code = `local r = {} for _, lib in ipairs{string, table, bit, struct, cjson, cmsgpack, coroutine} do for k in pairs(lib) do r[#r + 1] = k end end return table.concat(r, ' ')`
	first := runHere(t, code)
	for range 10 {
		if again := runHere(t, code); again != first {
			t.Fatalf("%s, then %s", first, again)
		}
	}
}

// TestTraversalOfAShrinkingTable clears a table while it walks over it, and shortens its array
// meanwhile.
func TestTraversalOfAShrinkingTable(t *testing.T) {
	for _, code := range []string{
		`local t, r = {1, 2, 3, x = 1, y = 2}, {} table.foreach(t, function(k) r[#r + 1] = tostring(k) t[k] = nil table.getn(t) end) return table.concat(r, ' ')`,
		`local t, r = {1, 2, 3, x = 1, y = 2}, {} table.foreach(t, function(k) r[#r + 1] = tostring(k) if k == 3 then t[3] = nil table.getn(t) end end) return table.concat(r, ' ')`,
	} {
		if got := runHere(t, code); got != `true "1 2 3 x y"` {
			t.Errorf("%s: %s", code, got)
		}
	}
}
