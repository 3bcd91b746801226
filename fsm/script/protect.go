// Protected calls: pcall and xpcall as Redis's scripts see them.

package script

import "github.com/coordd/coordd/fsm/script/lua"

// maxProtected bounds nested protected calls, as C Lua bounds nested C calls.
const maxProtected = 190

// protect calls the function below nargs arguments on L's stack. It leaves the results in its place
// and returns nil, or returns the value of the error.
func (in *interpreter) protect(L *lua.LState, nargs int) lua.LValue {
	if in.protected >= maxProtected {
		raise(L, "C stack overflow")
	}
	if f := L.Get(L.GetTop() - nargs); f.Type() != lua.LTFunction &&
		L.GetMetaField(f, "__call") == lua.LNil {
		// without a position: no Lua function calls it
		return lua.LString("attempt to call a " + f.Type().String() + " value")
	}
	in.protected++
	old := L.Panic
	L.Panic = in.leaving // PCall restores it
	err := L.PCall(nargs, lua.MultRet)
	L.Panic = old
	in.protected--
	if err == nil {
		return nil
	}
	if err.Broken {
		panic(err)
	}
	in.budget.Charge(L, 1) // a script over its budget does not continue
	return err.Object
}

// pcall calls a function and catches its error. As in Redis 7.0, an error table becomes the text of
// its field err.
func (in *interpreter) pcall(L *lua.LState) int {
	if L.GetTop() == 0 {
		L.Push(lua.LTrue) // what Redis's pcall calls without arguments
	}
	value := in.protect(L, L.GetTop()-1)
	if value == nil {
		L.Insert(lua.LTrue, 1)
		return L.GetTop()
	}
	if t, ok := value.(*lua.LTable); ok {
		switch text := t.RawGetString("err").(type) {
		case lua.LString, lua.LNumber:
			value = text
		}
	}
	L.Push(lua.LFalse)
	L.Push(value)
	return 2
}

// xpcall calls a function and passes its error to a handler, after unwinding: without a debug
// library the handler cannot tell.
func (in *interpreter) xpcall(L *lua.LState) int {
	handler := checkAny(L, 2)
	f := L.Get(1)
	L.SetTop(0)
	L.Push(f)
	value := in.protect(L, 0)
	if value == nil {
		L.Insert(lua.LTrue, 1)
		return L.GetTop()
	}
	L.SetTop(0)
	L.Push(handler)
	L.Push(value)
	if second := in.protect(L, 1); second != nil {
		L.SetTop(0)
		L.Push(second)
	}
	L.Insert(lua.LFalse, 1)
	return 2
}
