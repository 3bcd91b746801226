// error and assert, which differ from gopher-lua's in the positions that they report.

package script

import "github.com/coordd/coordd/fsm/script/lua"

// failed pushes false and the error's value.
func failed(L *lua.LState, value lua.LValue) int {
	L.Push(lua.LFalse)
	L.Push(value)
	return 2
}

// luaError is the global error(value [, level]). A string or number gets the position of the
// function at that level as a prefix.
func luaError(L *lua.LState) int {
	level := optInt(L, 2, 1)
	value := L.Get(1)
	if s, ok := toString(value); ok && level > 0 {
		text := L.Where(level) + s
		L.ChargeString(len(text))
		raiseBare(L, text)
	}
	L.Error(value)
	return 0
}

// luaAssert is the global assert(value [, message, ...]).
func luaAssert(L *lua.LState) int {
	if !lua.LVAsBool(checkAny(L, 1)) {
		raise(L, optString(L, 2, "assertion failed!"))
	}
	return L.GetTop()
}
