// The script budget: it stops a script at the same count in each run, and nothing escapes it.

package script

import (
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm/script/lua"
)

// countingState returns a Lua state with a budget of the given instructions and bytes. In scripts
// tick() adds one to *ticks, and spawn(f) runs f in a coroutine until it yields or ends.
func countingState(t *testing.T, instructions, bytes int64) (L *lua.LState, ticks *int) {
	t.Helper()
	L = libraryState(t)
	ticks = new(int)
	L.G.Global.RawSetString("tick", L.NewFunction(func(*lua.LState) int { *ticks++; return 0 }))
	if err := doString(L,
		`return function(f) coroutine.resume(coroutine.create(f)) end`); err != nil {
		t.Fatal(err)
	}
	L.G.Global.RawSetString("spawn", L.Get(-1))
	L.Begin(lua.Budget{Instructions: instructions, Bytes: bytes})
	return L, ticks
}

func TestBudgetStopsAtTheSameCount(t *testing.T) {
	scripts := map[string]string{
		"loop":          `while true do tick() end`,
		"empty loop":    `while true do end`,
		"pcall":         `while true do pcall(function() while true do tick() end end) end`,
		"pcall nested":  `local function f() pcall(f) tick() f() end f()`,
		"xpcall":        `while true do xpcall(function() while true do tick() end end, function() while true do tick() end end) end`,
		"coroutine":     `spawn(function() while true do tick() end end) while true do end`,
		"in coroutines": `while true do spawn(function() pcall(function() while true do tick() end end) end) end`,
	}
	for name, src := range scripts {
		t.Run(name, func(t *testing.T) {
			counts := map[int]bool{}
			for range 3 {
				L, ticks := countingState(t, 2_000, 1<<40)
				err := doString(L, src)
				if err == nil || !strings.Contains(err.Error(), errScriptInstructions) {
					t.Fatalf("error %v, want %q", err, errScriptInstructions)
				}
				if why := L.G.Budget.Spent(); why != errScriptInstructions {
					t.Fatalf("the budget says %q", why)
				}
				counts[*ticks] = true
			}
			if len(counts) != 1 {
				t.Fatalf("runs differ: %v ticks", counts)
			}
		})
	}
}

func TestBudgetCountsExactly(t *testing.T) {
	// Exactly the budget is enough; one more instruction stops the script.
	const src = `local a = 0 for i = 1, 100 do a = a + i end return a`
	L, _ := countingState(t, 1_000_000, 0)
	if err := doString(L, src); err != nil {
		t.Fatal(err)
	}
	used := 1_000_000 - L.G.Budget.Instructions
	for _, c := range []struct {
		have int64
		ok   bool
	}{{used, true}, {used - 1, false}} {
		L, _ := countingState(t, c.have, 0)
		err := doString(L, src)
		if (err == nil) != c.ok {
			t.Errorf("budget %d of %d: error %v", c.have, used, err)
		}
		if b := L.G.Budget; c.ok && (b.Instructions != 0 || b.Spent() != "") {
			t.Errorf("%d instructions left, the budget says %q", b.Instructions, b.Spent())
		}
	}
}

func TestBudgetCharges(t *testing.T) {
	L, _ := countingState(t, 100, 100)
	set := func(name string, f lua.LGFunction) { L.G.Global.RawSetString(name, L.NewFunction(f)) }
	L.Begin(lua.Budget{Instructions: 1000, Bytes: 1000})
	set("work", func(L *lua.LState) int {
		budgetOf(L).Charge(L, int64(checkNumber(L, 1)))
		return 0
	})
	set("build", func(L *lua.LState) int {
		budgetOf(L).ChargeBytes(L, int64(checkNumber(L, 1)))
		return 0
	})
	L.Begin(lua.Budget{Instructions: 1000, Bytes: 100})
	if err := doString(L, `work(-5) work(0) build(-1) build(100)`); err != nil {
		t.Fatal(err)
	}
	if L.G.Budget.Bytes != 0 {
		t.Fatalf("%d bytes left", L.G.Budget.Bytes)
	}
	err := doString(L, `pcall(build, 1) while true do end`)
	if err == nil || !strings.Contains(err.Error(), errScriptMemory) {
		t.Fatalf("error %v, want %q even after pcall", err, errScriptMemory)
	}
	for range 3 { // the smallest integer does not wrap around
		L.G.Budget.Bytes = 1
		err = doString(L, `pcall(work, 2^62) pcall(work, 2^62) pcall(work, 2^62) work(2^62)`)
		if err == nil || !strings.Contains(err.Error(), errScriptInstructions) ||
			L.G.Budget.Instructions >= 0 {
			t.Fatalf("error %v, %d instructions left", err, L.G.Budget.Instructions)
		}
	}
}

func TestNewThreadChargesForItsStacks(t *testing.T) {
	L, ticks := countingState(t, 1<<40, 50_000_000)
	err := doString(L,
		`local keep = {} while true do keep[#keep + 1] = coroutine.create(function() end) tick() end`)
	if err == nil || !strings.Contains(err.Error(), errScriptMemory) {
		t.Fatalf("error %v, want %q", err, errScriptMemory)
	}
	if *ticks < 10 || *ticks > 50_000 {
		t.Fatalf("%d threads in 50 MB", *ticks)
	}
}
