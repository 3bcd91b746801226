// The budget of one script run: how many instructions it may still execute and how many bytes it may still build.
// The interpreter asks its context before every instruction, so a context that counts is the only hook that stops a
// script at the same instruction on every node; library functions charge by hand for the work they do between two
// instructions. A few instructions of the virtual machine do work that grows with a string's length or with a number
// of values: once a script has such a string or so many values, their operands are looked at before they run. Both limits are counts, never times: a clock would stop the nodes at different places.

package fsm

import (
	"context"
	"errors"
	"math"
	"time"

	lua "github.com/yuin/gopher-lua"
)

// The texts with which a script that is over its budget is stopped (declared once; callers may compare).
const (
	errScriptInstructions = "script stopped: it used up its instruction budget"
	errScriptMemory       = "script stopped: it used up its memory budget"
)

var (
	errInstructionsSpent = errors.New(errScriptInstructions)
	errMemorySpent       = errors.New(errScriptMemory)
)

// Bytes that a new Lua thread takes, by part: one register, one call frame, and the fixed rest.
const (
	registerBytes  = 16
	callFrameBytes = 96
	threadBytes    = 1024
)

// closedSignal is what Done answers once the budget is spent. It is shared: nobody sends on it.
var closedSignal = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// budget is what a script run may still use. Below zero it is spent, and stays so: every later charge raises again,
// so that a script cannot outlive its budget under pcall. A nil budget is unlimited.
type budget struct {
	instructions int64 // instructions left
	bytes        int64 // bytes left to build
	longest      int   // bytes of the longest string that the script has had
	chain        int   // how many tables a chain of __index can have
	step         int64 // what each instruction costs above one, for what is not looked at
	look         bool  // operands are looked at: there was a string above longString, or more than manyValues at once
}

const (
	// longString is the length in bytes of the longest string above which operands are looked at, which takes some 50 ns an
	// instruction. Until then their work is spread: every instruction costs one more for each stepBytes of the longest string,
	// and a script without a string of stepBytes pays nothing.
	longString = 1024
	stepBytes  = 128
	// manyValues is how many arguments or results a script can have without their copies being looked at.
	manyValues = 64
	// stepLinks is how many tables in a chain of __index make every instruction cost one more. gopher-lua walks over maxLinks at most.
	stepLinks = 8
	maxLinks  = 100
)

// sees tells the budget that the script gets a string of n bytes.
func (b *budget) sees(n int) {
	if b != nil && n > b.longest {
		b.longest = n
		b.look = b.look || n > longString
		b.spread()
	}
}

// hands tells the budget that the script gets n values at once.
func (b *budget) hands(n int) {
	if b != nil && n > manyValues {
		b.look = true
		b.spread()
	}
}

// links tells the budget that a chain of __index can be n tables long.
func (b *budget) links(n int) {
	b.chain = n
	b.spread()
}

// spread sets what every instruction pays above one: for a chain of __index, and for strings until operands are looked at.
func (b *budget) spread() {
	b.step = int64(b.chain / stepLinks)
	if !b.look {
		b.step += int64(b.longest / stepBytes)
	}
}

// charge takes instructions off and raises errScriptInstructions in L when there are not as many left.
// Amounts below one are ignored.
func (b *budget) charge(L *lua.LState, instructions int64) {
	if b == nil || instructions <= 0 {
		return
	}
	b.instructions = subtract(b.instructions, instructions)
	if b.instructions < 0 {
		L.RaiseError(errScriptInstructions)
	}
}

// chargeBytes takes n bytes off and raises errScriptMemory in L when there are not as many left. It is called before
// the bytes are allocated. What is freed is not given back: when the collector frees is not the same on every node.
func (b *budget) chargeBytes(L *lua.LState, n int64) {
	if b == nil || n <= 0 {
		return
	}
	b.bytes = subtract(b.bytes, n)
	if b.bytes < 0 {
		L.RaiseError(errScriptMemory)
	}
}

// chargeWork charges one instruction for each 16 bytes that a library function reads or writes, and one for the call.
func (b *budget) chargeWork(L *lua.LState, bytes int) { b.charge(L, 1+int64(bytes)/16) }

// chargeString charges for a new string of n bytes: the work of writing it and the memory that it takes.
func (b *budget) chargeString(L *lua.LState, n int) {
	b.sees(n)
	b.chargeWork(L, n)
	b.chargeBytes(L, int64(n))
}

// spent returns the error that stops the script, or nil while there is budget left.
func (b *budget) spent() error {
	switch {
	case b == nil:
		return nil
	case b.bytes < 0:
		return errMemorySpent
	case b.instructions < 0:
		return errInstructionsSpent
	}
	return nil
}

// subtract is left-n (n > 0) without wrapping round at the smallest integer.
func subtract(left, n int64) int64 {
	if left < math.MinInt64+n {
		return math.MinInt64
	}
	return left - n
}

// budgetContext is the context.Context of one script run. The engine makes a new one for every run
// (newBudgetContext) and gives it to L.SetContext: what the libraries remember during a run (cjson's settings, the
// names of tables that were printed) hangs on it and so can never leak from one run into the next, which a node
// restored from a snapshot would not have seen.
type budgetContext struct {
	*budget
	global *lua.Global        // of the interpreter whose operands are looked at; nil: none are
	notes  map[any]any        // what a library remembers, by its own key; looked up only, never ranged over
	labels map[lua.LValue]int // numbers that tostring gave out; looked up only, never ranged over
}

// newBudgetContext returns the context for one script run that may use b (nil: unlimited).
func newBudgetContext(b *budget) *budgetContext { return &budgetContext{budget: b} }

// Deadline says that there is none: a script is stopped by counts alone.
func (c *budgetContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value holds nothing.
func (c *budgetContext) Value(any) any { return nil }

// Done is asked by the interpreter once before each instruction. It takes the instruction's cost off, one for nearly all, and
// answers nil (go on) while that much was left, and a closed channel (stop) for ever after.
func (c *budgetContext) Done() <-chan struct{} {
	b := c.budget
	if b == nil {
		return nil
	}
	cost := 1 + b.step
	if b.look && c.global != nil {
		cost += operandCost(c.global.CurrentThread)
	}
	if b.instructions >= cost && b.bytes >= 0 {
		b.instructions -= cost
		return nil
	}
	if b.bytes >= 0 {
		b.instructions = -1
	}
	return closedSignal
}

// Err is the reason of the stop, nil while the script may go on.
func (c *budgetContext) Err() error { return c.budget.spent() }

var _ context.Context = (*budgetContext)(nil)

// budgetOf returns the budget of the run that L belongs to, nil (unlimited) when L has no budgetContext.
func budgetOf(L *lua.LState) *budget {
	if c := runOf(L); c != nil {
		return c.budget
	}
	return nil
}

// runOf returns the context of the run that L belongs to, or nil.
func runOf(L *lua.LState) *budgetContext {
	c, _ := L.Context().(*budgetContext)
	return c
}

// newThread returns a Lua thread (the state of a coroutine) that counts on L's own budget, and charges for the memory
// that it takes. L.NewThread alone would give it a context derived from L's, and a context whose parent's Done is nil
// is never done: the thread would escape the count.
func newThread(L *lua.LState) *lua.LState {
	chargeThread(L)
	var th *lua.LState
	withoutContext(L, func() { th, _ = L.NewThread() })
	shareContext(L, th)
	return th
}

// chargeThread charges for the stacks of one more thread.
func chargeThread(L *lua.LState) {
	o := L.Options
	budgetOf(L).chargeBytes(L, threadBytes+int64(o.RegistrySize)*registerBytes+int64(o.CallStackSize)*callFrameBytes)
}

// withoutContext runs f while L has no context, so that what f makes from L does not derive one.
func withoutContext(L *lua.LState, f func()) {
	if ctx := L.Context(); ctx != nil {
		L.RemoveContext()
		defer L.SetContext(ctx)
	}
	f()
}

// shareContext makes th run under L's context.
func shareContext(L, th *lua.LState) {
	if ctx := L.Context(); ctx != nil {
		th.SetContext(ctx)
	}
}
