// The table library of Lua 5.1, and unpack. gopher-lua keeps a table's positive integer keys in an array that it fills
// with nil up to the highest one, so what makes that array longer is charged here by its length.

package fsm

import (
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// valueBytes is what one slot of a table's array takes.
const valueBytes = 16

// openTable returns the table of the table library. The caller makes it the global `table`.
func openTable(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"concat", tableConcat},
		{"foreach", tableForeach},
		{"foreachi", tableForeachi},
		{"getn", tableGetn},
		{"insert", tableInsert},
		{"maxn", tableMaxn},
		{"remove", tableRemove},
		{"setn", tableSetn},
		{"sort", tableSort},
	})
}

// element returns t[i] without metamethods, for any integer i.
func element(t *lua.LTable, i int) lua.LValue {
	if i > 0 && i < lua.MaxArrayIndex {
		return t.RawGetInt(i)
	}
	return t.RawGet(lua.LNumber(i))
}

// setElement sets t[i] without metamethods, and charges for the slots that t's array grows by; length is #t.
func setElement(L *lua.LState, b *budget, t *lua.LTable, length, i int, v lua.LValue) {
	if i > length && i < lua.MaxArrayIndex {
		b.charge(L, int64(i-length)/16)
		b.chargeBytes(L, int64(i-length)*valueBytes)
	} else if i <= 0 || i >= lua.MaxArrayIndex {
		b.chargeBytes(L, 4*valueBytes)
	}
	t.RawSetInt(i, v)
}

// trim drops the nil slots at the end of t's array and returns the last element. Left where they are, each #t would
// walk over them again. length is #t and above 0.
func trim(L *lua.LState, b *budget, t *lua.LTable, length int) lua.LValue {
	slots := int64(0)
	for {
		if v := t.Remove(-1); v != lua.LNil {
			b.charge(L, slots/16)
			t.RawSetInt(length, v)
			return v
		}
		slots++
	}
}

// lengthOf is #t. The nil slots that it walks over are dropped, so that each is paid for once.
func lengthOf(L *lua.LState, b *budget, t *lua.LTable) int {
	n := t.Len()
	if n > 0 {
		trim(L, b, t, n)
		return n
	}
	t.RawSetInt(1, lua.LTrue) // so that there is an end to what trim drops
	trim(L, b, t, 1)
	t.Remove(1)
	return 0
}

// nextPair is t.Next(key), the step of every traversal, for tables that may have been shortened since the last step.
// t.Next alone loses the first key that is no array index when the array has become shorter than the index it gets.
func nextPair(L *lua.LState, b *budget, t *lua.LTable, key lua.LValue) (nextKey, value lua.LValue) {
	n, ok := key.(lua.LNumber)
	if !ok || n < 1 || n >= lua.LNumber(lua.MaxArrayIndex) || n != lua.LNumber(int(n)) || t.RawGetInt(int(n)) != lua.LNil {
		return t.Next(key)
	}
	length := t.Len()
	b.charge(L, int64(slots(t)-length)/16)
	switch {
	case int(n) <= length:
		return t.Next(key)
	case length == 0:
		return t.Next(lua.LNil)
	}
	return t.Next(lua.LNumber(length))
}

func tableGetn(L *lua.LState) int {
	L.Push(lua.LNumber(lengthOf(L, budgetOf(L), checkTable(L, 1))))
	return 1
}

// tableSetn says what Lua 5.1 says about a function of Lua 5.0.
func tableSetn(L *lua.LState) int {
	checkTable(L, 1)
	raise(L, "'setn' is obsolete")
	return 0
}

// tableMaxn returns the largest numeric key, 0 where none is positive.
func tableMaxn(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	chargeWalk(L, b, t)
	largest := lua.LNumber(0)
	for key, _ := t.Next(lua.LNil); key != lua.LNil; key, _ = t.Next(key) {
		b.charge(L, 1)
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
	b.charge(L, 1)
	length := lengthOf(L, b, t)
	switch L.GetTop() {
	case 2:
		setElement(L, b, t, length, length+1, L.Get(2))
	case 3:
		position := checkInt(L, 2)
		if position < 1 {
			insertBefore(L, b, t, length, position)
		} else if position <= length {
			b.charge(L, int64(length-position)/16)
			b.chargeBytes(L, valueBytes)
			t.Insert(position, L.Get(3))
		} else {
			setElement(L, b, t, length, position, L.Get(3))
		}
	default:
		raise(L, "wrong number of arguments to 'insert'")
	}
	return 0
}

// insertBefore inserts argument 3 at a position below 1: all elements from there to the end of the array move up.
func insertBefore(L *lua.LState, b *budget, t *lua.LTable, length, position int) {
	for i := length + 1; i > position; i-- {
		b.charge(L, 1)
		setElement(L, b, t, length, i, element(t, i-1))
	}
	setElement(L, b, t, length, position, L.Get(3))
}

// tableRemove is table.remove(t [, position]).
func tableRemove(L *lua.LState) int {
	t := checkTable(L, 1)
	b := budgetOf(L)
	b.charge(L, 1)
	length := lengthOf(L, b, t)
	position := optInt(L, 2, length)
	if position < 1 || position > length {
		return 0
	}
	b.charge(L, int64(length-position)/16)
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
		last = lengthOf(L, b, t)
	} else {
		last = checkInt(L, 4)
	}
	var out []byte
	for i := first; i <= last; i++ {
		v := element(t, i)
		if b.charge(L, 1); v.Type() == lua.LTNumber {
			b.charge(L, numeralInstructions)
		}
		s, ok := toString(v)
		if !ok {
			raise(L, "invalid value ("+v.Type().String()+") at index "+strconv.Itoa(i)+" in table for 'concat'")
		}
		out = appendCharged(L, b, out, s)
		if i != last {
			b.chargeString(L, len(separator))
			out = append(out, separator...)
		}
	}
	return push(L, string(out))
}

// tableForeach is table.foreach(t, f): f(key, value) for all pairs until one call returns something.
func tableForeach(L *lua.LState) int {
	t, f := checkTable(L, 1), checkFunction(L, 2)
	b := budgetOf(L)
	chargeWalk(L, b, t)
	for key, value := nextPair(L, b, t, lua.LNil); key != lua.LNil; key, value = nextPair(L, b, t, key) {
		b.charge(L, 1+keyCost(key))
		if callForeach(L, f, key, value) {
			return 1
		}
	}
	return 0
}

// tableForeachi is table.foreachi(t, f): f(i, t[i]) from 1 to #t until one call returns something.
func tableForeachi(L *lua.LState) int {
	t, f := checkTable(L, 1), checkFunction(L, 2)
	b := budgetOf(L)
	n := lengthOf(L, b, t)
	for i := 1; i <= n; i++ {
		b.charge(L, 1)
		if callForeach(L, f, lua.LNumber(i), element(t, i)) {
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
		last = lengthOf(L, budgetOf(L), t)
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
	b.hands(int(n))
	b.charge(L, n)
	for i := first; i <= last; i++ {
		L.Push(element(t, i))
	}
	return int(n)
}
