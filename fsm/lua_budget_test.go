// Tests of the script budget: the stop comes at the same count in each run, and nothing a script does escapes it.

package fsm

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// countingState returns a Lua state with a budget of the given instructions and bytes, and its context.
// tick() in a script adds one to *ticks; spawn(f) runs f in a coroutine made by newThread until it yields or ends.
func countingState(t *testing.T, instructions, bytes int64) (L *lua.LState, ctx *budgetContext, ticks *int) {
	t.Helper()
	L = lua.NewState()
	t.Cleanup(L.Close)
	ctx = newBudgetContext(&budget{instructions: instructions, bytes: bytes})
	L.SetContext(ctx)
	ticks = new(int)
	L.SetGlobal("tick", L.NewFunction(func(*lua.LState) int { *ticks++; return 0 }))
	L.SetGlobal("spawn", L.NewFunction(func(L *lua.LState) int {
		th := newThread(L)
		state, err, _ := L.Resume(th, L.CheckFunction(1))
		if state == lua.ResumeError {
			L.Push(lua.LString(err.Error()))
			return 1
		}
		return 0
	}))
	return L, ctx, ticks
}

func TestBudgetStopsAtTheSameCount(t *testing.T) {
	scripts := map[string]string{
		"loop":          `while true do tick() end`,
		"empty loop":    `while true do end`,
		"pcall":         `while true do pcall(function() while true do tick() end end) end`,
		"pcall nested":  `local function f() pcall(f) tick() f() end f()`,
		"xpcall":        `while true do xpcall(function() while true do tick() end end, function() while true do tick() end end) end`,
		"coroutine":     `spawn(function() while true do tick() end end)`,
		"in coroutines": `while true do spawn(function() pcall(function() while true do tick() end end) end) end`,
	}
	for name, src := range scripts {
		t.Run(name, func(t *testing.T) {
			counts := map[int]bool{}
			for range 3 {
				L, ctx, ticks := countingState(t, 2_000, 1<<40)
				err := L.DoString(src)
				if err == nil || !strings.Contains(err.Error(), errScriptInstructions) {
					t.Fatalf("error %v, want %q", err, errScriptInstructions)
				}
				if ctx.Err() == nil || ctx.Err().Error() != errScriptInstructions {
					t.Fatalf("context says %v", ctx.Err())
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
	// One more instruction than the budget stops the script; exactly the budget does not.
	const src = `local a = 0 for i = 1, 100 do a = a + i end return a`
	L, ctx, _ := countingState(t, 1_000_000, 0)
	if err := L.DoString(src); err != nil {
		t.Fatal(err)
	}
	used := 1_000_000 - ctx.instructions
	for _, c := range []struct {
		have int64
		ok   bool
	}{{used, true}, {used - 1, false}} {
		L, ctx, _ := countingState(t, c.have, 0)
		err := L.DoString(src)
		if (err == nil) != c.ok {
			t.Errorf("budget %d of %d: error %v", c.have, used, err)
		}
		if c.ok && (ctx.instructions != 0 || ctx.Err() != nil) {
			t.Errorf("%d instructions left, context says %v", ctx.instructions, ctx.Err())
		}
	}
}

func TestBudgetCharges(t *testing.T) {
	L, ctx, _ := countingState(t, 100, 100)
	L.SetGlobal("work", L.NewFunction(func(L *lua.LState) int { budgetOf(L).charge(L, int64(L.CheckNumber(1))); return 0 }))
	L.SetGlobal("build", L.NewFunction(func(L *lua.LState) int { budgetOf(L).chargeBytes(L, int64(L.CheckNumber(1))); return 0 }))
	if err := L.DoString(`work(-5) work(0) build(-1) build(100)`); err != nil {
		t.Fatal(err)
	}
	if ctx.bytes != 0 {
		t.Fatalf("%d bytes left", ctx.bytes)
	}
	err := L.DoString(`pcall(build, 1) while true do end`)
	if err == nil || !strings.Contains(err.Error(), errScriptMemory) {
		t.Fatalf("error %v, want %q even after pcall", err, errScriptMemory)
	}
	for range 3 { // the smallest integer does not wrap round
		ctx.bytes = 1
		err = L.DoString(`pcall(work, 2^62) pcall(work, 2^62) pcall(work, 2^62) work(2^62)`)
		if err == nil || !strings.Contains(err.Error(), errScriptInstructions) || ctx.instructions >= 0 {
			t.Fatalf("error %v, %d instructions left", err, ctx.instructions)
		}
	}
	var none *budget
	none.charge(L, 1<<60)
	none.chargeBytes(L, 1<<60)
	if none.spent() != nil || newBudgetContext(nil).Done() != nil || newBudgetContext(nil).Err() != nil {
		t.Error("a nil budget is not unlimited")
	}
}

func TestNewThreadChargesForItsStacks(t *testing.T) {
	L, _, ticks := countingState(t, 1<<40, 50_000_000)
	err := L.DoString(`while true do spawn(tick) end`)
	if err == nil || !strings.Contains(err.Error(), errScriptMemory) {
		t.Fatalf("error %v, want %q", err, errScriptMemory)
	}
	if *ticks < 10 || *ticks > 10_000 {
		t.Fatalf("%d threads in 50 MB", *ticks)
	}
}
