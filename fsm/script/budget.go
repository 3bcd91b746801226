// What library functions charge to a script's budget, and what they remember during a run. Package
// lua charges for the instructions and the memory of the virtual machine.

package script

import "github.com/coordd/coordd/fsm/script/lua"

// The error texts of a script that exceeds its budget.
const (
	errScriptInstructions = lua.ErrInstructions
	errScriptMemory       = lua.ErrMemory
)

// budgetOf returns the budget of the run that L belongs to.
func budgetOf(L *lua.LState) *lua.Budget { return &L.G.Budget }

// chargeWork charges for a library function that reads or writes the given number of bytes.
func chargeWork(L *lua.LState, bytes int) { L.G.Budget.Charge(L, 1+int64(bytes)/16) }

// chargeWalk charges for a walk over all pairs of a table, in which what is done with a pair is
// charged besides.
func chargeWalk(L *lua.LState, t *lua.LTable) { L.G.Budget.Charge(L, t.Walk()) }

// walk calls f with each pair of a table, which f may change as a script may, until f returns
// false. The steps are charged.
func walk(L *lua.LState, t *lua.LTable, f func(key, value lua.LValue) bool) {
	if !L.G.Strict {
		chargeWalk(L, t)
		for key, value := t.Next(lua.LNil); key != lua.LNil; key, value = t.Next(key) {
			L.G.Budget.Charge(L, 1)
			if !f(key, value) {
				return
			}
		}
		return
	}
	key, value, ok := L.Next(t, lua.LNil)
	for ok && key != lua.LNil && f(key, value) {
		key, value, ok = L.Next(t, key)
	}
}

// runState is what the libraries remember during a run: cjson's settings, and the numbers that
// tostring assigned. Each run starts without any, because a node restored from a snapshot has not
// seen the earlier runs.
type runState struct {
	notes  map[any]any        // keyed by the library; looked up only
	labels map[lua.LValue]int // numbers that tostring assigned; looked up only
	over   bool               // the program has ended: nobody catches an error
}

// runOf returns the state of the run that L belongs to.
func runOf(L *lua.LState) *runState {
	r, _ := L.G.Run.(*runState)
	if r == nil {
		r = &runState{}
		L.G.Run = r
	}
	return r
}
