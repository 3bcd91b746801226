// Arguments and errors of library functions, checked and worded as in C Lua 5.1. gopher-lua's own
// checks use other words, refuse numbers given as strings, and format numbers as Go does.

package script

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/fsm/script/lua"
)

// maxStackSlots is how many values C Lua lets a C function hold on its stack. It bounds the results
// of unpack and string.byte, and the nesting that cjson and cmsgpack accept.
const maxStackSlots = 8000

// raise raises an error message, after the position of the calling function if that is written in
// Lua.
func raise(L *lua.LState, msg string) {
	where := L.Where(1)
	L.ChargeString(len(where) + len(msg)) // msg may hold an argument
	L.Error(lua.LString(where + msg))
}

// raiseBare raises an error message without a position, as C Lua's core does inside a C function.
func raiseBare(L *lua.LState, msg string) {
	L.Error(lua.LString(msg))
}

// argError raises "bad argument #n to 'name' (msg)". As in C Lua, name is the one that the caller
// used, and the receiver of a method call is not counted.
func argError(L *lua.LState, n int, msg string) {
	name, method := L.CalledAs()
	if name == "" {
		name = "?"
	}
	if method {
		if n--; n == 0 {
			raise(L, "calling '"+name+"' on bad self ("+msg+")")
		}
	}
	raise(L, "bad argument #"+strconv.Itoa(n)+" to '"+name+"' ("+msg+")")
}

// typeError raises an argError with the expected type and the actual one.
func typeError(L *lua.LState, n int, expected string) {
	argError(L, n, expected+" expected, got "+argType(L, n))
}

// argType returns the type name of argument n, "no value" if it is absent.
func argType(L *lua.LState, n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// checkString returns argument n, a string or a number, as a string.
func checkString(L *lua.LState, n int) string {
	s, ok := toString(L.Get(n))
	if !ok {
		typeError(L, n, "string")
	}
	return s
}

// optString is checkString with a default for an absent or nil argument.
func optString(L *lua.LState, n int, absent string) string {
	if L.Get(n) == lua.LNil {
		return absent
	}
	return checkString(L, n)
}

// checkNumber returns argument n, a number or a numeric string.
func checkNumber(L *lua.LState, n int) float64 {
	v := L.Get(n)
	if s, isString := v.(lua.LString); isString {
		L.ChargeNumeral(string(s))
	}
	f, ok := toNumber(v)
	if !ok {
		typeError(L, n, "number")
	}
	return f
}

// checkInteger returns argument n as a 64-bit integer, truncated toward zero.
func checkInteger(L *lua.LState, n int) int64 { return truncate(checkNumber(L, n)) }

// optInteger is checkInteger with a default for an absent or nil argument.
func optInteger(L *lua.LState, n int, absent int64) int64 {
	if L.Get(n) == lua.LNil {
		return absent
	}
	return checkInteger(L, n)
}

// checkInt returns argument n as C Lua's luaL_checkint: the low 32 bits of the integer.
func checkInt(L *lua.LState, n int) int { return int(int32(checkInteger(L, n))) }

// optInt is checkInt with a default for an absent or nil argument.
func optInt(L *lua.LState, n int, absent int) int {
	if L.Get(n) == lua.LNil {
		return absent
	}
	return checkInt(L, n)
}

// checkTable returns argument n, which must be a table.
func checkTable(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		typeError(L, n, "table")
	}
	return t
}

// checkFunction returns argument n, which must be a function.
func checkFunction(L *lua.LState, n int) *lua.LFunction {
	f, ok := L.Get(n).(*lua.LFunction)
	if !ok {
		typeError(L, n, "function")
	}
	return f
}

// checkAny returns argument n, which must be present; nil counts as a value.
func checkAny(L *lua.LState, n int) lua.LValue {
	if n > L.GetTop() {
		argError(L, n, "value expected")
	}
	return L.Get(n)
}

// hasStack reports whether C Lua would let the running function push n more values.
func hasStack(L *lua.LState, n int64) bool { return int64(L.GetTop())+n <= maxStackSlots }

// toString converts a string or a number to a string; ok is false for other types.
func toString(v lua.LValue) (s string, ok bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return lua.FormatNumber(float64(v)), true
	}
	return "", false
}

// toNumber converts a number or a numeric string to a number; ok is false for other values.
func toNumber(v lua.LValue) (f float64, ok bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return lua.ParseNumber(string(v))
	}
	return 0, false
}

// truncate converts like the x86-64 instruction behind C's (long long)f: toward zero, with the
// smallest integer for NaN and for what does not fit. Go leaves those cases to the processor, so
// nodes could differ.
func truncate(f float64) int64 {
	if f >= -(1<<63) && f < 1<<63 {
		return int64(f)
	}
	return math.MinInt64
}

// truncateUnsigned converts like gcc's x86-64 code for C's (unsigned long)f: negative numbers wrap
// around.
func truncateUnsigned(f float64) uint64 {
	if f >= 1<<63 {
		return uint64(truncate(f-(1<<63))) ^ 1<<63
	}
	return uint64(truncate(f))
}

// newLibrary returns a table of the functions, in the order given.
func newLibrary(L *lua.LState, functions []libraryFunction) *lua.LTable {
	lib := L.CreateTable(0, len(functions))
	for _, f := range functions {
		lib.RawSetString(f.name, L.NewFunction(f.fn))
	}
	return lib
}

// libraryFunction is one entry of a library. A library is a list, because scripts can see the order
// of a table's keys, and that of a Go map is random.
type libraryFunction struct {
	name string
	fn   lua.LGFunction
}
