// What library functions charge to a script's budget (package lua counts the instructions and the
// memory of the virtual machine), and what they keep for a run.

package script

import "github.com/coordd/coordd/internal/lua"

// The texts with which a script that is over its budget is stopped.
const (
	errScriptInstructions = lua.ErrInstructions
	errScriptMemory       = lua.ErrMemory
)

// budgetOf returns the budget of the run that L belongs to.
func budgetOf(L *lua.LState) *lua.Budget { return &L.G.Budget }

// chargeWork charges for a call of a library function that reads or writes so many bytes.
func chargeWork(L *lua.LState, bytes int) { L.G.Budget.Charge(L, 1+int64(bytes)/16) }

// chargeWalk charges for what a walk over all pairs of a table steps over besides: keys that were
// set to nil, and the nils of the array.
func chargeWalk(L *lua.LState, t *lua.LTable) { L.G.Budget.Charge(L, int64(t.Empty())/4) }

// runState is what the libraries remember during a run: cjson's settings, the names of tables that
// were printed. It is reset for each run, so that nothing leaks from one into the next, which a
// node restored from a snapshot would not have seen.
type runState struct {
	notes  map[any]any        // by the library's own key; looked up only
	labels map[lua.LValue]int // numbers that tostring gave out; looked up only
}

// runOf returns what is kept for the run that L belongs to.
func runOf(L *lua.LState) *runState {
	r, _ := L.G.Run.(*runState)
	if r == nil {
		r = &runState{}
		L.G.Run = r
	}
	return r
}
