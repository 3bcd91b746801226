// What a library's code runs in. When it is loaded it sees nothing but redis.register_function, redis.log and constants, as on Redis; its functions
// then see what scripts see. Redis runs the code once and keeps what its functions remember in local variables, on each node for itself;
// here a function is called in libraries that were loaded just before, so that nothing remembered can differ from node to node.

package fsm

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/coordd/coordd/commands"
)

// The errors of redis.register_function, byte-equal with Redis 7.0.
const (
	errRegisterArgs        = "ERR wrong number of arguments to redis.register_function"
	errRegisterOutside     = "ERR redis.register_function can only be called on FUNCTION LOAD command"
	errRegisterTable       = "ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments)."
	errRegisterKey         = "ERR named argument key given to redis.register_function is not a string"
	errRegisterUnknown     = "ERR unknown argument given to redis.register_function"
	errRegisterName        = "ERR function_name argument given to redis.register_function must be a string"
	errRegisterDescription = "ERR description argument given to redis.register_function must be a string"
	errRegisterCallback    = "ERR callback argument given to redis.register_function must be a function"
	errRegisterFlags       = "ERR flags argument to redis.register_function must be a table representing function flags"
	errRegisterFlag        = "ERR unknown flag given"
	errRegisterNoName      = "ERR redis.register_function must get a function name argument"
	errRegisterNoCallback  = "ERR redis.register_function must get a callback argument"
	errRegisterFirst       = "ERR first argument to redis.register_function must be a string"
	errRegisterSecond      = "ERR second argument to redis.register_function must be a function"
	errRegisterTwice       = "ERR Function already exists in the library"
)

// What registering a function charges besides the bytes of its name and description.
const (
	registerInstructions = 50
	functionBytes        = 256
)

// registered is what the code of a library registers while it runs.
type registered struct {
	functions []commands.Function
	callbacks []*lua.LFunction
	names     map[string]bool
}

// openLibraries makes the globals of libraries: an empty table that looks names up in what is to be seen at the time.
func (in *interpreter) openLibraries(missing *lua.LTable) {
	L := in.L
	api := newLibrary(L, []libraryFunction{{"register_function", in.registerFunction}, {"log", redisLog}})
	addConstants(api)
	api.Metatable = missing
	in.loadGlobals = L.CreateTable(0, 8)
	in.loadGlobals.RawSetString("redis", in.standIn(api, api))
	for _, name := range hiddenNames {
		in.loadGlobals.RawSetString(name, in.globals.RawGetString(name))
	}
	in.loadGlobals.Metatable = missing
	in.librarySwitch = L.CreateTable(0, 1)
	in.libraryGlobals = L.CreateTable(0, 0)
	in.libraryGlobals.Metatable = in.librarySwitch
}

// loadLibrary runs a library's code and takes down what it registers. The interpreter must not be used again unless reusable.
func (in *interpreter) loadLibrary(l *library) (reusable bool, err error) {
	in.begin(l.program, budget{instructions: loadInstructions, bytes: loadBytes})
	found, failed := in.register(l.program)
	if failed != nil {
		err = errors.New(in.errorText(failed))
	}
	l.Functions, l.cost = found.functions, loadInstructions-max(in.budget.instructions, 0)
	return in.end(failed), err
}

// register runs a library's code.
func (in *interpreter) register(p *program) (*registered, error) {
	in.loading = &registered{names: map[string]bool{}}
	found := in.loading
	in.librarySwitch.RawSetString("__index", in.loadGlobals)
	chunk := in.L.NewFunctionFromProto(p.proto)
	chunk.Env = in.libraryGlobals
	in.L.Push(in.guarded)
	in.L.Push(chunk)
	err := in.L.PCall(1, 0, nil)
	in.librarySwitch.RawSetString("__index", in.globals)
	in.loading = nil
	return found, err
}

// pushFunction loads a library and pushes one of its functions with its two arguments.
func (in *interpreter) pushFunction(p *program, name string, script commands.Script) error {
	found, err := in.register(p)
	if err != nil {
		return err
	}
	for i := range found.functions {
		if found.functions[i].Name == name {
			in.L.Push(found.callbacks[i])
			in.L.Push(in.stringTable(script.Keys))
			in.L.Push(in.stringTable(script.Args))
			return nil
		}
	}
	return errors.New("the library does not register this function any more")
}

// registerFunction is redis.register_function(name, callback), or of a table with named arguments.
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
	in.budget.charge(L, registerInstructions)
	in.budget.chargeBytes(L, functionBytes+int64(len(f.Name)+len(f.Description)))
	switch {
	case !isFunctionName(f.Name):
		raiseReply(L, errNameCharacters.Error())
	case in.loading.names[f.Name]:
		raiseReply(L, errRegisterTwice)
	}
	f.Name, f.Description = strings.Clone(f.Name), strings.Clone(f.Description) // they may be parts of something long
	in.loading.names[f.Name] = true
	in.loading.functions = append(in.loading.functions, f)
	in.loading.callbacks = append(in.loading.callbacks, callback)
	return 0
}

// namedArguments reads the table that is the one argument of redis.register_function.
func (in *interpreter) namedArguments(L *lua.LState) (f commands.Function, callback *lua.LFunction) {
	t, ok := L.Get(1).(*lua.LTable)
	if !ok {
		raiseReply(L, errRegisterTable)
	}
	named := false
	chargeWalk(L, &in.budget, t)
	for key, value := t.Next(lua.LNil); key != lua.LNil; key, value = t.Next(key) {
		in.budget.charge(L, 1)
		name, ok := toString(key)
		if !ok {
			raiseReply(L, errRegisterKey)
		}
		name = cString(name)
		problem := errRegisterUnknown
		switch {
		case strings.EqualFold(name, "function_name"):
			f.Name, ok = toString(value)
			named, problem = true, errRegisterName
		case strings.EqualFold(name, "description"):
			f.Description, ok = toString(value)
			f.Described, problem = true, errRegisterDescription
		case strings.EqualFold(name, "callback"):
			callback, ok = value.(*lua.LFunction)
			problem = errRegisterCallback
		case strings.EqualFold(name, "flags"):
			f.Flags, problem = in.readFunctionFlags(L, value)
			ok = problem == ""
		default:
			ok = false
		}
		if !ok {
			raiseReply(L, problem)
		}
	}
	switch {
	case !named:
		raiseReply(L, errRegisterNoName)
	case callback == nil:
		raiseReply(L, errRegisterNoCallback)
	}
	return f, callback
}

// readFunctionFlags reads an array of flags.
func (in *interpreter) readFunctionFlags(L *lua.LState, value lua.LValue) (flags commands.FunctionFlags, problem string) {
	t, ok := value.(*lua.LTable)
	if !ok {
		return 0, errRegisterFlags
	}
	for i := 1; element(t, i) != lua.LNil; i++ {
		in.budget.charge(L, 1)
		name, _ := toString(element(t, i))
		flag := commands.ParseFunctionFlag([]byte(strings.ToLower(cString(name))))
		if flag == 0 {
			return 0, errRegisterFlag
		}
		flags |= flag
	}
	return flags, ""
}
