// pcall and xpcall, and the coroutine library. gopher-lua's own ones do work that no budget sees: they write a stack
// trace for each error that they catch (its cost grows with the square of the depth), and their coroutines derive a
// context of their own, which escapes the count.

package fsm

import (
	lua "github.com/yuin/gopher-lua"
)

// noTrace stands where an error's stack trace would, so that none is written.
const noTrace = "-"

// maxResumeDepth bounds coroutines that resume coroutines, as C Lua bounds its C calls: each level is a level of Go's
// stack, and past its end the process dies.
const maxResumeDepth = 200

// protect calls the function that stands below nargs arguments on L's stack, as L.PCall does with all results kept,
// and returns the value of the error, nil where there was none. handler (nil: none) turns the error into another.
func protect(L *lua.LState, nargs int, handler *lua.LFunction) lua.LValue {
	base := L.GetTop() - nargs
	L.Insert(L.NewFunction(func(L *lua.LState) int {
		if handler == nil {
			L.Panic = panicWithoutTrace // L.PCall puts the old one back
		}
		L.Call(L.GetTop()-1, lua.MultRet)
		return L.GetTop()
	}), base)
	err := L.PCall(nargs+1, lua.MultRet, handler)
	if err == nil {
		return nil
	}
	if e, ok := err.(*lua.ApiError); ok {
		return e.Object
	}
	return lua.LString(err.Error())
}

// panicWithoutTrace is how an error leaves a function that protect called: the error's value is on top of L's stack.
func panicWithoutTrace(L *lua.LState) {
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: L.Get(-1), StackTrace: noTrace})
}
