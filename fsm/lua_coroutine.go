// The coroutine library of Lua 5.1 over gopher-lua's threads. Coroutines count on the budget of the script that makes
// them, and how deep they may resume each other is bounded.

package fsm

import lua "github.com/yuin/gopher-lua"

// maxResumeDepth bounds coroutines that resume coroutines, as C Lua bounds its C calls: each level is a level of Go's
// stack, and past the end of that the process dies.
const maxResumeDepth = 190

// openCoroutine returns the table of the coroutine library. The caller makes it the global `coroutine`.
func openCoroutine(L *lua.LState) *lua.LTable {
	base := L.GetTop()
	lua.OpenCoroutine(L)
	original := L.Get(-1).(*lua.LTable)
	L.SetTop(base)
	function := func(name string) lua.LGFunction { return original.RawGetString(name).(*lua.LFunction).GFunction }
	c := coroutines{create: function("create"), resume: function("resume")}
	return newLibrary(L, []libraryFunction{
		{"create", c.luaCreate},
		{"resume", c.luaResume},
		{"running", function("running")},
		{"status", luaStatus},
		{"wrap", c.luaWrap},
		{"yield", luaYield},
	})
}

// coroutines holds what is used of gopher-lua's own library.
type coroutines struct{ create, resume lua.LGFunction }

// newCoroutine makes a suspended coroutine of argument 1.
func (c coroutines) newCoroutine(L *lua.LState) *lua.LState {
	if f, ok := L.Get(1).(*lua.LFunction); !ok || f.IsG {
		argError(L, 1, "Lua function expected")
	}
	chargeThread(L)
	withoutContext(L, func() { c.create(L) })
	th := L.Get(-1).(*lua.LState)
	L.Pop(1)
	shareContext(L, th)
	return th
}

func (c coroutines) luaCreate(L *lua.LState) int {
	L.Push(c.newCoroutine(L))
	return 1
}

// luaResume is coroutine.resume(thread, ...).
func (c coroutines) luaResume(L *lua.LState) int {
	th, ok := L.Get(1).(*lua.LState)
	if !ok {
		argError(L, 1, "coroutine expected")
	}
	return c.resumeThread(L, th)
}

// resumeThread resumes th, which is argument 1, with the other arguments; the results are true and what it yields or
// returns, or false and an error.
func (c coroutines) resumeThread(L *lua.LState, th *lua.LState) int {
	if s := status(L, th); s != "suspended" {
		return failed(L, lua.LString("cannot resume "+s+" coroutine"))
	}
	depth := 0
	for p := L; p != nil; p = p.Parent {
		depth++
	}
	if depth > maxResumeDepth {
		return failed(L, lua.LString("C stack overflow"))
	}
	return c.resume(L)
}

// luaWrap is coroutine.wrap(f).
func (c coroutines) luaWrap(L *lua.LState) int {
	th := c.newCoroutine(L)
	L.Push(L.NewFunction(func(L *lua.LState) int {
		L.Insert(th, 1)
		n := c.resumeThread(L, th)
		if lua.LVAsBool(L.Get(-n)) {
			return n - 1
		}
		value := L.Get(-1)
		if s, ok := toString(value); ok {
			raise(L, s)
		}
		L.Error(value, 0)
		return 0
	}))
	return 1
}

// luaYield is coroutine.yield(...). A function of a library cannot be left and entered again, so it cannot be yielded
// across; C Lua has the same limit.
func luaYield(L *lua.LState) int {
	if L.Parent == nil {
		raiseBare(L, "attempt to yield across metamethod/C-call boundary")
	}
	for level := 1; ; level++ {
		dbg, ok := L.GetStack(level)
		if !ok {
			return -1 // tells the interpreter to yield
		}
		fn, err := L.GetInfo("f", dbg, lua.LNil)
		if f, isFn := fn.(*lua.LFunction); err != nil || isFn && f.IsG {
			raiseBare(L, "attempt to yield across metamethod/C-call boundary")
		}
	}
}

// luaStatus is coroutine.status(thread).
func luaStatus(L *lua.LState) int {
	th, ok := L.Get(1).(*lua.LState)
	if !ok {
		argError(L, 1, "coroutine expected")
	}
	return push(L, status(L, th))
}

// status returns what th is, seen from the running thread L.
func status(L, th *lua.LState) string {
	if th == L {
		return "running"
	}
	for p := L.Parent; p != nil; p = p.Parent {
		if p == th {
			return "normal"
		}
	}
	if th.Dead {
		return "dead"
	}
	return "suspended"
}
