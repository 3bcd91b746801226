// The interpreter: a Lua state set up as Redis's sandbox, which runs scripts one after another. No
// script sees what an earlier one did: tables that outlive a run are read-only (readonly.go), and
// what the libraries remember ends with the run.

package script

import (
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

// The sizes of a Lua state: call frames and registers. Both bound the recursion of Lua functions,
// and of Go's stack where a library function calls back.
const (
	scriptCallFrames  = 2000
	scriptRegisters   = 2048
	scriptRegistersTo = 1 << 17
	// threadCallFrames and threadRegisters are the most that a coroutine gets; the script's memory
	// budget pays for them.
	threadCallFrames = 200
	threadRegisters  = 1 << 16
)

// interpreter is one Lua state. It runs one script at a time.
type interpreter struct {
	table   *commands.Table
	L       *lua.LState
	budget  *lua.Budget
	leaving func(*lua.LState) // leave
	looking func() bool       // look

	libraries []*loadedLibrary // whose code has run

	globalTables
	running
	calling
}

// globalTables are what scripts and libraries see at first.
type globalTables struct {
	globals                          *lua.LTable
	redisOfScripts, redisOfFunctions *lua.LTable // the global redis

	// where the globals are that each run sets
	redisPlace, serverPlace, keysPlace, argvPlace int
	keys, argv                                    lua.LTable   // KEYS and ARGV of what runs
	texts                                         []lua.LValue // their elements
	interned                                      interned

	libraryGlobals *lua.LTable // a library's globals: empty, with librarySwitch as metatable
	// its __index is loadGlobals while a library's code runs, and globals while one of its
	// functions runs
	librarySwitch *lua.LTable
	loadGlobals   *lua.LTable
}

// running is about the script that runs.
type running struct {
	x         *commands.Call
	overseer  commands.Overseer  // nil: none
	watch     commands.Stopwatch // stopwatch of overseer, once it worked for a while
	loading   *registered        // by the library whose code runs, or nil
	readOnly  bool
	measuring bool // write counts what it would write
	measure   *measure
	used      uint64 // by the newest run, instructions
	stopped   bool   // the newest run exceeded its budget
	aborted   bool   // the run ended early, and runs again elsewhere
	unused    int64  // instructions that were left then
	protected int    // depth of nested protected calls
	resp      int    // what redis.setresp chose: 2 or 3
	random    luaRandom
	// the name given to load, by the one that errors show; looked up only
	chunks map[string]string

	failedSource string // where the error that ends the script was raised
	failedLine   int
}

// calling is about the command that the script calls.
type calling struct {
	call         commands.Call
	tx           commands.Tx
	reply        luaReply
	names        [1 << namesBits]namedSpec // commands that scripts called, by a hash of the name
	args         [][]byte
	arena        []byte
	arenaCharged int // the most bytes of arguments of one command in this run
}

// newInterpreter returns an interpreter whose scripts call the commands of table. strict is that of
// the level at which they run.
func newInterpreter(table *commands.Table, strict bool) *interpreter {
	return newRoundingInterpreter(table, strict, strict)
}

// newRoundingInterpreter returns an interpreter that may round elementary functions correctly where
// those of its level do not.
func newRoundingInterpreter(table *commands.Table, strict, rounds bool) *interpreter {
	L := lua.NewState(lua.Options{
		CallFrames: scriptCallFrames, Registers: scriptRegisters, MaxRegisters: scriptRegistersTo,
		ThreadFrames: threadCallFrames, ThreadRegisters: threadRegisters,
	})
	in := &interpreter{table: table, L: L, budget: &L.G.Budget,
		globalTables: globalTables{globals: L.G.Global}}
	L.G.RoundsPowers, L.G.Strict = rounds, strict
	in.leaving, in.looking = in.leave, in.look
	in.reply.interned = &in.interned
	in.measure = &measure{ReplySizer: commands.NewReplySizer(), b: in.budget}
	L.Panic = in.capture
	in.openSandbox()
	L.Opened()
	return in
}

// capture handles an error that leaves the script's function, with its value on top of the stack.
// It records where the error was raised: in the function on top, or in its caller if that is a Go
// function.
func (in *interpreter) capture(L *lua.LState) {
	in.failedSource, in.failedLine = "", 0
	for level := range 2 {
		f, ok := L.Frame(level)
		if !ok {
			break
		}
		if !f.IsG {
			in.failedSource, in.failedLine = f.Source, f.Line
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

// leave handles an error that leaves a protected call. It charges for unwinding: Go visits every
// stack frame up to the recover, and recursion through metamethods has four Go frames per Lua
// frame.
func (in *interpreter) leave(L *lua.LState) {
	in.budget.Take(caughtError+frameInstructions*int64(L.Depth()), 0)
	panic(&lua.ApiError{Object: L.Get(-1)})
}

// What an error costs, and what each call frame in use adds.
const (
	caughtError       = 50
	frameInstructions = 8
)

// run runs a script or a library's function and writes its reply. Errors show name: the SHA1, or
// the function's name. The interpreter must not be used again unless reusable.
func (in *interpreter) run(x *commands.Call, p *program, name string,
	script commands.Script) (reusable bool) {
	b := lua.Budget{Instructions: instructionsFor(x), Bytes: scriptBytes}
	in.oversee(x, &b)
	return in.runWithin(x, p, name, script, b)
}

// instructionsFor is the instruction budget of a script that x calls: in a transaction, what
// earlier commands left.
func instructionsFor(x *commands.Call) int64 {
	return int64(min(uint64(x.Left()), x.RequestWork()))
}

// account is run, and adds to the work of the call the larger share that the script used of its
// budgets, instructions or memory. That includes the work of the commands that it called.
func (in *interpreter) account(x *commands.Call, c *chosen) (reusable bool) {
	before, instructions := x.Work, instructionsFor(x)
	defer in.overseen(c)
	reusable = in.run(x, c.program, c.name, c.script)
	unused := in.budget.Instructions
	if in.aborted {
		unused = in.unused
	}
	used := max(instructions-max(unused, 0),
		(scriptBytes-max(in.budget.Bytes, 0))*scriptInstructions/scriptBytes)
	x.Work = max(x.Work, before+uint64(used))
	in.used, in.stopped = uint64(used), !in.aborted && in.budget.Spent() != ""
	if in.stopped && x.Most > 0 {
		in.stopped, x.Aborted = false, true // it is run again, with more
	}
	return reusable
}

// runWithin is run with a budget.
func (in *interpreter) runWithin(x *commands.Call, p *program, name string, script commands.Script,
	b lua.Budget) (reusable bool) {
	L := in.L
	in.begin(b)
	in.x, in.readOnly = x, script.ReadOnly || p.noWrites()
	in.random = luaRandom{state: x.Seed}
	in.tx = commands.Tx{DB: x.Tx.DB, Proto: 2, Multi: x.Tx.Multi, Script: true,
		OOM: x.Tx.OOM && !p.allowOOM() && !script.AllowOOM}
	in.setGlobals(script)
	var failed *lua.ApiError
	var l *loadedLibrary
	nargs := 0
	if script.Function != nil {
		l, failed = in.pushFunction(p, name, script)
		nargs = 2
	} else {
		L.PushMain(p.proto)
	}
	if failed == nil {
		failed = L.PCall(nargs, 1)
	}
	if failed == nil {
		in.passOn(L.Get(-1))
		in.answer(x, L.Get(-1))
	} else {
		in.passOn(failed.Object)
		x.Out.Error(in.failure(failed, name))
	}
	in.chargeCall(l)
	in.x = nil
	in.call, in.reply = commands.Call{}, luaReply{stack: in.reply.stack, interned: &in.interned}
	if cap(in.arena) > maxKeptArena {
		in.arena = nil
	}
	return in.clearStack(failed)
}

// passOn notes that an error of a command, if v is one, becomes the program's reply, which is
// counted as others are.
func (in *interpreter) passOn(v lua.LValue) {
	t, ok := v.(*lua.LTable)
	if !ok || t.RawGetString(countedField) != lua.LTrue {
		return
	}
	if text, ok := t.RawGetString("err").(lua.LString); ok {
		in.x.ScriptCalls.Erred(string(text), -1)
	}
}

// begin prepares the state for a program, with a budget.
func (in *interpreter) begin(b lua.Budget) {
	in.resp, in.protected, in.aborted, in.arenaCharged = 2, 0, false, 0
	in.chunks, in.failedSource, in.failedLine = nil, "", 0
	in.L.Begin(b)
}

// clearStack clears the stack. The interpreter must not be used again unless reusable.
func (in *interpreter) clearStack(failed *lua.ApiError) (reusable bool) {
	in.L.End()
	in.forgetArguments()
	return (in.budget.Spent() == "" || in.aborted) && (failed == nil || !failed.Broken)
}

// setGlobals sets the globals that differ between scripts and functions. Functions get keys and
// arguments as parameters.
func (in *interpreter) setGlobals(script commands.Script) {
	if script.Function != nil {
		in.setRedis(in.redisOfFunctions)
		in.globals.SetPlace(in.keysPlace, lua.LNil)
		in.globals.SetPlace(in.argvPlace, lua.LNil)
		return
	}
	in.setRedis(in.redisOfScripts)
	in.fillArguments(script)
	in.globals.SetPlace(in.keysPlace, &in.keys)
	in.globals.SetPlace(in.argvPlace, &in.argv)
}

func (in *interpreter) setRedis(api *lua.LTable) {
	in.globals.SetPlace(in.redisPlace, api)
	if in.L.G.Strict {
		in.globals.SetPlace(in.serverPlace, api)
	}
}

// fillArguments makes KEYS and ARGV, or what a function gets in their place. The tables are those
// of the run before, which nothing refers to any more: chargeCall drops a library that has kept
// them.
func (in *interpreter) fillArguments(script commands.Script) {
	in.texts = in.texts[:0]
	for _, list := range [2][][]byte{script.Keys, script.Args} {
		for _, b := range list {
			in.texts = append(in.texts, in.interned.value(b))
		}
	}
	in.keys.Refill(in.texts[:len(script.Keys)], in.L.G.Strict)
	in.argv.Refill(in.texts[len(script.Keys):], in.L.G.Strict)
}

// forgetArguments releases what KEYS and ARGV hold.
func (in *interpreter) forgetArguments() {
	in.keys, in.argv = lua.LTable{}, lua.LTable{}
	clear(in.texts)
	if cap(in.texts) > maxKeptTexts {
		in.texts = nil
	}
}

// maxKeptTexts is how many slots for keys and arguments an interpreter keeps between scripts.
const maxKeptTexts = 1024

// maxKeptArena is how many bytes for arguments an interpreter keeps between scripts.
const maxKeptArena = 1 << 20

// errorText is the error that ended a program, in Redis's words.
func (in *interpreter) errorText(e *lua.ApiError) string {
	t, ok := e.Object.(*lua.LTable)
	if !ok {
		runOf(in.L).over = true
		return "ERR " + in.affordable(describe(in.L, e.Object), errScriptMemory)
	}
	if text, ok := toString(t.RawGetString("err")); ok {
		return in.affordable(text, "ERR "+errScriptMemory)
	}
	return "ERR the script raised a table without a field err" // Redis 7.0 crashes here
}

// affordable returns text, or instead if the script cannot pay for text, which is copied twice more
// on its way to the reply.
func (in *interpreter) affordable(text, instead string) string {
	if n := int64(len(text)); n > longPiece {
		if in.budget.Take(n/8, 2*n); in.budget.Bytes < 0 {
			return instead
		}
	}
	return text
}

// failure is errorText with the program's name and the position of the error, if known.
func (in *interpreter) failure(e *lua.ApiError, name string) string {
	text := in.errorText(e)
	if in.failedSource == "" {
		return text
	}
	source, ok := in.chunks[in.failedSource]
	switch {
	case in.failedSource == goSource:
		source = goSource
	case !ok:
		source = "@" + in.failedSource
	case in.L.G.Strict: // the name may be long
		source = in.affordable(source, in.failedSource)
	}
	return text + " script: " + name + ", on " + source + ":" + strconv.Itoa(in.failedLine) + "."
}
