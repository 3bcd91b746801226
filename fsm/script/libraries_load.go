// Running a library's code. While it loads it sees only redis.register_function, redis.log and
// constants, as on Redis; its functions then see what scripts see. Redis runs the code once per
// node, and functions keep what they store in local variables. Here each call finds the library as
// its code left it, so nodes cannot differ.

package script

import (
	"errors"
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

// The errors of redis.register_function, byte-equal with Redis 7.0.
const (
	errRegisterArgs    = "ERR wrong number of arguments to redis.register_function"
	errRegisterOutside = "ERR redis.register_function can only be called on FUNCTION LOAD " +
		"command"
	errRegisterTable = "ERR calling redis.register_function with a single argument is only " +
		"applicable to Lua table (representing named arguments)."
	errRegisterKey = "ERR named argument key given to redis.register_function is not a " +
		"string"
	errRegisterUnknown = "ERR unknown argument given to redis.register_function"
	errRegisterName    = "ERR function_name argument given to redis.register_function must " +
		"be a string"
	errRegisterDescription = "ERR description argument given to redis.register_function must be " +
		"a string"
	errRegisterCallback = "ERR callback argument given to redis.register_function must be a " +
		"function"
	errRegisterFlags = "ERR flags argument to redis.register_function must be a table " +
		"representing function flags"
	errRegisterFlag       = "ERR unknown flag given"
	errRegisterNoName     = "ERR redis.register_function must get a function name argument"
	errRegisterNoCallback = "ERR redis.register_function must get a callback argument"
	errRegisterFirst      = "ERR first argument to redis.register_function must be a string"
	errRegisterSecond     = "ERR second argument to redis.register_function must be a function"
	errRegisterTwice      = "ERR Function already exists in the library"
)

// What registering a function costs besides the bytes of its name and description.
const (
	registerInstructions = 50
	functionBytes        = 256
)

// registered is what the code of a library has registered.
type registered struct {
	functions []commands.Function
	callbacks []*lua.LFunction
	names     map[string]int // indexes; looked up only
}

func (r *registered) has(name string) bool {
	_, found := r.names[name]
	return found
}

// openLibraries makes the globals of libraries: an empty table that looks names up in the globals
// of the current phase.
func (in *interpreter) openLibraries(missing *lua.LTable) {
	L := in.L
	api := newLibrary(L, []libraryFunction{{"register_function", in.registerFunction},
		{"log", redisLog}})
	addConstants(api)
	api.Metatable = missing
	in.loadGlobals = L.CreateTable(0, 2)
	in.nameAPI(in.loadGlobals, readOnly(api))
	in.loadGlobals.Metatable = missing
	readOnly(in.loadGlobals)
	in.librarySwitch = L.CreateTable(0, 1)
	in.libraryGlobals = L.CreateTable(0, 0)
	in.libraryGlobals.Metatable = in.librarySwitch
	readOnly(in.libraryGlobals)
}

// loadLibrary runs a library's code within a budget and records what it registers. x is the request
// that loads it, or nil. The interpreter must not be used again unless reusable.
func (in *interpreter) loadLibrary(x *commands.Call, l *library, b lua.Budget) (reusable bool,
	err error) {
	if x != nil {
		in.oversee(x, &b)
		defer in.overseen(&chosen{library: l})
	}
	in.begin(b)
	found, failed := in.register(l.program)
	if failed != nil {
		err = errors.New(in.errorText(failed))
	}
	l.Functions, l.cost = found.functions, b.Instructions-max(in.budget.Instructions, 0)
	l.bytes = b.Bytes - max(in.budget.Bytes, 0)
	return in.clearStack(failed), err
}

// register runs a library's code.
func (in *interpreter) register(p *program) (*registered, *lua.ApiError) {
	in.loading = &registered{names: map[string]int{}}
	found := in.loading
	in.librarySwitch.RawSetString("__index", in.loadGlobals)
	chunk := in.L.NewFunctionFromProto(p.proto)
	chunk.Env = in.libraryGlobals
	in.L.Push(chunk)
	err := in.L.PCall(0, 0)
	in.librarySwitch.RawSetString("__index", in.globals)
	in.loading = nil
	return found, err
}

// loadedLibrary is a library whose code has run: the functions that it registered, with what they
// can reach. A call that changes any of that is the last to use it: the next call runs the code
// again.
type loadedLibrary struct {
	program *program
	*registered
	// cost of running the code: the larger of its instructions and its memory
	work  int64
	bytes int64 // memory of that
	kept  bool  // changes are recorded
}

// The limits of the libraries that an interpreter keeps, and of the memory that running their code
// took. librarySet.share selects them, so work does not depend on what was called before.
const (
	maxKeptLibraries    = 64
	maxKeptLibraryBytes = 16 << 20
)

// loaded returns a library whose code has run. A call pays for that only if every call must run it
// (chargeCall), so it does not matter which interpreter ran it before. Code that failed must run
// each time: the call pays for it like any other, and gets the library with the error.
func (in *interpreter) loaded(p *program) (*loadedLibrary, *lua.ApiError) {
	for _, l := range in.libraries {
		if l.program == p {
			return l, nil
		}
	}
	call := *in.budget
	*in.budget = lenientLoad
	in.budget.Watch = call.Watch
	in.budget.Begin()
	found, failed := in.register(p)
	took := lua.Budget{Instructions: lenientLoad.Instructions - in.budget.Instructions,
		Bytes: lenientLoad.Bytes - in.budget.Bytes}
	*in.budget = call
	l := &loadedLibrary{program: p, registered: found, bytes: took.Bytes}
	l.work = loadWork(took.Instructions, took.Bytes)
	if failed != nil {
		return l, failed
	}
	l.kept = p.keep && in.L.G.Run == nil && in.L.Watch(l.callbacks)
	in.L.G.Touched = false
	if l.kept {
		in.keepLibrary(l)
	}
	return l, nil
}

// loadWork is the work of running a library's code.
func loadWork(instructions, bytes int64) int64 {
	return max(instructions, bytes*scriptInstructions/scriptBytes)
}

// keepLibrary keeps a library for later calls, and drops those that are not to be kept any more. If
// there are still too many, because all libraries were replaced, it drops the others.
func (in *interpreter) keepLibrary(l *loadedLibrary) {
	in.libraries = slices.DeleteFunc(in.libraries, func(other *loadedLibrary) bool {
		return !other.program.keep
	})
	bytes := l.bytes
	for _, other := range in.libraries {
		bytes += other.bytes
	}
	if len(in.libraries) == maxKeptLibraries || bytes > maxKeptLibraryBytes {
		clear(in.libraries)
		in.libraries = in.libraries[:0]
	}
	in.libraries = append(in.libraries, l)
}

// chargeCall ends a call of a function, and charges it if the next call must run the library again.
func (in *interpreter) chargeCall(l *loadedLibrary) {
	if l == nil || l.kept && l.program.keep && !in.L.G.Touched {
		return
	}
	in.libraries = slices.DeleteFunc(in.libraries, func(other *loadedLibrary) bool {
		return other == l
	})
	in.budget.Take(l.work, 0)
}

// pushFunction pushes a function of a library with its arguments.
func (in *interpreter) pushFunction(p *program, name string,
	script commands.Script) (l *loadedLibrary, failed *lua.ApiError) {
	if l, failed = in.loaded(p); failed != nil {
		return l, failed
	}
	if i, ok := l.names[name]; ok {
		in.L.Push(l.callbacks[i])
		in.fillArguments(script)
		in.L.Push(&in.keys)
		in.L.Push(&in.argv)
		return l, nil
	}
	return l, &lua.ApiError{Object: lua.LString(
		"the library does not register this function any more")}
}

// registerFunction is redis.register_function(name, callback), or with one table of named
// arguments.
func (in *interpreter) registerFunction(L *lua.LState) int {
	if in.loading == nil {
		raiseReply(L, errRegisterOutside)
	}
	var f commands.Function
	var callback *lua.LFunction
	switch L.GetTop() {
	case 1:
		f, callback = in.namedArguments(L)
	case 2:
		var ok bool
		if f.Name, ok = toString(L.Get(1)); !ok {
			raiseReply(L, errRegisterFirst)
		}
		if callback, ok = L.Get(2).(*lua.LFunction); !ok {
			raiseReply(L, errRegisterSecond)
		}
	default:
		raiseReply(L, errRegisterArgs)
	}
	in.budget.Charge(L, registerInstructions)
	in.budget.ChargeBytes(L, functionBytes+int64(len(f.Name)+len(f.Description)))
	switch {
	case !isFunctionName(f.Name):
		raiseReply(L, errNameCharacters.Error())
	case in.loading.has(f.Name):
		raiseReply(L, errRegisterTwice)
	}
	// they may be substrings of a long text
	f.Name, f.Description = strings.Clone(f.Name), strings.Clone(f.Description)
	in.loading.names[f.Name] = len(in.loading.functions)
	in.loading.functions = append(in.loading.functions, f)
	in.loading.callbacks = append(in.loading.callbacks, callback)
	return 0
}

// namedArguments reads the table that is the only argument of redis.register_function.
func (in *interpreter) namedArguments(L *lua.LState) (
	f commands.Function, callback *lua.LFunction) {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		raiseReply(L, errRegisterTable)
	}
	named := false
	walk(L, t, func(key, value lua.LValue) bool {
		name, ok := toString(key)
		if !ok {
			raiseReply(L, errRegisterKey)
		}
		name = cString(name)
		problem := errRegisterUnknown
		switch {
		case isWord(name, "function_name"):
			f.Name, ok = toString(value)
			named, problem = true, errRegisterName
		case isWord(name, "description"):
			f.Description, ok = toString(value)
			f.Described, problem = true, errRegisterDescription
		case isWord(name, "callback"):
			callback, ok = value.(*lua.LFunction)
			problem = errRegisterCallback
		case isWord(name, "flags"):
			f.Flags, problem = in.readFunctionFlags(L, value)
			ok = problem == ""
		default:
			ok = false
		}
		if !ok {
			raiseReply(L, problem)
		}
		return true
	})
	switch {
	case !named:
		raiseReply(L, errRegisterNoName)
	case callback == nil:
		raiseReply(L, errRegisterNoCallback)
	}
	return f, callback
}

// readFunctionFlags reads an array of flags.
func (in *interpreter) readFunctionFlags(L *lua.LState,
	value lua.LValue) (flags commands.FunctionFlags, problem string) {
	t, ok := value.(*lua.LTable)
	if !ok {
		return 0, errRegisterFlags
	}
	for i := 1; L.RawGetInt(t, i) != lua.LNil; i++ {
		in.budget.Charge(L, 1)
		name, _ := toString(L.RawGetInt(t, i))
		lower := strings.ToLower(cString(name)) //purity: see isWord
		flag := commands.ParseFunctionFlag([]byte(lower))
		if flag == 0 {
			return 0, errRegisterFlag
		}
		flags |= flag
	}
	return flags, ""
}
