// Read-only tables. gopher-lua has none, so a script never sees a table that outlives it: it sees an empty stand-in whose metatable looks
// names up in the real one and refuses assignments. Library functions that would write to a table past its metatable are
// wrapped to refuse a stand-in.

package fsm

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

const errReadonly = "Attempt to modify a readonly table"

// standIn returns the read-only stand-in of a table. index is what finds names: the table itself, or a function.
func (in *interpreter) standIn(table *lua.LTable, index lua.LValue) *lua.LTable {
	L := in.L
	meta := L.CreateTable(0, 2)
	meta.RawSetString("__index", index)
	meta.RawSetString("__newindex", L.NewFunction(refuse))
	s := L.CreateTable(0, 0)
	s.Metatable = meta
	in.real[s] = table
	return s
}

// refuse is the __newindex of read-only tables.
func refuse(L *lua.LState) int {
	raise(L, errReadonly)
	return 0
}

// behind returns the real table behind a stand-in, and any other table as it is.
func (in *interpreter) behind(t *lua.LTable) *lua.LTable {
	if t.Metatable != lua.LNil {
		if r := in.real[t]; r != nil {
			return r
		}
	}
	return t
}

// checkWritable raises when argument n is a read-only table.
func (in *interpreter) checkWritable(L *lua.LState, n int) {
	if t, ok := L.Get(n).(*lua.LTable); ok && in.behind(t) != t {
		raiseBare(L, errReadonly)
	}
}

// writing wraps a library function that writes to the table that is its first argument.
func (in *interpreter) writing(f *lua.LFunction) *lua.LFunction {
	inner := f.GFunction
	return in.L.NewFunction(func(L *lua.LState) int {
		in.checkWritable(L, 1)
		return inner(L)
	})
}

// openSandbox fills the globals with what Redis's scripts see.
func (in *interpreter) openSandbox() {
	L := in.L
	for _, f := range in.baseFunctions() {
		in.globals.RawSetString(f.name, L.NewFunction(f.fn))
	}
	in.globals.RawSetString("_VERSION", lua.LString("Lua 5.1"))
	strings := openString(L)
	in.library("string", strings)
	tables := openTable(L)
	for _, name := range []string{"insert", "remove", "sort"} {
		tables.RawSetString(name, in.writing(tables.RawGetString(name).(*lua.LFunction)))
	}
	in.library("table", tables)
	in.library("math", in.openMath())
	in.library("os", newLibrary(L, []libraryFunction{{"clock", in.osClock}}))
	in.library("coroutine", openCoroutine(L))
	in.library("cjson", openCJSON(L))
	in.library("cmsgpack", openCmsgpack(L))
	in.library("struct", openStruct(L))
	in.library("bit", openBit(L))
	in.redisOfScripts, in.redisOfFunctions = in.openRedis(true), in.openRedis(false)
	in.globals.RawSetString("redis", in.redisOfScripts)
	in.globals.RawSetString("KEYS", lua.LFalse) // their places in the order of the globals
	in.globals.RawSetString("ARGV", lua.LFalse)

	in.globalsStandIn = in.standIn(in.globals, L.NewFunction(in.globalByName))
	in.globals.RawSetString("_G", in.globalsStandIn)
	in.globals.RawSetString(hiddenConcat, L.NewFunction(concat))
	in.globals.RawSetString(hiddenLength, L.NewFunction(in.length))
	in.globals.RawSetString(hiddenKey, L.NewFunction(in.key))
	in.globals.RawSetString(hiddenTable, L.NewFunction(in.newTable))
	in.globals.RawSetString(hiddenVararg, L.NewFunction(in.vararg))
	in.globals.RawSetString(hiddenModulo, L.NewFunction(in.arithmetic("__mod", modulo)))
	in.globals.RawSetString(hiddenNumber, L.NewFunction(in.number))
	in.globals.RawSetString(hiddenReadonly, in.globalsStandIn)
	missing := L.CreateTable(0, 1)
	missing.RawSetString("__index", L.NewFunction(missingGlobal))
	in.globals.Metatable = missing
	in.globalsMeta = in.standIn(missing, missing)

	shown := L.CreateTable(0, 1)
	meta := L.CreateTable(0, 2)
	meta.RawSetString("__index", strings)
	in.openArithmetic(meta)
	shown.RawSetString("__index", in.globals.RawGetString("string"))
	meta.RawSetString("__metatable", in.standIn(shown, shown))
	L.SetMetatable(lua.LString(""), meta)
	in.openLibraries(missing)
}

// library makes a table a read-only global.
func (in *interpreter) library(name string, table *lua.LTable) {
	in.globals.RawSetString(name, in.standIn(table, table))
}

// missingGlobal is the __index of the globals.
func missingGlobal(L *lua.LState) int {
	name, _ := toString(L.Get(2))
	raise(L, "Script attempted to access nonexistent global variable '"+name+"'")
	return 0
}

// globalByName is the __index of _G.
func (in *interpreter) globalByName(L *lua.LState) int {
	v := in.globals.RawGet(L.Get(2))
	if v == lua.LNil || hidden(L.Get(2)) {
		return missingGlobal(L)
	}
	L.Push(v)
	return 1
}

// hidden says whether a key is the name of a hidden global.
func hidden(key lua.LValue) bool {
	s, ok := key.(lua.LString)
	return ok && len(s) > 0 && s[0] == 0
}

// tableCost is what a table constructor charges besides the values: roughly what gopher-lua allocates for a small table.
const tableCost = 512

// newTable is the hidden function round a table constructor, which may have taken any number of values from a call.
func (in *interpreter) newTable(L *lua.LState) int {
	in.budget.chargeBytes(L, tableCost)
	if t, ok := L.Get(1).(*lua.LTable); ok && in.budget.look {
		in.budget.chargeBytes(L, int64(slots(t))*valueBytes)
	}
	return 1
}

// vararg is the hidden function round `...` where it stands for any number of values: those are copied.
func (in *interpreter) vararg(L *lua.LState) int {
	n := L.GetTop()
	in.budget.hands(n)
	in.budget.charge(L, int64(n)/(valuesCopied/2))
	return n
}

// length is the hidden function that `#` calls.
func (in *interpreter) length(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		L.Push(lua.LNumber(len(v)))
	case *lua.LTable:
		L.Push(lua.LNumber(in.tableLength(L, in.behind(v))))
	default:
		raise(L, "attempt to get length of a "+v.Type().String()+" value")
	}
	return 1
}

// tableLength is #t. The nil slots at the end of the array, which it walks over, are dropped, so that each is paid for once.
func (in *interpreter) tableLength(L *lua.LState, t *lua.LTable) int {
	n := t.Len()
	if n > 0 {
		trim(L, &in.budget, t, n)
		return n
	}
	t.Insert(1, lua.LTrue) // so that there is an end to what trim drops
	trim(L, &in.budget, t, 1)
	t.Remove(1)
	return 0
}

// hashedKey is what assigning to a key that is no integer costs: three maps may grow.
const hashedKey = 3

// key is the hidden function round a key that is assigned to: it gets the key and the table, nil where that cannot be known, and returns
// the key. A number far past the array's end fills the gap with nils: it pays for them.
func (in *interpreter) key(L *lua.LState) int {
	k, ok := L.Get(1).(lua.LNumber)
	t, isTable := L.Get(2).(*lua.LTable)
	L.SetTop(1)
	if !ok || float64(k) != math.Trunc(float64(k)) {
		in.budget.charge(L, hashedKey)
		return 1
	}
	if !(k > smallKey) || k >= lua.LNumber(lua.MaxArrayIndex) {
		return 1
	}
	length := 0
	if isTable {
		length = in.tableLength(L, t)
	}
	if gap := int64(k) - int64(length) - 1; gap > 0 {
		in.budget.charge(L, gap/16)
		in.budget.chargeBytes(L, gap*registerBytes)
	}
	return 1
}
