// The globals of a script. Tables that outlive a run are read-only, so no script affects the next.

package script

import (
	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

const errReadonly = "Attempt to modify a readonly table"

// checkWritable raises an error if argument n is a read-only table, and otherwise records that the
// function changes it.
func checkWritable(L *lua.LState, n int) {
	if t, ok := L.Get(n).(*lua.LTable); ok {
		if t.ReadOnly() {
			raiseBare(L, errReadonly)
		}
		L.TouchTable(t)
	}
}

// writing wraps a library function that changes its first argument, a table.
func writing(f lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		checkWritable(L, 1)
		return f(L)
	}
}

// readOnly makes a table read-only and returns it.
func readOnly(t *lua.LTable) *lua.LTable {
	t.SetReadOnly()
	return t
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
	in.library("table", openTable(L))
	in.library("math", in.openMath())
	in.library("os", newLibrary(L, []libraryFunction{{"clock", in.osClock}}))
	in.library("coroutine", openCoroutine(L))
	in.library("cjson", openCJSON(L))
	in.library("cmsgpack", openCmsgpack(L))
	in.library("struct", openStruct(L))
	in.library("bit", openBit(L))
	in.redisOfScripts, in.redisOfFunctions = in.openRedis(true), in.openRedis(false)
	in.nameAPI(in.globals, in.redisOfScripts)
	in.globals.RawSetString("KEYS", lua.LFalse) // fix their order among the globals
	in.globals.RawSetString("ARGV", lua.LFalse)
	in.globals.RawSetString("_G", in.globals)
	in.redisPlace, in.serverPlace = in.globals.Place("redis"), in.globals.Place("server")
	in.keysPlace, in.argvPlace = in.globals.Place("KEYS"), in.globals.Place("ARGV")
	missing := L.CreateTable(0, 1)
	missing.RawSetString("__index", L.NewFunction(missingGlobal))
	in.globals.Metatable = readOnly(missing)
	readOnly(in.globals)

	shown := L.CreateTable(0, 1)
	shown.RawSetString("__index", strings)
	meta := L.CreateTable(0, 2)
	meta.RawSetString("__index", strings)
	meta.RawSetString("__metatable", readOnly(shown))
	L.SetStringMetatable(meta)
	in.openLibraries(missing)
}

// strict reports whether a feature level has what came with LevelSecond: charges for all that takes
// time, Valkey's name of the server's API, errors that name what was called, and elementary
// functions that are rounded correctly. An interpreter has that or not: a global without a value
// would differ for next.
//
// Libraries that run again at a higher level still register the same functions. Code that loads
// finds a missing global only by an error that nothing there can catch, so a library that loaded
// without the name has not looked for it. (One could name its functions after the last digit of a
// logarithm; none does.)
func strict(level uint64) bool { return level >= commands.LevelSecond }

// nameAPI makes the server's API a global under its names.
func (in *interpreter) nameAPI(globals, api *lua.LTable) {
	globals.RawSetString("redis", api)
	if in.L.G.Strict {
		globals.RawSetString("server", api)
	}
}

// library makes a table a read-only global.
func (in *interpreter) library(name string, table *lua.LTable) {
	in.globals.RawSetString(name, readOnly(table))
}

// missingGlobal is the __index of the globals.
func missingGlobal(L *lua.LState) int {
	name, _ := toString(L.Get(2))
	raise(L, "Script attempted to access nonexistent global variable '"+name+"'")
	return 0
}
