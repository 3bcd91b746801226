// The looks into gopher-lua that its methods do not give: into tables, and at the operands of the instruction that is next.

package fsm

import (
	"reflect"

	lua "github.com/yuin/gopher-lua"
)

// field is the index of a field. Without that field nothing here is true any more, so a program with such a gopher-lua does not start.
func field(t reflect.Type, name string) int {
	f, ok := t.FieldByName(name)
	if !ok {
		panic("gopher-lua's " + t.Name() + " has no field " + name)
	}
	return f.Index[0]
}

func fieldType(t reflect.Type, name string) reflect.Type { return t.Field(field(t, name)).Type.Elem() }

var (
	tableType    = reflect.TypeFor[lua.LTable]()
	tableKeys    = field(tableType, "keys")
	tableK2i     = field(tableType, "k2i")
	tableDict    = field(tableType, "dict")
	tableStrdict = field(tableType, "strdict")
	tableArray   = field(tableType, "array")

	stateType     = reflect.TypeFor[lua.LState]()
	stateFrame    = field(stateType, "currentFrame")
	stateRegistry = field(stateType, "reg")
	frameType     = fieldType(stateType, "currentFrame")
	frameFn       = field(frameType, "Fn")
	framePc       = field(frameType, "Pc")
	frameBase     = field(frameType, "LocalBase")
	registryType  = fieldType(stateType, "reg")
	registryArray = field(registryType, "array")
	registryTop   = field(registryType, "top")
	functionProto = field(reflect.TypeFor[lua.LFunction](), "Proto")
	protoType     = reflect.TypeFor[lua.FunctionProto]()
	protoCode     = field(protoType, "Code")
	protoConsts   = field(protoType, "Constants")
)

// deadKeys is how many keys a table keeps that were set to nil. gopher-lua never forgets a key, and each walk from a key goes over
// those that follow: who walks must pay for them. Only lengths are read.
func deadKeys(t *lua.LTable) int64 {
	v := reflect.ValueOf(t).Elem()
	return int64(v.Field(tableKeys).Len() - v.Field(tableDict).Len() - v.Field(tableStrdict).Len())
}

// knownKey says whether a walk can go on from a key: it is nil, or has or had a value.
func knownKey(t *lua.LTable, key lua.LValue) bool {
	if key == lua.LNil || t.RawGet(key) != lua.LNil {
		return true
	}
	if n, ok := key.(lua.LNumber); ok && n >= 1 && n <= lua.LNumber(slots(t)) {
		return true
	}
	seen := reflect.ValueOf(t).Elem().Field(tableK2i)
	return seen.IsValid() && !seen.IsNil() && seen.MapIndex(reflect.ValueOf(&key).Elem()).IsValid()
}

// chargeWalk charges for what a walk over all pairs of a table steps over besides: keys that were set to nil, each of which is looked up, and
// the nils of the array.
func chargeWalk(L *lua.LState, b *budget, t *lua.LTable) { b.charge(L, walkCost(t)) }

func walkCost(t *lua.LTable) int64 { return deadKeys(t) + int64(slots(t))/32 }

// slots is the length of a table's array, with its nils.
func slots(t *lua.LTable) int { return reflect.ValueOf(t).Elem().Field(tableArray).Len() }

// How many bytes of a string one instruction's cost pays for: measured, so that no instruction of the virtual machine takes more
// than some 100 ns for each that it is charged for.
const (
	bytesEqual = 1024 // compared by ==
	bytesLess  = 32   // compared by <, one by one
	bytesKey   = 256  // hashed and compared as a key that is looked up
	bytesNew   = 64   // as a key that is assigned to: it is looked up in three maps
	// valuesCopied is how many values are copied at that price.
	valuesCopied = 8
)

// keyCost is what looking up a key costs above one instruction.
func keyCost(key lua.LValue) int64 {
	if s, ok := key.(lua.LString); ok {
		return int64(len(s)) / bytesKey
	}
	return 0
}

// operandCost is what the instruction that L is about to run costs above one.
func operandCost(L *lua.LState) int64 {
	state := reflect.ValueOf(L).Elem()
	if state.Field(stateFrame).IsNil() { // a thread that has ended runs nothing
		return 0
	}
	frame := state.Field(stateFrame).Elem()
	pc := int(frame.Field(framePc).Int()) - 1
	proto := frame.Field(frameFn).Elem().Field(functionProto).Elem()
	if !proto.IsValid() || pc < 0 {
		return 0
	}
	o := operands{instruction: uint32(proto.Field(protoCode).Index(pc).Uint()), state: state, frame: frame, proto: proto}
	switch int(o.instruction >> 26) {
	case lua.OP_EQ:
		if n := o.length(o.b()); n == o.length(o.c()) {
			return n / bytesEqual
		}
	case lua.OP_LT, lua.OP_LE:
		return min(o.length(o.b()), o.length(o.c())) / bytesLess
	case lua.OP_GETTABLE, lua.OP_GETTABLEKS, lua.OP_SELF:
		return o.length(o.c()) / bytesKey
	case lua.OP_SETTABLE, lua.OP_SETTABLEKS:
		return o.length(o.b()) / bytesNew
	case lua.OP_CALL, lua.OP_RETURN, lua.OP_SETLIST:
		if o.b() == 0 { // up to the top
			return o.above() / valuesCopied
		}
	}
	return 0
}

// operands are those of one instruction.
type operands struct {
	instruction         uint32
	state, frame, proto reflect.Value
}

func (o *operands) a() int { return int(o.instruction >> 18 & 0xff) }
func (o *operands) b() int { return int(o.instruction & 0x1ff) }
func (o *operands) c() int { return int(o.instruction >> 9 & 0x1ff) }

// length is the length of the string in an operand, a register or a constant; 0 for other values.
func (o *operands) length(operand int) int64 {
	const constant = 1 << 8
	var v reflect.Value
	if operand >= constant {
		v = o.proto.Field(protoConsts).Index(operand - constant)
	} else {
		v = o.state.Field(stateRegistry).Elem().Field(registryArray).Index(int(o.frame.Field(frameBase).Int()) + operand)
	}
	if v = v.Elem(); v.Kind() != reflect.String {
		return 0
	}
	return int64(v.Len())
}

// above is how many values stand from the operand A to the top of the stack.
func (o *operands) above() int64 {
	return max(0, o.state.Field(stateRegistry).Elem().Field(registryTop).Int()-o.frame.Field(frameBase).Int()-int64(o.a()))
}
