// The table library of Lua 5.1, and unpack.

package script

import (
	"strconv"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

// slotsMoved is how many moved values of an array one instruction pays for.
const slotsMoved = 10

// openTable returns the table of the table library. The caller makes it the global `table`.
func openTable(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"concat", tableConcat},
		{"foreach", tableForeach},
		{"foreachi", tableForeachi},
		{"getn", tableGetn},
		{"insert", writing(tableInsert)},
		{"maxn", tableMaxn},
		{"remove", writing(tableRemove)},
		{"setn", tableSetn},
		{"sort", writing(tableSort)},
	})
}

func tableGetn(L *lua.LState) int {
	L.Push(lua.LNumber(L.Length(checkTable(L, 1))))
	return 1
}

// tableSetn raises Lua 5.1's error for a function of Lua 5.0.
func tableSetn(L *lua.LState) int {
	checkTable(L, 1)
	raise(L, "'setn' is obsolete")
	return 0
}

// tableMaxn returns the largest numeric key, 0 if none is positive.
func tableMaxn(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	chargeWalk(L, t)
	largest := lua.LNumber(0)
	for key := range t.Pairs() {
		b.Charge(L, 1)
		if n, ok := key.(lua.LNumber); ok && n > largest {
			largest = n
		}
	}
	L.Push(largest)
	return 1
}

// tableInsert is table.insert(t, [position,] value).
func tableInsert(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	b.Charge(L, 1)
	length := L.Length(t)
	switch L.GetTop() {
	case 2:
		L.RawSetInt(t, length+1, L.Get(2))
	case 3:
		position := checkInt(L, 2)
		if position < 1 {
			moveUp(L, b, t, length, position)
		} else if position <= length {
			insertAt(L, b, t, length, position)
		} else {
			L.RawSetInt(t, position, L.Get(3))
		}
	default:
		raise(L, "wrong number of arguments to 'insert'")
	}
	return 0
}

// insertAt inserts argument 3 at a position from 1 to the length.
func insertAt(L *lua.LState, b *lua.Budget, t *lua.LTable, length, position int) {
	if t.Last() != length {
		moveUp(L, b, t, length, position)
		return
	}
	b.Charge(L, int64(length-position)/slotsMoved)
	L.RawSetInt(t, length+1, lua.LTrue) // charges for the slot
	if t.Last() != length+1 {           // it is not in the array
		moveUp(L, b, t, length, position)
		return
	}
	t.Remove(length + 1)
	t.Insert(position, L.Get(3))
}

// moveUp inserts argument 3 at a position: all elements from there to the length move up, one after
// the other.
func moveUp(L *lua.LState, b *lua.Budget, t *lua.LTable, length, position int) {
	for i := length + 1; i > position; i-- {
		b.Charge(L, moveUnits(L, i-1))
		L.RawSetInt(t, i, L.RawGetInt(t, i-1))
	}
	L.RawSetInt(t, position, L.Get(3))
}

// moveUnits is the cost of moving the element at a position. Those below 1 are not in an array.
func moveUnits(L *lua.LState, position int) int64 {
	if position < 1 && L.G.Strict {
		return 20
	}
	return 1
}

// tableRemove is table.remove(t [, position]).
func tableRemove(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	b.Charge(L, 1)
	length := L.Length(t)
	position := optInt(L, 2, length)
	if position < 1 || position > length {
		return 0
	}
	if t.Last() != length { // there are elements after a nil, or not in the array
		L.Push(L.RawGetInt(t, position))
		for ; position < length; position++ {
			b.Charge(L, 1)
			L.RawSetInt(t, position, L.RawGetInt(t, position+1))
		}
		L.RawSetInt(t, length, lua.LNil)
		return 1
	}
	b.Charge(L, int64(length-position)/slotsMoved)
	L.Push(t.Remove(position))
	return 1
}

// tableConcat is table.concat(t [, separator [, first [, last]]]).
func tableConcat(L *lua.LState) int {
	separator := optString(L, 2, "")
	t := checkTable(L, 1)
	first := optInt(L, 3, 1)
	b := budgetOf(L)
	var last int
	if L.Get(4) == lua.LNil {
		last = L.Length(t)
	} else {
		last = checkInt(L, 4)
	}
	// Measured first: a growing buffer leaves copies behind.
	total := int64(0)
	var numeral [32]byte
	for i := first; i <= last; i++ {
		v := L.RawGetInt(t, i)
		switch v := v.(type) {
		case lua.LString:
			total += int64(len(v))
			b.Charge(L, 2+int64(len(v))/16)
		case lua.LNumber:
			total += int64(len(lua.AppendNumber(numeral[:0], float64(v), 14)))
			b.Charge(L, 2*numeralInstructions)
		default:
			raise(L, "invalid value ("+v.Type().String()+") at index "+strconv.Itoa(i)+
				" in table for 'concat'")
		}
		if i != last {
			total += int64(len(separator))
			b.Charge(L, int64(len(separator))/16)
		}
	}
	b.ChargeBytes(L, total)
	var out strings.Builder
	out.Grow(int(total))
	for i := first; i <= last; i++ {
		switch v := L.RawGetInt(t, i).(type) {
		case lua.LString:
			out.WriteString(string(v))
		case lua.LNumber:
			out.Write(lua.AppendNumber(numeral[:0], float64(v), 14))
		}
		if i != last {
			out.WriteString(separator)
		}
	}
	return push(L, out.String())
}

// tableForeach is table.foreach(t, f): f(key, value) for all pairs until a call returns something.
func tableForeach(L *lua.LState) int {
	t, f := checkTable(L, 1), checkFunction(L, 2)
	results := 0
	walk(L, t, func(key, value lua.LValue) bool {
		chargeKey(L, key)
		if callForeach(L, f, key, value) {
			results = 1
		}
		return results == 0
	})
	return results
}

// tableForeachi is table.foreachi(t, f): f(i, t[i]) from 1 to #t until a call returns something.
func tableForeachi(L *lua.LState) int {
	t, f := checkTable(L, 1), checkFunction(L, 2)
	b := budgetOf(L)
	n := L.Length(t)
	for i := 1; i <= n; i++ {
		b.Charge(L, 1)
		if callForeach(L, f, lua.LNumber(i), L.RawGetInt(t, i)) {
			return 1
		}
	}
	return 0
}

// callForeach calls f(key, value); a result other than nil stays on the stack and ends the loop.
func callForeach(L *lua.LState, f *lua.LFunction, key, value lua.LValue) (done bool) {
	L.Push(f)
	L.Push(key)
	L.Push(value)
	L.Call(2, 1)
	if L.Get(-1) != lua.LNil {
		return true
	}
	L.Pop(1)
	return false
}

// luaUnpack is the global unpack(t [, first [, last]]).
func luaUnpack(L *lua.LState) int {
	t := checkTable(L, 1)
	first := optInt(L, 2, 1)
	last := 0
	if L.Get(3) == lua.LNil {
		last = L.Length(t)
	} else {
		last = checkInt(L, 3)
	}
	if first > last {
		return 0
	}
	n := int64(last) - int64(first) + 1
	if !hasStack(L, n) {
		raise(L, "too many results to unpack")
	}
	b := budgetOf(L)
	b.Charge(L, n)
	for i := first; i <= last; i++ {
		L.Push(L.RawGetInt(t, i))
	}
	return int(n)
}
