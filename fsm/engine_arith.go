// Arithmetic on strings that read as numbers. gopher-lua would read them in Go's way ("1_000" and "0b1" among them) and in one instruction
// however long they are; the operators ask the string metatable first, so these functions, which a script cannot see, stand there.

package fsm

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

// openArithmetic puts the operators into the string metatable.
func (in *interpreter) openArithmetic(meta *lua.LTable) {
	for _, o := range []struct {
		event string
		apply func(a, b float64) float64
	}{
		{"__add", func(a, b float64) float64 { return a + b }},
		{"__sub", func(a, b float64) float64 { return a - b }},
		{"__mul", func(a, b float64) float64 { return float64(a * b) }},
		{"__div", func(a, b float64) float64 { return a / b }},
		{"__mod", modulo},
		{"__pow", math.Pow},
	} {
		meta.RawSetString(o.event, in.L.NewFunction(in.arithmetic(o.event, o.apply)))
	}
	meta.RawSetString("__unm", in.L.NewFunction(func(L *lua.LState) int {
		f, ok := in.operand(L, 1)
		if !ok {
			raise(L, "attempt to perform arithmetic on a "+L.Get(1).Type().String()+" value")
		}
		return pushNumber(L, -f)
	}))
}

// modulo is the operator % as C Lua 5.1 has it. It is rounded where gopher-lua's own instruction is exact, so that its last digits differ, and all of it
// where the quotient is large.
func modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }

// arithmetic is an operator one operand of which is a string. As in C Lua numbers are tried first, then the other operand's metamethod.
func (in *interpreter) arithmetic(event string, apply func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		a, okA := in.operand(L, 1)
		b, okB := in.operand(L, 2)
		if okA && okB {
			return pushNumber(L, apply(a, b))
		}
		for n := 1; n <= 2; n++ {
			if _, isString := L.Get(n).(lua.LString); isString {
				continue
			}
			if meta := L.GetMetaField(L.Get(n), event); meta != lua.LNil {
				L.Push(meta)
				L.Push(L.Get(1))
				L.Push(L.Get(2))
				L.Call(2, 1)
				return 1
			}
		}
		culprit := 1
		if okA {
			culprit = 2
		}
		raise(L, "attempt to perform arithmetic on a "+L.Get(culprit).Type().String()+" value")
		return 0
	}
}

// number is the hidden function round the numbers of a loop. What is no number stays as it is, for the loop to refuse.
func (in *interpreter) number(L *lua.LState) int {
	if f, ok := in.operand(L, 1); ok {
		return pushNumber(L, f)
	}
	L.SetTop(1)
	return 1
}

// operand reads argument n as a number, and charges for reading a string.
func (in *interpreter) operand(L *lua.LState, n int) (f float64, ok bool) {
	v := L.Get(n)
	if s, isString := v.(lua.LString); isString {
		in.budget.charge(L, numeralInstructions)
		chargeNumeral(L, &in.budget, string(s))
	}
	return toNumber(v)
}
