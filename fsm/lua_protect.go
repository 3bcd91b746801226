// error and assert, and what a pcall is made of. gopher-lua's own ones differ from C Lua in where they say an error
// happened, and its PCall does work that no budget sees: it writes a stack trace for each error that it catches, at a
// cost that grows with the square of the depth, unless the error has one.

package fsm

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// noTrace stands where an error's stack trace would, so that none is written.
const noTrace = "-"

// callWithoutTrace calls its first argument with the others, in such a way that the L.PCall round it finds a stack
// trace in an error and does not write one.
func callWithoutTrace(L *lua.LState) int {
	L.Panic = panicWithoutTrace // L.PCall puts the old one back
	L.Call(L.GetTop()-1, lua.MultRet)
	return L.GetTop()
}

// panicWithoutTrace is how an error leaves a Lua state under callWithoutTrace; the error's value is on top.
func panicWithoutTrace(L *lua.LState) {
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: L.Get(-1), StackTrace: noTrace})
}

// failed makes false and the error's value the results.
func failed(L *lua.LState, value lua.LValue) int {
	L.Push(lua.LFalse)
	L.Push(value)
	return 2
}

// errorValue returns the Lua value of an error that L.PCall gave.
func errorValue(err error) lua.LValue {
	if e, ok := err.(*lua.ApiError); ok {
		return e.Object
	}
	return lua.LString(err.Error())
}

// luaError is the global error(value [, level]): a string or number gets the position of the function that the level
// names before it.
func luaError(L *lua.LState) int {
	level := optInt(L, 2, 1)
	value := L.Get(1)
	if s, ok := toString(value); ok && level > 0 {
		raiseBare(L, positionAt(L, level)+s)
	}
	L.Error(value, 0)
	return 0
}

// luaAssert is the global assert(value [, message, ...]).
func luaAssert(L *lua.LState) int {
	if !lua.LVAsBool(checkAny(L, 1)) {
		raise(L, optString(L, 2, "assertion failed!"))
	}
	return L.GetTop()
}

// positionAt returns "chunk:line: " of the function at a level of the call stack (0: the running one), "" when that
// is not a Lua function.
func positionAt(L *lua.LState, level int) string {
	dbg, ok := L.GetStack(level)
	if !ok {
		return ""
	}
	if _, err := L.GetInfo("Sl", dbg, lua.LNil); err != nil || dbg.Source == "" || dbg.CurrentLine < 0 {
		return ""
	}
	return dbg.Source + ":" + strconv.Itoa(dbg.CurrentLine) + ": "
}
