// The coroutine library of Lua 5.1. A coroutine uses the budget of its script, and the depth of
// nested resumes is bounded.

package script

import "github.com/coordd/coordd/fsm/script/lua"

// maxResumeDepth bounds coroutines that resume coroutines, as C Lua bounds its C calls. Each level
// takes Go stack, and overflowing that kills the process.
const maxResumeDepth = 190

// openCoroutine returns the table of the coroutine library. The caller makes it the global
// `coroutine`.
func openCoroutine(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"create", luaCreate},
		{"resume", luaResume},
		{"running", luaRunning},
		{"status", luaStatus},
		{"wrap", luaWrap},
		{"yield", luaYield},
	})
}

// newCoroutine makes a suspended coroutine of argument 1.
func newCoroutine(L *lua.LState) *lua.LState {
	f, ok := L.Get(1).(*lua.LFunction)
	if !ok || f.IsG {
		argError(L, 1, "Lua function expected")
	}
	budgetOf(L).Charge(L, coroutineInstructions)
	return L.NewCoroutine(f)
}

// coroutineInstructions is the cost of creating a coroutine.
const coroutineInstructions = 20

func luaCreate(L *lua.LState) int {
	L.Push(newCoroutine(L))
	return 1
}

// luaResume is coroutine.resume(thread, ...).
func luaResume(L *lua.LState) int {
	th, ok := L.Get(1).(*lua.LState)
	if !ok {
		argError(L, 1, "coroutine expected")
	}
	n, err := resumeThread(L, th, L.GetTop()-1)
	if err != nil {
		return failed(L, err)
	}
	L.Insert(lua.LTrue, L.GetTop()-n+1)
	return n + 1
}

// resumeThread resumes th with the top nargs values. It pushes what th yields or returns, or
// returns its error.
func resumeThread(L *lua.LState, th *lua.LState, nargs int) (n int, err lua.LValue) {
	if s := L.Status(th); s != "suspended" {
		return 0, lua.LString("cannot resume " + s + " coroutine")
	}
	depth := 0
	for p := L; p != nil; p = p.Parent {
		depth++
	}
	if depth > maxResumeDepth {
		return 0, lua.LString("C stack overflow")
	}
	n, failed := L.Resume(th, nargs)
	if failed != nil {
		if failed.Broken {
			panic(failed)
		}
		budgetOf(L).Charge(L, caughtError)
		return 0, failed.Object
	}
	return n, nil
}

// luaRunning is coroutine.running().
func luaRunning(L *lua.LState) int {
	if L.Parent == nil {
		L.Push(lua.LNil)
	} else {
		L.Push(L)
	}
	return 1
}

// luaWrap is coroutine.wrap(f).
func luaWrap(L *lua.LState) int {
	th := newCoroutine(L)
	L.Push(L.NewFunction(func(L *lua.LState) int {
		n, err := resumeThread(L, th, L.GetTop())
		if err == nil {
			return n
		}
		if s, ok := toString(err); ok {
			raise(L, s)
		}
		L.Error(err)
		return 0
	}))
	return 1
}

// luaYield is coroutine.yield(...). It cannot yield across a library function, which cannot be
// re-entered; C Lua has the same limit.
func luaYield(L *lua.LState) int {
	if !L.CanYield() {
		raiseBare(L, "attempt to yield across metamethod/C-call boundary")
	}
	return L.Yield()
}

// luaStatus is coroutine.status(thread).
func luaStatus(L *lua.LState) int {
	th, ok := L.Get(1).(*lua.LState)
	if !ok {
		argError(L, 1, "coroutine expected")
	}
	return push(L, L.Status(th))
}
