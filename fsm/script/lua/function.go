package lua

import "sort"

// The bits of FunctionProto.IsVarArg.
const (
	varArgHasArg uint8 = 1 << iota
	varArgIsVarArg
	varArgNeedsArg // it has the table arg of Lua 5.0
)

// DbgCall is the name under which code calls a function.
type DbgCall struct {
	Name string
	Pc   int32
	Kind callKind
}

// callKind is what the name of a call means.
type callKind uint8

const (
	calledValue callKind = iota // none: the value of an expression
	calledGlobal
	calledLocal
	calledUpvalue
	calledField
	calledMethod // object:name()
)

// kindNames are the words of C Lua for what is called.
var kindNames = [...]string{calledGlobal: "global", calledLocal: "local",
	calledUpvalue: "upvalue", calledField: "field", calledMethod: "method"}

// FunctionProto is a compiled function. States share it: all that changes is places.
type FunctionProto struct {
	SourceName         string
	LineDefined        int
	NumUpvalues        uint8
	NumParameters      uint8
	IsVarArg           uint8
	NumUsedRegisters   uint8
	Code               []uint32
	Constants          []LValue
	FunctionPrototypes []*FunctionProto

	places []place // where getConstant last found each constant

	// released is the whole chunk as feature level 1 runs it, if its constant powers differ
	// there
	released *FunctionProto

	lines []int32   // by instruction
	calls []DbgCall // by position in the code
}

// Size estimates the memory of the function, in bytes. It does not count what runs at earlier
// feature levels: whether there is any depends on the processor, and Size is replicated state.
func (p *FunctionProto) Size() int {
	n := 256 + 8*len(p.Code) + 32*len(p.Constants) + 24*len(p.calls)
	for _, c := range p.Constants {
		if s, ok := c.(LString); ok {
			n += len(s)
		}
	}
	for _, inner := range p.FunctionPrototypes {
		n += 8 + inner.Size()
	}
	return n
}

// callAt returns the call at a position in the code; it has no name if there is none.
func (p *FunctionProto) callAt(pc int) DbgCall {
	i := sort.Search(len(p.calls), func(i int) bool { return int(p.calls[i].Pc) >= pc })
	if i < len(p.calls) && int(p.calls[i].Pc) == pc {
		return p.calls[i]
	}
	return DbgCall{}
}

// Upvalue is a variable of an outer function: one of its registers while that function runs,
// afterwards a value of the upvalue's own.
type Upvalue struct {
	v       *LValue
	value   LValue
	index   int32 // index of the register
	watched bool  // assignments are recorded: the variable outlives the run
}

func (uv *Upvalue) close() {
	uv.value = *uv.v
	uv.v = &uv.value
}

func newClosure(proto *FunctionProto, env *LTable) *LFunction {
	return &LFunction{Env: env, Proto: proto, Upvalues: make([]*Upvalue, proto.NumUpvalues)}
}
