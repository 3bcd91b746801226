// Protected calls: pcall and xpcall as Redis's scripts see them, and gopher-lua's errors in C Lua's words.

package fsm

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// maxProtected bounds protected calls in each other, as C Lua bounds calls of C functions.
const maxProtected = 190

// protect calls the function that stands below nargs arguments on L's stack. It is nil with all results on the stack from that
// place, or the value of the error.
func (in *interpreter) protect(L *lua.LState, nargs int) lua.LValue {
	if in.protected >= maxProtected {
		raise(L, "C stack overflow")
	}
	if f := L.Get(L.GetTop() - nargs); f.Type() != lua.LTFunction && L.GetMetaField(f, "__call") == lua.LNil {
		return lua.LString("attempt to call a " + f.Type().String() + " value") // without a position: no Lua function calls it
	}
	in.protected++
	L.Insert(in.traceless, L.GetTop()-nargs)
	err := L.PCall(nargs+1, lua.MultRet, nil)
	in.protected--
	if err == nil {
		return nil
	}
	in.budget.charge(L, 1) // a script that is over its budget does not go on
	return reword(errorValue(err))
}

// pcall calls a function and catches its error. As Redis 7.0 does, it turns an error table into the text in its field err.
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

// xpcall calls a function and gives its error to a handler. The handler runs after the function was left: without a debug library it
// could not tell.
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

// reword puts the errors of gopher-lua's virtual machine in C Lua's words, as far as those can be known: it does not tell the name of
// the variable that had the wrong value.
func reword(value lua.LValue) lua.LValue {
	s, ok := value.(lua.LString)
	if !ok {
		return value
	}
	text := string(s)
	for _, w := range rewordings {
		before, after, found := strings.Cut(text, w.theirs)
		if !found || len(before) > maxPosition {
			continue
		}
		if w.rest != nil {
			after = w.rest(after)
		}
		return lua.LString(before + w.ours + after)
	}
	return value
}

// maxPosition bounds what may stand before an error of the virtual machine: a chunk's name and a line.
const maxPosition = 80

// rewordings are tried in order. rest makes the rest of the text from the rest of gopher-lua's.
var rewordings = [...]struct {
	theirs, ours string
	rest         func(string) string
}{
	{"attempt to index a non-table object(", "attempt to index a ", func(s string) string {
		kind, _, _ := strings.Cut(s, ")")
		return kind + " value"
	}},
	{"attempt to call a non-function object", "attempt to call a nil value", nil},
	{"cannot perform ", "attempt to perform arithmetic on a ", arithmeticCulprit},
	{"attempt to compare ", "attempt to compare ", func(s string) string {
		if a, b, ok := strings.Cut(s, " with "); ok && a == b {
			return "two " + a + " values"
		}
		return s
	}},
	{"__unm undefined", "attempt to perform arithmetic on a nil value", nil},
	{"for statement init must be a number", "'for' initial value must be a number", nil},
	{"for statement limit must be a number", "'for' limit must be a number", nil},
	{"for statement step must be a number", "'for' step must be a number", nil},
	{"registry overflow", "stack overflow", nil},
	{"too many recursions in gettable", "loop in gettable", nil},
	{"too many recursions in settable", "loop in settable", nil},
}

// arithmeticCulprit finds the operand that is to blame in "add operation between nil and number".
func arithmeticCulprit(s string) string {
	_, types, _ := strings.Cut(s, " between ")
	left, right, _ := strings.Cut(types, " and ")
	if left == "number" || left == "string" && right != "number" {
		left = right
	}
	return left + " value"
}
