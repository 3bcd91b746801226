package lua

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// ApiError is the error with which a protected call ends.
type ApiError struct {
	Object LValue // the error's value
	Broken bool   // it was a Go panic: the state must not be used again
}

func (e *ApiError) Error() string {
	switch v := e.Object.(type) {
	case LString:
		return string(v)
	case LNumber:
		return FormatNumber(float64(v))
	}
	return e.Object.Type().String()
}

// Options are the sizes of a state.
type Options struct {
	CallFrames      int // nested calls
	Registers       int // initially
	MaxRegisters    int
	ThreadFrames    int // nested calls of a coroutine
	ThreadRegisters int // maximum of a coroutine
}

// Global is what the threads of a state share.
type Global struct {
	MainThread    *LState
	CurrentThread *LState
	Registry      *LTable
	Global        *LTable
	Budget        Budget
	// Run is what Go functions remember during a run.
	Run any
	// RoundsPowers says that ^ is exact but for its rounding, as from feature level 3 on.
	RoundsPowers bool
	// Strict charges for what release 0.1 missed, has tables with the sizes of C Lua, and errors
	// that name what was called, as there.
	Strict bool
	// Touched reports that a script changed something that Watch marked.
	Touched bool

	joined []string // what join joins; the next one reuses it, and it is empty between them

	options Options
	opened  bool // Go functions created from now on belong to a run
	strings *LTable
}

// callFrame is one call.
type callFrame struct {
	fn         *LFunction
	pc         int32
	base       int32 // register of the function itself
	localBase  int32 // first of its own registers
	returnBase int32
	nargs      int32
	nret       int32
	fresh      bool // the main loop ends when it returns
}

// LState is a thread: a stack of calls and one of registers.
type LState struct {
	G      *Global
	Parent *LState // that resumed it
	Env    *LTable
	Panic  func(*LState) // called with an error's value on top; it does not return
	Dead   bool

	frames    []callFrame
	depth     int // frames in use
	maxFrames int

	reg    []LValue
	top    int
	used   int // registers that may hold a value
	maxReg int

	main    LFunction  // what PushMain pushed
	open    []*Upvalue // still registers, in that order
	nested  int        // calls from Go, or from an instruction, that wait for a result
	started bool
}

// NewState returns a state without globals.
func NewState(o Options) *LState {
	g := &Global{Registry: newTable(0, 0, true), Global: newTable(0, 0, true), options: o}
	L := &LState{
		G: g, Env: g.Global, Panic: panicError,
		frames: make([]callFrame, o.CallFrames), maxFrames: o.CallFrames,
		reg: make([]LValue, o.Registers), maxReg: o.MaxRegisters,
	}
	g.MainThread, g.CurrentThread = L, L
	g.Budget = Budget{Instructions: 1 << 62, Bytes: 1 << 62}
	return L
}

// Opened marks the state as complete: Go functions created from now on belong to scripts.
func (L *LState) Opened() { L.G.opened = true }

// Begin gives the state a budget for a run.
func (L *LState) Begin(b Budget) {
	L.G.Budget, L.G.Touched, L.G.CurrentThread, L.G.Run = b, false, L, nil
	L.G.Budget.Begin()
	L.SetTop(0)
}

// End clears what the run left in the registers.
func (L *LState) End() {
	L.depth, L.top, L.nested, L.open = 0, 0, 0, L.open[:0]
	clear(L.reg[:L.used])
	L.used = 0
	clear(L.G.joined)
	const kept = 16_384
	if len(L.reg) > kept {
		L.reg = make([]LValue, L.G.options.Registers)
	}
	for i := range L.frames {
		if L.frames[i].fn == nil {
			break // the run did not call deeper
		}
		L.frames[i] = callFrame{}
	}
}

// NewCoroutine returns a thread that runs fn when resumed.
func (L *LState) NewCoroutine(fn *LFunction) *LState {
	const frames, registers = 4, 32
	L.G.Budget.ChargeBytes(L, threadBytes+frames*frameBytes+registers*registerBytes)
	th := &LState{
		G: L.G, Env: L.Env, Panic: panicError,
		frames: make([]callFrame, frames), maxFrames: L.G.options.ThreadFrames,
		reg: make([]LValue, registers), maxReg: L.G.options.ThreadRegisters,
	}
	th.reg[0] = fn
	th.top = 1
	return th
}

func panicError(L *LState) { panic(&ApiError{Object: L.Get(-1)}) }

// Registers.

// reserve makes room for n registers.
func (L *LState) reserve(n int) {
	if n > len(L.reg) {
		L.growRegisters(n)
	}
	if n > L.used {
		L.used = n
	}
}

func (L *LState) growRegisters(n int) {
	if n > L.maxReg {
		L.raiseOverflow()
	}
	size := min(max(2*len(L.reg), n), L.maxReg)
	if L != L.G.MainThread {
		more := size - len(L.reg)
		if L.G.Strict {
			more = size // the old ones are garbage
		}
		L.G.Budget.ChargeBytes(L, int64(more)*registerBytes)
		L.G.Budget.Charge(L, int64(len(L.reg))/slotsCleared)
	}
	grown := make([]LValue, size)
	copy(grown, L.reg)
	L.reg = grown
	for _, uv := range L.open {
		uv.v = &grown[uv.index]
	}
}

// raiseOverflow raises an error when no register is left for its text.
func (L *LState) raiseOverflow() {
	L.top = min(L.top, len(L.reg)-1)
	L.RaiseError("stack overflow")
}

func (L *LState) localBase() int {
	if L.depth == 0 {
		return 0
	}
	return int(L.frames[L.depth-1].localBase)
}

// GetTop returns how many values the running function has on its stack.
func (L *LState) GetTop() int { return L.top - L.localBase() }

// SetTop sets that number to n; new values are nil. A negative n counts from the top.
func (L *LState) SetTop(n int) {
	base := L.localBase()
	top := base + n
	if n < 0 {
		top = max(base, L.top+n+1)
	}
	L.reserve(top)
	for i := L.top; i < top; i++ {
		L.reg[i] = LNil
	}
	L.top = top
}

// Get returns the value at an index, which counts from 1, or from the top with -1; LNil if there is
// none.
func (L *LState) Get(index int) LValue {
	base := L.localBase()
	at := base + index - 1
	if index < 0 {
		at = L.top + index
	}
	if at < base || at >= L.top || index == 0 {
		return LNil
	}
	return L.reg[at]
}

// Stack returns the values that the running function has on its stack, until the next call or push.
func (L *LState) Stack() []LValue { return L.reg[L.localBase():L.top] }

// Push pushes a value.
func (L *LState) Push(v LValue) {
	if L.top >= len(L.reg) {
		L.growRegisters(L.top + 1)
	}
	L.reg[L.top] = v
	L.top++
	if L.top > L.used {
		L.used = L.top
	}
}

// PushNumber pushes a number.
func (L *LState) PushNumber(n float64) { L.Push(Number(n)) }

// Pop removes the n values on top.
func (L *LState) Pop(n int) { L.top = max(L.localBase(), L.top-n) }

// Insert inserts a value at an index from 1.
func (L *LState) Insert(v LValue, index int) {
	at := L.localBase() + index - 1
	L.Push(v)
	copy(L.reg[at+1:L.top], L.reg[at:L.top-1])
	L.reg[at] = v
}

// CreateTable returns a table of the given capacity, without a charge.
func (L *LState) CreateTable(slots, keys int) *LTable {
	tb := newTable(slots, keys, L.G.Strict)
	tb.begin(slots, keys)
	return tb
}

// NewTable returns a table of the given sizes, and charges for it.
func (L *LState) NewTable(slots, keys int) *LTable {
	tb := L.NewRoom(slots, keys)
	tb.begin(slots, keys)
	return tb
}

// NewRoom is NewTable for what C Lua creates without sizes: the capacity is a guess.
func (L *LState) NewRoom(slots, keys int) *LTable {
	b := &L.G.Budget
	b.Take(3+int64(slots+2*keys)/slotsCleared,
		tableBytes+int64(slots)*slotBytes+int64(keys)*entryBytes)
	if b.Instructions < 0 {
		L.raiseSpent()
	}
	return newTable(slots, keys, L.G.Strict)
}

// NewFunction returns a Go function.
func (L *LState) NewFunction(f LGFunction) *LFunction {
	if L.G.opened {
		L.G.Budget.ChargeBytes(L, closureBytes+64)
	}
	return &LFunction{IsG: true, Lasts: !L.G.opened, Env: L.Env, GFunction: f}
}

// NewFunctionFromProto returns a function without upvalues.
func (L *LState) NewFunctionFromProto(proto *FunctionProto) *LFunction {
	return newClosure(L.version(proto), L.Env)
}

// version returns a chunk as the state runs it.
func (L *LState) version(proto *FunctionProto) *FunctionProto {
	if proto.released != nil && !L.G.RoundsPowers {
		return proto.released
	}
	return proto
}

// PushMain pushes the function of a chunk that runs once. The next PushMain reuses it: Lua code
// cannot get hold of it.
func (L *LState) PushMain(proto *FunctionProto) {
	L.main = LFunction{Env: L.Env, Proto: L.version(proto)}
	L.Push(&L.main)
}

// Upvalues.

// findUpvalue returns the upvalue of a register.
func (L *LState) findUpvalue(index int) *Upvalue {
	at := sort.Search(len(L.open), func(i int) bool { return int(L.open[i].index) >= index })
	if at < len(L.open) && int(L.open[at].index) == index {
		return L.open[at]
	}
	L.G.Budget.ChargeBytes(L, upvalueBytes)
	uv := &Upvalue{v: &L.reg[index], index: int32(index)}
	L.open = append(L.open, nil)
	copy(L.open[at+1:], L.open[at:])
	L.open[at] = uv
	return uv
}

// closeUpvalues detaches the upvalues of the registers from index on.
func (L *LState) closeUpvalues(index int) {
	n := len(L.open)
	for n > 0 && int(L.open[n-1].index) >= index {
		n--
		L.open[n].close()
		L.open[n] = nil
		L.G.Budget.Instructions--
	}
	L.open = L.open[:n]
}

// Errors.

// RaiseError raises a text, after the position of the running function if that is a Lua function.
func (L *LState) RaiseError(text string) {
	for d := L.depth - 1; d >= 0; d-- {
		if f := &L.frames[d]; !f.fn.IsG {
			text = f.where() + text
			break
		}
	}
	L.Error(LString(text))
}

// Error raises a value.
func (L *LState) Error(v LValue) {
	if L.top >= len(L.reg) {
		L.top = len(L.reg) - 1 // an error always has room
	}
	L.Push(v)
	L.Panic(L)
	panic("lua: Panic returned")
}

func (f *callFrame) line() int {
	if f.pc > 0 {
		return int(f.fn.Proto.lines[f.pc-1])
	}
	return f.fn.Proto.LineDefined
}

func (f *callFrame) where() string {
	return f.fn.Proto.SourceName + ":" + strconv.Itoa(f.line()) + ": "
}

// Frame is a call, for the positions of errors.
type Frame struct {
	Source string // "" for a Go function
	Line   int
	IsG    bool
}

// Frame returns the call at a level: 0 is the running one, 1 its caller.
func (L *LState) Frame(level int) (f Frame, ok bool) {
	d := L.depth - 1 - level
	if d < 0 || level < 0 {
		return Frame{}, false
	}
	c := &L.frames[d]
	if c.fn.IsG {
		return Frame{IsG: true, Line: -1}, true
	}
	return Frame{Source: c.fn.Proto.SourceName, Line: c.line()}, true
}

// Where returns "chunk:line: " of the call at a level, "" if that is not a Lua function.
func (L *LState) Where(level int) string {
	if d := L.depth - 1 - level; d >= 0 && !L.frames[d].fn.IsG {
		return L.frames[d].where()
	}
	return ""
}

// Depth returns the number of nested calls.
func (L *LState) Depth() int { return L.depth }

// CalledAs returns the name by which the running function was called, "" if it has none, and
// whether as object:name().
func (L *LState) CalledAs() (name string, method bool) {
	if L.depth < 2 || L.frames[L.depth-2].fn.IsG {
		return "", false
	}
	caller := &L.frames[L.depth-2]
	call := caller.fn.Proto.callAt(int(caller.pc) - 1)
	return call.Name, call.Kind == calledMethod
}

// raiseNotCallable raises the error of a call of v, which the running function makes.
func (L *LState) raiseNotCallable(v LValue) {
	what := "a " + v.Type().String() + " value"
	var call DbgCall
	if L.G.Strict && L.depth > 0 && !L.frames[L.depth-1].fn.IsG {
		f := &L.frames[L.depth-1]
		call = f.fn.Proto.callAt(int(f.pc) - 1)
	}
	if call.Kind != calledValue {
		name, _, _ := strings.Cut(call.Name, "\x00") // a text of C ends there
		L.ChargeString(len(name))
		what = kindNames[call.Kind] + " '" + name + "' (" + what + ")"
	}
	L.RaiseError("attempt to call " + what)
}

// Calls.

// Call calls the function below the nargs values on top of the stack. It leaves nret results, all
// with MultRet.
func (L *LState) Call(nargs, nret int) {
	base := L.top - nargs - 1
	L.nested++
	if L.precall(base, nargs, nret, base) == callLua {
		L.frames[L.depth-1].fresh = true
		L.run()
	}
	L.nested--
	if nret != MultRet {
		L.top = base + nret
	}
}

// PCall is Call, but returns an error that is raised. The stack is then as before, without the
// function and its arguments.
func (L *LState) PCall(nargs, nret int) (err *ApiError) {
	depth, base, old, nested := L.depth, L.top-nargs-1, L.Panic, L.nested
	defer func() {
		L.Panic = old
		caught := recover()
		if caught == nil {
			return
		}
		e, ok := caught.(*ApiError)
		if !ok {
			e = &ApiError{Object: LString(fmt.Sprint(caught)), Broken: true}
		}
		err = e
		L.G.CurrentThread = L
		L.closeUpvalues(base)
		L.depth, L.top, L.nested = depth, base, nested
	}()
	L.Call(nargs, nret)
	return nil
}

// Metatables.

// Metatable returns the metatable of a value, or nil.
func (L *LState) Metatable(v LValue) *LTable {
	switch v := v.(type) {
	case *LTable:
		return v.Metatable
	case LString:
		return L.G.strings
	}
	return nil
}

// SetStringMetatable sets the metatable of strings.
func (L *LState) SetStringMetatable(t *LTable) { L.G.strings = t }

// GetMetaField returns a field of a value's metatable, or LNil.
func (L *LState) GetMetaField(v LValue, event string) LValue {
	if mt := L.Metatable(v); mt != nil {
		return mt.RawGetString(event)
	}
	return LNil
}
