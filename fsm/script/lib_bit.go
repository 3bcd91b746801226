// The bit library of Redis's Lua (BitOp 1.0.2): operations on 32-bit integers, which it takes and
// returns as signed numbers.

package script

import (
	"math"
	"math/bits"

	"github.com/coordd/coordd/fsm/script/lua"
)

// openBit returns the table of the bit library. The caller makes it the global `bit`.
func openBit(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"tobit", bitUnary(func(x uint32) uint32 { return x })},
		{"bnot", bitUnary(func(x uint32) uint32 { return ^x })},
		{"band", bitFold(func(x, y uint32) uint32 { return x & y })},
		{"bor", bitFold(func(x, y uint32) uint32 { return x | y })},
		{"bxor", bitFold(func(x, y uint32) uint32 { return x ^ y })},
		{"lshift", bitShift(func(x uint32, n int) uint32 { return x << n })},
		{"rshift", bitShift(func(x uint32, n int) uint32 { return x >> n })},
		{"arshift", bitShift(func(x uint32, n int) uint32 { return uint32(int32(x) >> n) })},
		{"rol", bitShift(bits.RotateLeft32)},
		{"ror", bitShift(func(x uint32, n int) uint32 { return bits.RotateLeft32(x, -n) })},
		{"bswap", bitUnary(bits.ReverseBytes32)},
		{"tohex", bitToHex},
	})
}

// roundToInteger is 2^52+2^51. Added to a float64 below 2^51 in size, it leaves the number, rounded
// to the nearest integer (halves to even), in the low bits of the mantissa. BitOp converts like
// this, and results beyond that range depend on it. Of a NaN all bits are 0.
const roundToInteger = 6755399441055744.0

// bitArg returns argument n as 32 bits, converted as in BitOp.
func bitArg(L *lua.LState, n int) uint32 {
	return uint32(math.Float64bits(canonical(checkNumber(L, n)) + roundToInteger))
}

// pushBits pushes x as a signed number, the only result.
func pushBits(L *lua.LState, x uint32) int {
	L.Push(lua.LNumber(int32(x)))
	return 1
}

// bitUnary makes a library function of one argument.
func bitUnary(f func(uint32) uint32) lua.LGFunction {
	return func(L *lua.LState) int { return pushBits(L, f(bitArg(L, 1))) }
}

// bitFold makes a library function of one or more arguments. Like BitOp it takes those after the
// first from last to first, which decides which bad argument the error names.
func bitFold(f func(x, y uint32) uint32) lua.LGFunction {
	return func(L *lua.LState) int {
		x := bitArg(L, 1)
		budgetOf(L).Charge(L, int64(L.GetTop())/16)
		for i := L.GetTop(); i > 1; i-- {
			x = f(x, bitArg(L, i))
		}
		return pushBits(L, x)
	}
}

// bitShift makes a library function of a number and a distance, of which the low five bits count.
func bitShift(f func(x uint32, n int) uint32) lua.LGFunction {
	return func(L *lua.LState) int {
		x := bitArg(L, 1)
		return pushBits(L, f(x, int(bitArg(L, 2)&31)))
	}
}

// bitToHex is bit.tohex(x [, n]): the low |n| (at most 8) hexadecimal digits, upper case for a
// negative n.
func bitToHex(L *lua.LState) int {
	x := bitArg(L, 1)
	n := int64(8)
	if L.GetTop() >= 2 {
		n = int64(int32(bitArg(L, 2)))
	}
	digits := "0123456789abcdef"
	if n < 0 {
		digits, n = "0123456789ABCDEF", -n
	}
	n = min(n, 8)
	out := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		out[i] = digits[x&15]
		x >>= 4
	}
	return push(L, string(out))
}
