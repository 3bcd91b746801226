// An interpreter: a Lua state set up as Redis's sandbox, which runs one script after the other. Nothing that one script does can be seen by
// the next: all tables that outlive a run are behind read-only stand-ins (engine_readonly.go), and what the libraries remember hangs on
// the run's context.

package fsm

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"

	"github.com/coordd/coordd/commands"
)

// The sizes of a Lua state: call frames and registers. Both are reserved or grown per interpreter, and both bound
// recursion: of Lua functions, and of Go's stack where a library function calls back.
const (
	scriptCallFrames  = 2000
	scriptRegisters   = 2048
	scriptRegistersTo = 1 << 17
	registerStep      = 8192
	// threadCallFrames and threadRegisters are those of a coroutine, which the script's memory budget pays for.
	threadCallFrames = 200
	threadRegisters  = 512
)

// interpreter is one Lua state. It runs one script at a time.
type interpreter struct {
	table     *commands.Table
	L         *lua.LState
	globals   *lua.LTable
	guarded   *lua.LFunction              // calls its argument with those that follow; errors leave through capture
	traceless *lua.LFunction              // calls its argument; errors leave without a stack trace
	real      map[*lua.LTable]*lua.LTable // what stands behind a read-only stand-in; looked up only

	globalsStandIn *lua.LTable // _G
	globalsMeta    *lua.LTable // what getmetatable(_G) shows

	redisOfScripts, redisOfFunctions *lua.LTable // the global redis

	libraryGlobals *lua.LTable // of libraries: it is empty, librarySwitch is its metatable
	librarySwitch  *lua.LTable // its __index is loadGlobals while a library's code runs, and globals when one of its functions does
	loadGlobals    *lua.LTable

	// Of the running script.
	x         *commands.Call
	loading   *registered // by the library whose code runs, or nil
	readOnly  bool
	measuring bool // write counts what it would write
	trapped   bool // it was tried, and ended where it would have changed something
	protected int  // protected calls that are running, in each other
	resp      int  // what redis.setresp chose: 2 or 3
	budget    budget
	random    luaRandom
	call      commands.Call // the command that the script calls
	tx        commands.Tx
	reply     luaReply
	args      [][]byte
	arena     []byte
	chunks    map[string]string // the name that load was given, by the one that errors show; looked up only

	metatables map[*lua.LTable]bool // that setmetatable was given, maxLinks of them at most; looked up and counted only

	failedSource string // where the error was raised that ends the script
	failedLine   int
}

// newInterpreter returns an interpreter whose scripts call the commands of table.
func newInterpreter(table *commands.Table) *interpreter {
	L := lua.NewState(lua.Options{
		CallStackSize: scriptCallFrames, RegistrySize: scriptRegisters, RegistryMaxSize: scriptRegistersTo,
		RegistryGrowStep: registerStep, SkipOpenLibs: true,
	})
	L.Options.CallStackSize, L.Options.RegistrySize = threadCallFrames, threadRegisters // what newThread goes by
	in := &interpreter{table: table, L: L, real: map[*lua.LTable]*lua.LTable{}}
	in.globals = L.Get(lua.GlobalsIndex).(*lua.LTable)
	in.guarded = L.NewFunction(func(L *lua.LState) int {
		L.Panic = in.capture // L.PCall puts the old one back
		L.Call(L.GetTop()-1, 1)
		return 1
	})
	in.traceless = L.NewFunction(func(L *lua.LState) int {
		L.Panic = in.leave // L.PCall puts the old one back
		L.Call(L.GetTop()-1, lua.MultRet)
		return L.GetTop()
	})
	in.openSandbox()
	return in
}

// capture is how an error leaves the script's function: its value is on top of the stack. It notes where the error was raised:
// in the function on top, or in the one that called it where that is a Go function.
func (in *interpreter) capture(L *lua.LState) {
	in.failedSource, in.failedLine = "", 0
	for level := range 2 {
		dbg, ok := L.GetStack(level)
		if _, below := L.GetStack(level + 1); !ok || !below { // the last one is guarded
			break
		}
		if _, err := L.GetInfo("Sl", dbg, lua.LNil); err == nil && dbg.Source != "" && dbg.CurrentLine >= 0 {
			in.failedSource, in.failedLine = dbg.Source, dbg.CurrentLine
			break
		}
		if level == 1 {
			in.failedSource, in.failedLine = goSource, -1
		}
	}
	in.leave(L)
}

// goSource is how C Lua shows functions that are not written in Lua.
const goSource = "=[C]"

// leave is how an error leaves a protected call. It charges for the way: Go looks at every frame of its stack between the error and who
// catches it, and recursion through metamethods has four of them for each of Lua's.
func (in *interpreter) leave(L *lua.LState) {
	value := L.Get(-1)
	cost := caughtError + frameInstructions*frames(L)
	if s, ok := value.(lua.LString); ok { // a text that was built, and that reword reads several times
		in.budget.sees(len(s))
		in.budget.bytes = subtract(in.budget.bytes, int64(len(s)))
		cost += int64(len(s)) / 8
	}
	in.budget.instructions = subtract(in.budget.instructions, cost)
	panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: reword(value), StackTrace: noTrace})
}

// What an error charges, and for each call frame that is in use besides.
const (
	caughtError       = 50
	frameInstructions = 8
)

// frames is how many call frames of L are in use, or 0 where they are few.
func frames(L *lua.LState) int64 {
	const few = 30
	if _, deep := L.GetStack(few); !deep {
		return 0
	}
	low, high := few, 1+max(scriptCallFrames, threadCallFrames)
	for low+1 < high {
		middle := (low + high) / 2
		if _, deep := L.GetStack(middle); deep {
			low = middle
		} else {
			high = middle
		}
	}
	return int64(high)
}

// run runs a script, or a function of a library, and writes its reply. name is what errors call it by: its SHA1, or its name. The
// interpreter must not be used again unless reusable.
func (in *interpreter) run(x *commands.Call, p *program, name string, script commands.Script) (reusable bool) {
	return in.runWithin(x, p, name, script, budget{instructions: instructionsFor(x), bytes: scriptBytes})
}

// instructionsFor is how many instructions a script may execute that x calls: in a transaction, what the commands before it left.
func instructionsFor(x *commands.Call) int64 { return int64(min(x.Left(), scriptInstructions)) }

// account is run, and adds what the script took of its budget to the work of the call, of instructions or of memory, whichever is the larger part.
// The work of the commands that it called is in that.
func (in *interpreter) account(x *commands.Call, p *program, name string, script commands.Script) (reusable bool) {
	before, instructions := x.Work, instructionsFor(x)
	reusable = in.run(x, p, name, script)
	used := max(instructions-max(in.budget.instructions, 0), (scriptBytes-max(in.budget.bytes, 0))*scriptInstructions/scriptBytes)
	x.Work = max(x.Work, before+uint64(used))
	return reusable
}

// runWithin is run with a budget.
func (in *interpreter) runWithin(x *commands.Call, p *program, name string, script commands.Script, b budget) (reusable bool) {
	L := in.L
	in.begin(p, b)
	in.x, in.readOnly = x, script.ReadOnly || p.noWrites
	in.random = luaRandom{state: x.Seed}
	in.tx = commands.Tx{DB: x.Tx.DB, Proto: 2, Multi: x.Tx.Multi, Script: true}
	in.setGlobals(script)
	var err error
	L.Push(in.guarded)
	if script.Function != nil {
		err = in.pushFunction(p, name, script)
	} else {
		L.Push(L.NewFunctionFromProto(p.proto))
	}
	if err == nil {
		err = L.PCall(L.GetTop()-1, 1, nil)
	}
	if err == nil {
		in.answer(x.Out, L.Get(-1))
	} else {
		x.Out.Error(in.failure(err, name))
	}
	in.x = nil
	in.call, in.reply = commands.Call{}, luaReply{stack: in.reply.stack}
	if cap(in.arena) > maxKeptArena {
		in.arena = nil
	}
	return in.end(err)
}

// begin makes the state ready for a program, with a budget.
func (in *interpreter) begin(p *program, b budget) {
	in.resp, in.protected, in.trapped = 2, 0, false
	in.budget = b
	in.chunks, in.metatables, in.failedSource, in.failedLine = nil, nil, "", 0
	run := newBudgetContext(&in.budget)
	run.global = in.L.G
	in.L.SetContext(run)
	in.L.G.CurrentThread = in.L
	in.budget.sees(p.longest)
	in.L.SetTop(0)
}

// end clears the stack. The interpreter must not be used again, after the program ended with err, unless reusable.
func (in *interpreter) end(err error) (reusable bool) {
	in.L.SetTop(0)
	e, _ := err.(*lua.ApiError)
	return (in.budget.spent() == nil || in.trapped) && (e == nil || e.Type != lua.ApiErrorPanic)
}

// setGlobals sets what differs between the globals of a script and of a function, which gets its keys and arguments otherwise.
func (in *interpreter) setGlobals(script commands.Script) {
	if script.Function != nil {
		in.globals.RawSetString("redis", in.redisOfFunctions)
		in.globals.RawSetString("KEYS", lua.LNil)
		in.globals.RawSetString("ARGV", lua.LNil)
		return
	}
	in.globals.RawSetString("redis", in.redisOfScripts)
	in.globals.RawSetString("KEYS", in.stringTable(script.Keys))
	in.globals.RawSetString("ARGV", in.stringTable(script.Args))
}

// maxKeptArena is how many bytes of arguments an interpreter keeps room for between scripts.
const maxKeptArena = 1 << 20

// stringTable makes a Lua array of strings.
func (in *interpreter) stringTable(list [][]byte) *lua.LTable {
	t := in.L.CreateTable(len(list), 0)
	for _, b := range list {
		in.budget.sees(len(b))
		t.Append(lua.LString(b))
	}
	return t
}

// errorText is the error that ended a program as Redis words it.
func (in *interpreter) errorText(err error) string {
	value := lua.LValue(lua.LString(err.Error()))
	if e, ok := err.(*lua.ApiError); ok {
		value = e.Object
	}
	t, ok := value.(*lua.LTable)
	if !ok {
		return "ERR " + describe(in.L, value)
	}
	if text, ok := toString(t.RawGetString("err")); ok {
		return text
	}
	return "ERR the script raised a table without a field err" // at this Redis 7.0 dies
}

// failure is errorText with the program's name and the place of the error, where that is known.
func (in *interpreter) failure(err error, name string) string {
	text := in.errorText(err)
	if in.failedSource == "" {
		return text
	}
	source, ok := in.chunks[in.failedSource]
	switch {
	case in.failedSource == goSource:
		source = goSource
	case !ok:
		source = "@" + in.failedSource
	}
	return text + " script: " + name + ", on " + source + ":" + strconv.Itoa(in.failedLine) + "."
}
