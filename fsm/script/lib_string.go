// The string library of Lua 5.1, tostring and tonumber. Each charges the script's budget before it
// allocates, and formats numbers as C Lua does. Patterns are in lib_string_pattern.go,
// string.format is in lib_string_format.go.

package script

import (
	"fmt"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

// openString returns the table of the string library. The caller makes it the global `string` and
// the __index of the string metatable.
func openString(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"byte", stringByte},
		{"char", stringChar},
		{"dump", stringDump},
		{"find", stringFind},
		{"format", stringFormat},
		{"gfind", stringGmatch},
		{"gmatch", stringGmatch},
		{"gsub", stringGsub},
		{"len", stringLen},
		{"lower", stringLower},
		{"match", stringMatch},
		{"rep", stringRep},
		{"reverse", stringReverse},
		{"sub", stringSub},
		{"upper", stringUpper},
	})
}

// fromEnd converts a position that may count from the end into one that counts from the start; 0 if
// it is before the start.
func fromEnd(pos int64, length int) int64 {
	if pos < 0 {
		pos += int64(length) + 1
	}
	return max(pos, 0)
}

// push pushes s as the only result.
func push(L *lua.LState, s string) int {
	budgetOf(L).Charge(L, 1)
	budgetOf(L).ChargeBytes(L, stringOverhead)
	L.Push(lua.LString(s))
	return 1
}

func stringLen(L *lua.LState) int {
	L.Push(lua.LNumber(len(checkString(L, 1))))
	return 1
}

func stringSub(L *lua.LState) int {
	s := checkString(L, 1)
	first := max(fromEnd(checkInteger(L, 2), len(s)), 1)
	last := min(fromEnd(optInteger(L, 3, -1), len(s)), int64(len(s)))
	if first > last {
		return push(L, "")
	}
	// The slice shares the bytes of s, which are already charged.
	return push(L, s[first-1:last])
}

func stringReverse(L *lua.LState) int {
	s := checkString(L, 1)
	chargeWork(L, len(s))
	L.ChargeString(len(s))
	var out strings.Builder // written in blocks: a buffer as long as s would be copied
	out.Grow(len(s))
	var room [512]byte
	for end := len(s); end > 0; end -= len(room) {
		block := room[:min(len(room), end)]
		for i := range block {
			block[i] = s[end-1-i]
		}
		out.Write(block)
	}
	return push(L, out.String())
}

// mapBytes pushes argument 1 with each byte mapped by the table.
func mapBytes(L *lua.LState, table *[256]byte) int {
	s := checkString(L, 1)
	chargeWork(L, len(s))
	L.ChargeString(len(s))
	var out strings.Builder
	out.Grow(len(s))
	var room [512]byte
	for at := 0; at < len(s); at += len(room) {
		block := room[:min(len(room), len(s)-at)]
		for i := range block {
			block[i] = table[s[at+i]]
		}
		out.Write(block)
	}
	return push(L, out.String())
}

// lowered and raised map the bytes for string.lower and string.upper.
var lowered, raised = func() (lower, upper [256]byte) {
	for i := range 256 {
		c := byte(i)
		lower[i], upper[i] = c, c
		switch {
		case isUpper(c):
			lower[i] = c | 0x20
		case isLower(c):
			upper[i] = c &^ 0x20
		}
	}
	return lower, upper
}()

func stringLower(L *lua.LState) int { return mapBytes(L, &lowered) }
func stringUpper(L *lua.LState) int { return mapBytes(L, &raised) }

func stringRep(L *lua.LState) int {
	s := checkString(L, 1)
	n := checkInt(L, 2)
	if n <= 0 || s == "" {
		return push(L, "")
	}
	total := int64(n) * int64(len(s)) // below 2^31 times a length in memory: no overflow
	b := budgetOf(L)
	b.Charge(L, 1+total/16)
	b.ChargeBytes(L, total)
	return push(L, strings.Repeat(s, n))
}

func stringByte(L *lua.LState) int {
	s := checkString(L, 1)
	first := fromEnd(optInteger(L, 2, 1), len(s))
	last := min(fromEnd(optInteger(L, 3, first), len(s)), int64(len(s)))
	first = max(first, 1)
	if first > last {
		return 0
	}
	n := last - first + 1
	if !hasStack(L, n) {
		raise(L, "stack overflow (string slice too long)")
	}
	b := budgetOf(L)
	b.Charge(L, n)
	for _, c := range []byte(s[first-1 : last]) {
		L.Push(lua.LNumber(c))
	}
	return int(n)
}

func stringChar(L *lua.LState) int {
	n := L.GetTop()
	budgetOf(L).Charge(L, int64(n))
	L.ChargeString(n)
	out := make([]byte, n)
	for i := range n {
		c := checkInt(L, i+1)
		if c < 0 || c > 255 {
			argError(L, i+1, "invalid value")
		}
		out[i] = byte(c)
	}
	return push(L, string(out))
}

// stringDump fails: there is no bytecode of C Lua to return.
func stringDump(L *lua.LState) int {
	checkFunction(L, 1)
	raise(L, "unable to dump given function")
	return 0
}

// luaToString is the global tostring. In place of C Lua's addresses it shows numbers, assigned in
// the order of the calls, so they are the same on every node and differ for two objects of one run.
func luaToString(L *lua.LState) int {
	v := checkAny(L, 1)
	if meta := L.GetMetaField(v, "__tostring"); meta != lua.LNil {
		L.Push(meta)
		L.Push(v)
		L.Call(1, 1)
		return 1
	}
	s := describe(L, v)
	if _, same := v.(lua.LString); !same {
		budgetOf(L).Charge(L, numeralInstructions)
		budgetOf(L).ChargeBytes(L, int64(len(s)))
	}
	return push(L, s)
}

// describe returns v as tostring shows it without metamethods.
func describe(L *lua.LState, v lua.LValue) string {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return lua.FormatNumber(float64(v))
	case lua.LBool:
		if v {
			return "true"
		}
		return "false"
	case *lua.LNilType:
		return "nil"
	case *lua.LUserData:
		if isNull(v) {
			return "userdata: (nil)"
		}
	}
	return fmt.Sprintf("%s: 0x%012x", v.Type().String(), label(L, v))
}

// The cost of assigning a number.
const (
	labelInstructions = 16
	labelBytes        = 64
)

// label returns the number that stands for v's address in this run; 0 outside a run.
func label(L *lua.LState, v lua.LValue) int {
	run := runOf(L)
	if run.labels == nil {
		run.labels = map[lua.LValue]int{}
	}
	n, known := run.labels[v]
	if !known {
		if run.over {
			budgetOf(L).Take(labelInstructions, labelBytes)
		} else {
			budgetOf(L).Charge(L, labelInstructions)
			budgetOf(L).ChargeBytes(L, labelBytes)
		}
		n = len(run.labels) + 1
		run.labels[v] = n
	}
	return n
}

// luaToNumber is the global tonumber.
func luaToNumber(L *lua.LState) int {
	base := optInt(L, 2, 10)
	if base == 10 {
		v := checkAny(L, 1)
		if s, ok := v.(lua.LString); ok {
			L.ChargeNumeral(string(s))
		}
		if f, ok := toNumber(v); ok {
			L.PushNumber(f)
		} else {
			L.Push(lua.LNil)
		}
		return 1
	}
	s := checkString(L, 1)
	L.ChargeNumeral(s)
	if base < 2 || base > 36 {
		argError(L, 2, "base out of range")
	}
	if n, ok := parseUnsigned(cString(s), uint64(base)); ok {
		L.Push(lua.LNumber(n))
	} else {
		L.Push(lua.LNil)
	}
	return 1
}

// parseUnsigned reads all of s as C's strtoul does: white space, a sign (minus wraps around), 0x in
// base 16, digits of the base up to the largest unsigned 64-bit number, white space.
func parseUnsigned(s string, base uint64) (n uint64, ok bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if base == 16 && len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		s = s[2:]
	}
	if s == "" {
		return 0, false
	}
	overflow := false
	for i := range len(s) {
		d := uint64(36)
		switch c := s[i]; {
		case isDigit(c):
			d = uint64(c - '0')
		case isAlpha(c):
			d = uint64(c|0x20-'a') + 10
		}
		if d >= base {
			return 0, false
		}
		if n > (1<<64-1-d)/base {
			overflow = true
		}
		n = n*base + d
	}
	if overflow {
		return 1<<64 - 1, true
	}
	if negative {
		n = -n
	}
	return n, true
}
