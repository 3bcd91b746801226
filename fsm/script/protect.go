// Protected calls: pcall and xpcall as Redis's scripts see them.

package script

import "github.com/coordd/coordd/internal/lua"

// maxProtected bounds protected calls in each other, as C Lua bounds calls of C functions.
const maxProtected = 190

// protect calls the function that stands below nargs arguments on L's stack. It is nil with all
// results on the stack from that place, or the value of the error.
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
	L.Panic = in.leaving // PCall puts it back
	err := L.PCall(nargs, lua.MultRet)
	L.Panic = old
	in.protected--
	if err == nil {
		return nil
	}
	if err.Broken {
		panic(err)
	}
	in.budget.Charge(L, 1) // a script that is over its budget does not go on
	return err.Object
}

// pcall calls a function and catches its error. As Redis 7.0 does, it turns an error table into the
// text in its field err.
func (in *interpreter) pcall(L *lua.LState) int {
	if L.GetTop() == 0 {
		L.Push(lua.LTrue) // what Redis's own pcall calls when it gets nothing
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

// xpcall calls a function and gives its error to a handler. The handler runs after the function was
// left: without a debug library it could not tell.
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
