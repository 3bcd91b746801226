package lua

import "math"

// LNumber is a number.
type LNumber float64

// MultRet asks a call for all its results.
const MultRet = -1

// MaxArrayIndex is the first integer key that is never in a table's array.
const MaxArrayIndex = 67108864

const (
	// maxIndexChain is how many tables a chain of __index or __newindex may have.
	maxIndexChain = 100
	// fieldsPerFlush is how many values of a constructor one SETLIST stores.
	fieldsPerFlush = 50
)

// LValueType is the type of a value.
type LValueType int

// The types.
const (
	LTNil LValueType = iota
	LTBool
	LTNumber
	LTString
	LTFunction
	LTUserData
	LTThread
	LTTable
	typeCount
)

var typeNames = [typeCount]string{"nil", "boolean", "number", "string", "function", "userdata",
	"thread", "table"}

func (vt LValueType) String() string { return typeNames[vt] }

// LValue is a Lua value.
type LValue interface {
	Type() LValueType
}

// LVIsFalse reports whether v is nil or false.
func LVIsFalse(v LValue) bool { return v == LNil || v == LFalse }

// LVAsBool reports whether v is neither nil nor false.
func LVAsBool(v LValue) bool { return v != LNil && v != LFalse }

// LNilType is the type of LNil.
type LNilType struct{}

// Type is LTNil.
func (*LNilType) Type() LValueType { return LTNil }

// LNil is nil.
var LNil = LValue(&LNilType{})

// LBool is a boolean.
type LBool bool

// Type is LTBool.
func (LBool) Type() LValueType { return LTBool }

// The booleans.
var (
	LTrue  = LValue(LBool(true))
	LFalse = LValue(LBool(false))
)

// LString is a string of any bytes.
type LString string

// Type is LTString.
func (LString) Type() LValueType { return LTString }

// Type is LTNumber.
func (LNumber) Type() LValueType { return LTNumber }

// Type is LTTable.
func (*LTable) Type() LValueType { return LTTable }

// LFunction is a Lua closure or a Go function.
type LFunction struct {
	IsG bool
	// Lasts reports that a Go function keeps nothing between calls and was created before the first
	// script ran.
	Lasts     bool
	Env       *LTable
	Proto     *FunctionProto
	GFunction LGFunction
	Upvalues  []*Upvalue
}

// LGFunction is a Go function. It finds its arguments on the stack, pushes its results and returns
// their number.
type LGFunction func(*LState) int

// Type is LTFunction.
func (*LFunction) Type() LValueType { return LTFunction }

// Type is LTThread.
func (*LState) Type() LValueType { return LTThread }

// LUserData is a Go value.
type LUserData struct{ Value any }

// Type is LTUserData.
func (*LUserData) Type() LValueType { return LTUserData }

// smallNumbers are the integers whose values need no allocation.
var smallNumbers = func() (list [1024]LValue) {
	for i := range list {
		list[i] = LNumber(i)
	}
	return list
}()

// number returns a number as a value. A negative zero becomes zero, as in gopher-lua's arithmetic:
// scripts store results, and nodes of older releases compute the same.
func number(n LNumber) LValue {
	if n >= 0 && n < LNumber(len(smallNumbers)) {
		if i := int(n); LNumber(i) == n {
			return smallNumbers[i]
		}
	}
	return n
}

// Number returns a number as a value, mostly without an allocation.
func Number(f float64) LValue { return signed(LNumber(f)) }

// signed is number, but keeps a negative zero.
func signed(n LNumber) LValue {
	if n == 0 && math.Signbit(float64(n)) {
		return n
	}
	return number(n)
}

// isArrayKey reports whether a number can be a key of a table's array.
func isArrayKey(n LNumber) (index int, ok bool) {
	if !(n >= 1 && n < MaxArrayIndex) {
		return 0, false
	}
	index = int(n)
	return index, LNumber(index) == n
}

// Modulo is the operator % of C Lua 5.1.
func Modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }
