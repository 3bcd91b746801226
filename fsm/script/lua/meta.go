package lua

import (
	"slices"
	"strings"
)

// errReadOnly is the error of an assignment to a read-only table, or to a global.
const errReadOnly = "Attempt to modify a readonly table"

// callMeta calls a metamethod with two values and returns its first result.
func (L *LState) callMeta(f, a, b LValue) LValue {
	L.Push(f)
	L.Push(a)
	L.Push(b)
	L.Call(2, 1)
	L.top--
	return L.reg[L.top]
}

// getField returns t[key], with metamethods.
func (L *LState) getField(object, key LValue) LValue {
	b := &L.G.Budget
	cost := int64(1)
	if s, ok := key.(LString); ok && len(s) >= bytesHashed {
		cost += int64(len(s)) / bytesHashed
		b.Charge(L, cost)
	}
	for range maxIndexChain {
		tb, isTable := object.(*LTable)
		var mt *LTable
		if isTable {
			b.Instructions -= tb.reach()
			if v := tb.RawGet(key); v != LNil {
				return v
			}
			if mt = tb.Metatable; mt == nil {
				return LNil
			}
		} else if mt = L.Metatable(object); mt == nil {
			L.RaiseError("attempt to index a " + object.Type().String() + " value")
		}
		index := mt.RawGetString("__index")
		if index == LNil {
			if !isTable {
				L.RaiseError("attempt to index a " + object.Type().String() + " value")
			}
			return LNil
		}
		b.Instructions -= cost
		if L.G.Strict {
			b.Instructions -= mt.compares()
			if isTable {
				b.Instructions -= tb.compares()
			}
		}
		if b.Instructions < 0 {
			L.raiseSpent()
		}
		if f, ok := index.(*LFunction); ok {
			return L.callMeta(f, object, key)
		}
		object = index
	}
	L.RaiseError("loop in gettable")
	return nil
}

// GetField returns t[key], with metamethods.
func (L *LState) GetField(object, key LValue) LValue { return L.getField(object, key) }

// setField sets t[key], with metamethods.
func (L *LState) setField(object, key, value LValue) {
	cost := int64(1)
	if s, ok := key.(LString); ok && len(s) >= bytesHashed {
		cost += int64(len(s)) / bytesHashed
	}
	for range maxIndexChain {
		tb, isTable := object.(*LTable)
		var mt *LTable
		if isTable {
			if mt = tb.Metatable; mt == nil || tb.ReadOnly() {
				L.rawSet(tb, key, value)
				return
			}
		} else if mt = L.Metatable(object); mt == nil {
			L.RaiseError("attempt to index a " + object.Type().String() + " value")
		}
		newIndex := mt.RawGetString("__newindex")
		if newIndex == LNil && !isTable {
			L.RaiseError("attempt to index a " + object.Type().String() + " value")
		}
		L.G.Budget.Charge(L, cost-1) // before a long key is hashed
		if newIndex == LNil || isTable && tb.RawGet(key) != LNil {
			L.rawSet(tb, key, value)
			return
		}
		L.G.Budget.Charge(L, 1)
		if L.G.Strict {
			L.G.Budget.Instructions -= mt.compares()
			if isTable {
				L.G.Budget.Instructions -= tb.compares()
			}
		}
		if f, ok := newIndex.(*LFunction); ok {
			L.Push(f)
			L.Push(object)
			L.Push(key)
			L.Push(value)
			L.Call(3, 0)
			return
		}
		object = newIndex
	}
	L.RaiseError("loop in settable")
}

// rawSet sets t[key] for a script, without metamethods.
func (L *LState) rawSet(tb *LTable, key, value LValue) {
	if tb.marks != 0 {
		if tb.ReadOnly() {
			L.RaiseError(errReadOnly)
		}
		L.G.Touched = true
	}
	switch k := key.(type) {
	case LNumber:
		if i := int(k); i >= 1 && i <= len(tb.array) && LNumber(i) == k && value != LNil {
			old := tb.array[i-1]
			if valueBytes(value) != 0 && valueBytes(old) == 0 {
				L.G.Budget.ChargeBytes(L, numberBytes)
			}
			if old == LNil {
				tb.holes--
			}
			tb.array[i-1] = value
			return
		}
		if k != k {
			L.RaiseError("table index is NaN")
		}
	case LString:
		if len(k) >= bytesHashed {
			L.G.Budget.Charge(L, int64(len(k))/bytesHashed)
		}
		L.G.Budget.Instructions -= tb.reach()
		if i := tb.placeString(string(k)); i >= 0 && (value != LNil || !tb.exact()) {
			if valueBytes(value) != 0 && valueBytes(tb.entries[i].value) == 0 {
				L.G.Budget.ChargeBytes(L, numberBytes)
			}
			tb.setEntry(i, key, value)
			return
		}
		if value != LNil && (!tb.exact() || tb.shapeless(key, value)) {
			L.G.Budget.Instructions -= tb.reach()
			units, bytes := tb.entryGrowth()
			L.G.Budget.ChargeBytes(L, bytes+valueBytes(value))
			L.G.Budget.Charge(L, units)
			tb.addEntry(key, value)
			return
		}
	case *LNilType:
		L.RaiseError("table index is nil")
	}
	L.G.Budget.Instructions -= tb.reach()
	if i := tb.appends(key); i > 0 {
		L.RawSetInt(tb, i, value)
		return
	}
	if units, bytes := tb.growth(key, value); units|bytes != 0 {
		L.G.Budget.ChargeBytes(L, bytes)
		L.G.Budget.Charge(L, units)
	}
	tb.RawSet(key, value)
}

// RawGet returns t[key] without metamethods, and charges for it.
func (L *LState) RawGet(tb *LTable, key LValue) LValue {
	b := &L.G.Budget
	b.Instructions -= tb.reach()
	if s, ok := key.(LString); ok {
		b.Charge(L, int64(len(s))/bytesHashed)
	}
	return tb.RawGet(key)
}

// RawSet sets t[key] for a library function, without metamethods, and charges for it. The key is
// neither nil nor NaN.
func (L *LState) RawSet(tb *LTable, key, value LValue) {
	if tb.marks&watched != 0 {
		L.G.Touched = true
	}
	units, bytes := tb.growth(key, value)
	units += tb.reach()
	if s, ok := key.(LString); ok {
		units += int64(len(s)) / bytesHashed
	}
	L.G.Budget.ChargeBytes(L, bytes)
	L.G.Budget.Charge(L, units)
	tb.RawSet(key, value)
}

// RawSetInt is RawSet with an integer key.
func (L *LState) RawSetInt(tb *LTable, key int, value LValue) {
	if key >= 1 && (key <= int(tb.size) || tb.appends(LNumber(key)) > 0) {
		if tb.marks&watched != 0 {
			L.G.Touched = true
		}
		units, bytes := tb.arrayGrowth(key, value)
		L.G.Budget.ChargeBytes(L, bytes)
		L.G.Budget.Charge(L, units)
		if key > int(tb.size) {
			tb.size = max(1, 2*tb.size)
		}
		tb.setArray(key, value)
		return
	}
	L.RawSet(tb, number(LNumber(key)), value)
}

// Put is RawSet without raising: once the budget is spent it sets nothing and returns false.
func (L *LState) Put(tb *LTable, key, value LValue) bool {
	units, bytes := tb.growth(key, value)
	if s, ok := key.(LString); ok {
		units += int64(len(s)) / bytesHashed
	}
	b := &L.G.Budget
	if b.Take(units, bytes); b.Instructions < 0 || b.Bytes < 0 {
		return false
	}
	tb.RawSet(key, value)
	return true
}

// TouchTable records that a library function is about to change a table.
func (L *LState) TouchTable(tb *LTable) {
	if tb.marks&watched != 0 {
		L.G.Touched = true
	}
}

// equal is the operator ==.
func (L *LState) equal(x, y LValue) bool {
	if s, ok := x.(LString); ok {
		t, ok := y.(LString)
		if !ok || len(s) != len(t) {
			return false
		}
		if len(s) >= bytesLess {
			L.chargeEqual(len(s))
		}
		return s == t
	}
	if x == y {
		return true
	}
	a, ok := x.(*LTable)
	if !ok || a.Metatable == nil {
		return false
	}
	c, ok := y.(*LTable)
	if !ok || c.Metatable == nil {
		return false
	}
	meta := a.Metatable.RawGetString("__eq")
	if meta.Type() != LTFunction || meta != c.Metatable.RawGetString("__eq") {
		return false
	}
	return LVAsBool(L.callMeta(meta, x, y))
}

// RawEqual is == without metamethods.
func (L *LState) RawEqual(x, y LValue) bool {
	if s, ok := x.(LString); ok {
		L.chargeEqual(len(s))
	}
	return x == y
}

// chargeEqual charges for comparing n bytes by ==, for which release 0.1 charged less.
func (L *LState) chargeEqual(n int) {
	per := int64(bytesEqual)
	if L.G.Strict {
		per = bytesLess
	}
	L.G.Budget.Charge(L, int64(n)/per)
}

// LessThan is the operator <.
func (L *LState) LessThan(x, y LValue) bool { return L.compare(x, y, false) }

// compare is < or, with orEqual, <=.
func (L *LState) compare(x, y LValue, orEqual bool) bool {
	if x.Type() != y.Type() {
		L.RaiseError("attempt to compare " + x.Type().String() + " with " + y.Type().String())
	}
	switch x := x.(type) {
	case LNumber:
		return x < y.(LNumber) || orEqual && x == y.(LNumber)
	case LString:
		y := y.(LString)
		L.G.Budget.Charge(L, int64(min(len(x), len(y)))/bytesLess)
		c := strings.Compare(string(x), string(y))
		return c < 0 || orEqual && c == 0
	}
	if orEqual {
		if meta := L.comparison(x, y, "__le"); meta != LNil {
			return LVAsBool(L.callMeta(meta, x, y))
		}
		x, y = y, x
	}
	meta := L.comparison(x, y, "__lt")
	if meta == LNil {
		L.RaiseError("attempt to compare two " + x.Type().String() + " values")
	}
	return LVAsBool(L.callMeta(meta, x, y)) != orEqual
}

// comparison returns the metamethod that both values have, or LNil.
func (L *LState) comparison(x, y LValue, event string) LValue {
	meta := L.GetMetaField(x, event)
	if meta.Type() == LTFunction && meta == L.GetMetaField(y, event) {
		return meta
	}
	return LNil
}

// joinable reports whether v is a string or a number.
func joinable(v LValue) bool {
	t := v.Type()
	return t == LTString || t == LTNumber
}

// concat joins the registers from first to last. As in Lua 5.1 it works from the right: it joins a
// sequence of strings and numbers at once, and passes any other pair to the __concat of one of
// them.
func (L *LState) concat(first, last int) LValue {
	v := L.reg[last]
	for i := last - 1; i >= first; {
		left := L.reg[i]
		if !joinable(left) || !joinable(v) {
			v = L.concatMeta(left, v)
			i--
			continue
		}
		from := i
		for from > first && joinable(L.reg[from-1]) {
			from--
		}
		v = L.join(L.reg[from:i+1], v)
		i = from - 1
	}
	return v
}

// concatCall is what a call of __concat takes besides: it leaves the virtual machine and comes
// back.
const concatCall = 4

func (L *LState) concatMeta(left, right LValue) LValue {
	meta := L.GetMetaField(left, "__concat")
	if meta == LNil {
		meta = L.GetMetaField(right, "__concat")
	}
	if meta == LNil {
		if joinable(left) {
			left = right
		}
		L.RaiseError("attempt to concatenate a " + left.Type().String() + " value")
	}
	if L.G.Strict {
		L.G.Budget.Instructions -= concatCall
	}
	return L.callMeta(meta, left, right)
}

// text returns a string or a number as a string.
func (L *LState) text(v LValue) string {
	if s, ok := v.(LString); ok {
		return string(s)
	}
	L.G.Budget.Instructions -= numeralUnits
	return FormatNumber(float64(v.(LNumber)))
}

// join joins strings and numbers, and one more after them.
func (L *LState) join(values []LValue, last LValue) LValue {
	if len(values) == 1 {
		x, y := L.text(values[0]), L.text(last)
		L.ChargeString(len(x) + len(y))
		return LString(x + y)
	}
	L.ChargeSlots(4 * len(values))
	var room [8]string
	if len(values) < len(room) {
		return L.joinInto(room[:0], values, last)
	}
	parts := slices.Grow(L.G.joined[:0], len(values)+1) // the next one reuses it
	L.G.joined = parts[:len(values)+1]
	return L.joinInto(parts, values, last)
}

// joinInto is join with room for the parts, which does not grow.
func (L *LState) joinInto(parts []string, values []LValue, last LValue) LValue {
	total := 0
	for _, v := range values {
		s := L.text(v)
		parts = append(parts, s)
		total += len(s)
	}
	s := L.text(last)
	parts = append(parts, s)
	L.ChargeString(total + len(s))
	return LString(strings.Join(parts, ""))
}

// ChargeString charges for a new string of n bytes: the work of writing it and its memory.
func (L *LState) ChargeString(n int) {
	L.G.Budget.Charge(L, 1+int64(n)/bytesBuilt)
	L.G.Budget.ChargeBytes(L, stringBytes+int64(n))
}
