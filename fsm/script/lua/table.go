package lua

import (
	"iter"
	"math/bits"
)

// entry is a key that is not in the array. After the key is set to nil, its value is LNil and the
// key keeps its position.
type entry struct{ key, value LValue }

// smallTable is how many keys a table may have without an index.
const smallTable = 8

// LTable is a table. Positive integers up to its size are keys of an array, which is filled with
// nil up to the highest one and never ends with nil. All other keys keep the order in which they
// first came: a walk meets them in that order on every node.
type LTable struct {
	Metatable *LTable // nil: none
	array     []LValue
	entries   []entry
	// index in entries, if there are more than smallTable; looked up only
	strings map[string]int32
	others  map[LValue]int32
	shape   *shape // see needsShape
	length  int32  // the longest that the array was, if its sizes are not exact
	holes   int32  // in the array, if its sizes are exact
	size    int32  // up to which positive integers are in the array
	dead    int32  // entries without a value
	hint    uint8  // log2 of the nodes that the table began with, plus one; 0: it had none
	marks   uint8
}

// The marks of a table.
const (
	readOnly = 1 << iota // scripts may not change it
	watched              // changes are recorded: the table outlives the run
)

// ReadOnly reports whether scripts may not change the table.
func (tb *LTable) ReadOnly() bool { return tb.marks&readOnly != 0 }

// SetReadOnly makes the table read-only for scripts. Go functions can still change it.
func (tb *LTable) SetReadOnly() { tb.marks |= readOnly }

// newTable returns a table with room for slots and keys. Its array begins empty.
func newTable(slots, keys int, exact bool) *LTable {
	tb := &LTable{}
	if !exact {
		tb.size = classicSize
	}
	if slots > 0 {
		tb.array = make([]LValue, 0, slots)
	}
	if keys > 0 {
		tb.entries = make([]entry, 0, keys)
	}
	return tb
}

// Length returns the length of a table: in release 0.1 the highest positive integer key, 0 if there
// is none, then the one that C Lua finds. It charges for the search, and the next instruction
// raises.
func (L *LState) Length(tb *LTable) int {
	if !tb.exact() {
		return len(tb.array)
	}
	n, units := tb.border()
	L.G.Budget.Instructions -= units
	return n
}

// begin gives an empty table the sizes that a constructor asks for.
func (tb *LTable) begin(slots, keys int) {
	if tb.exact() {
		tb.size, tb.hint = int32(slots), 0
		if keys > 0 {
			tb.hint = uint8(1 + bits.Len(uint(keys-1)))
		}
	}
}

// Last returns the highest position of the array.
func (tb *LTable) Last() int { return len(tb.array) }

// index finds a key among the entries; -1 if it is not there.
func (tb *LTable) index(key LValue) int {
	if s, ok := key.(LString); ok {
		return tb.placeString(string(s))
	}
	if tb.others != nil || tb.strings != nil {
		if i, ok := tb.others[key]; ok {
			return int(i)
		}
		return -1
	}
	for i := range tb.entries {
		if tb.entries[i].key == key {
			return i
		}
	}
	return -1
}

func (tb *LTable) placeString(key string) int {
	if tb.strings != nil || tb.others != nil {
		if i, ok := tb.strings[key]; ok {
			return int(i)
		}
		return -1
	}
	for i := range tb.entries {
		if s, ok := tb.entries[i].key.(LString); ok && string(s) == key {
			return i
		}
	}
	return -1
}

// Refill makes the table as new, with these values, none of them nil, as its array. Nothing may
// refer to the table or keep the slice.
func (tb *LTable) Refill(values []LValue, exact bool) {
	*tb = LTable{array: values[:len(values):len(values)], length: int32(len(values)),
		size: classicSize}
	if exact {
		tb.size = int32(nodeCount(len(values)))
	}
}

// Place returns the position of a key among the keys, -1 if it never was in the table.
func (tb *LTable) Place(key string) int { return tb.placeString(key) }

// SetPlace sets the value of the key at a position.
func (tb *LTable) SetPlace(at int, value LValue) { tb.setEntry(at, nil, value) }

// addEntry appends a key that is not among the entries.
func (tb *LTable) addEntry(key, value LValue) {
	if len(tb.entries) == cap(tb.entries) && tb.dropLost() {
		// the key's node has the index of an entry that is now elsewhere
		tb.shape.move(len(tb.entries))
	}
	at := len(tb.entries)
	if at == cap(tb.entries) {
		grown := make([]entry, at, tb.nextEntries())
		copy(grown, tb.entries)
		tb.entries = grown
	}
	tb.entries = append(tb.entries, entry{key, value})
	if at == smallTable {
		for i := range tb.entries {
			tb.indexEntry(i)
		}
	} else if at > smallTable {
		tb.indexEntry(at)
	}
}

func (tb *LTable) indexEntry(i int) {
	if s, ok := tb.entries[i].key.(LString); ok {
		if tb.strings == nil {
			tb.strings = map[string]int32{}
		}
		tb.strings[string(s)] = int32(i)
		return
	}
	if tb.others == nil {
		tb.others = map[LValue]int32{}
	}
	tb.others[tb.entries[i].key] = int32(i)
}

// setEntry sets the value of a key that is not in the array.
func (tb *LTable) setEntry(i int, key, value LValue) {
	if i < 0 {
		if value != LNil || tb.exact() {
			tb.addKey(key, value)
		}
		return
	}
	if value == LNil && tb.exact() {
		tb.needsShape() // its order of entries is no longer what came
	}
	e := &tb.entries[i]
	switch {
	case value == LNil && e.value != LNil:
		tb.dead++
	case value != LNil && e.value == LNil:
		tb.dead--
	}
	e.value = value
}

// setArray sets the value of a positive integer key.
func (tb *LTable) setArray(index int, value LValue) {
	switch n := len(tb.array); {
	case index <= n:
		tb.replace(index, value)
		if index == n && value == LNil {
			tb.trim()
		}
	case value == LNil:
	case index == n+1:
		if n == cap(tb.array) {
			tb.reserve(tb.nextSlots(index))
		}
		tb.array = append(tb.array, value)
		tb.length = max(tb.length, int32(index))
	default:
		if cap(tb.array) < index {
			tb.reserve(tb.nextSlots(index))
		}
		tb.array = tb.array[:index]
		for i := n; i < index-1; i++ {
			tb.array[i] = LNil
		}
		tb.holes += int32(index - 1 - n)
		tb.array[index-1] = value
		tb.length = max(tb.length, int32(index))
	}
}

// replace sets the value of a key up to the highest one.
func (tb *LTable) replace(index int, value LValue) {
	if old := tb.array[index-1]; (old == LNil) != (value == LNil) {
		if value == LNil {
			tb.holes++
		} else {
			tb.holes--
		}
	}
	tb.array[index-1] = value
}

// nextSlots returns the array's size after growing for an index, nextEntries that of the entries.
func (tb *LTable) nextSlots(index int) int {
	return max(4, min(2*cap(tb.array), cap(tb.array)+maxGrowth), index)
}

func (tb *LTable) nextEntries() int {
	return max(4, min(2*cap(tb.entries), cap(tb.entries)+maxGrowth/2))
}

// maxGrowth bounds by how many slots an array grows at once, so that a large table wastes little
// memory.
const maxGrowth = 1 << 19

// growth returns what t[key] = value allocates and moves.
func (tb *LTable) growth(key, value LValue) (units, bytes int64) {
	if n, ok := key.(LNumber); ok {
		if i, ok := tb.arrayIndex(n); ok {
			return tb.arrayGrowth(i, value)
		}
		bytes = numberBytes
	}
	exact := tb.exact()
	if value == LNil && !exact {
		return 0, 0
	}
	if i := tb.appends(key); exact && i > 0 {
		return tb.arrayGrowth(i, value)
	}
	if tb.index(key) >= 0 {
		if value == LNil && tb.shape == nil { // needsShape
			return keyPlaced * int64(len(tb.entries)), 64 + 8*int64(len(tb.entries))
		}
		return 0, valueBytes(value)
	}
	units, entry := tb.entryGrowth()
	bytes += entry + valueBytes(value)
	if exact {
		u, b := tb.shapeGrowth(key, value)
		units, bytes = units+u, bytes+b
	}
	return units, bytes
}

func (tb *LTable) entryGrowth() (units, bytes int64) {
	n := len(tb.entries)
	units = 3
	if n == cap(tb.entries) {
		if s := tb.shape; s != nil && s.lost >= n/2 { // dropLost, if the key takes a node
			units += tb.indexing()
		}
		bytes = int64(tb.nextEntries()-n) * entryBytes
		units += int64(n) / slotsCleared
	}
	switch {
	case n == smallTable:
		bytes += (smallTable + 1) * indexBytes
		units += 64
	case n > smallTable:
		bytes += indexBytes
		units += 36
	}
	return units, bytes
}

func (tb *LTable) arrayGrowth(index int, value LValue) (units, bytes int64) {
	n := len(tb.array)
	if value == LNil {
		return 0, 0
	}
	if index > cap(tb.array) {
		bytes = int64(tb.nextSlots(index)-cap(tb.array)) * slotBytes
		units = int64(n) / slotsCleared
	}
	if index > n+1 {
		units += int64(index-n) / (slotsCleared / 4) // filled now, removed or walked over later
	}
	return units, bytes + valueBytes(value)
}

// valueBytes returns what storing a value takes besides its slot.
func valueBytes(v LValue) int64 {
	if n, ok := v.(LNumber); ok && !(n >= 0 && n < LNumber(len(smallNumbers))) {
		return numberBytes
	}
	return 0
}

// reserve allocates an array of n values.
func (tb *LTable) reserve(n int) {
	grown := make([]LValue, len(tb.array), n)
	copy(grown, tb.array)
	tb.array = grown
}

// trim removes the nils at the end of the array.
func (tb *LTable) trim() {
	n := len(tb.array)
	for n > 0 && tb.array[n-1] == LNil {
		n--
		tb.array[n] = nil
		tb.holes--
	}
	tb.array = tb.array[:n]
}

// Append appends a value that is not nil to the array.
func (tb *LTable) Append(value LValue) { tb.setArray(len(tb.array)+1, value) }

// RawSet sets t[key] without metamethods. The key is neither nil nor NaN.
func (tb *LTable) RawSet(key, value LValue) {
	if n, ok := key.(LNumber); ok {
		if i, ok := tb.arrayIndex(n); ok {
			tb.setArray(i, value)
			return
		}
	}
	tb.setEntry(tb.index(key), key, value)
}

// RawSetInt sets t[key] without metamethods.
func (tb *LTable) RawSetInt(key int, value LValue) {
	if key >= 1 && key <= int(tb.size) {
		tb.setArray(key, value)
		return
	}
	tb.RawSet(LNumber(key), value)
}

// RawSetString sets t[key] without metamethods.
func (tb *LTable) RawSetString(key string, value LValue) {
	if i := tb.placeString(key); i >= 0 {
		tb.setEntry(i, nil, value)
	} else if value != LNil {
		tb.addKey(LString(key), value)
	}
}

// RawGet returns t[key] without metamethods.
func (tb *LTable) RawGet(key LValue) LValue {
	if n, ok := key.(LNumber); ok {
		if i, ok := tb.arrayIndex(n); ok {
			if i <= len(tb.array) {
				return tb.array[i-1]
			}
			return LNil
		}
	}
	if i := tb.index(key); i >= 0 {
		return tb.entries[i].value
	}
	return LNil
}

// RawGetInt returns t[key] without metamethods.
func (tb *LTable) RawGetInt(key int) LValue {
	if key >= 1 && key <= int(tb.size) {
		if key <= len(tb.array) {
			return tb.array[key-1]
		}
		return LNil
	}
	return tb.RawGet(LNumber(key))
}

// The units of finding a key that is not in the array, and how many entries without an index a
// unit pays for.
const (
	keyFound        = 2
	entriesCompared = 4
)

// seek returns what a look at a key that is not in the array costs.
func (tb *LTable) seek() int64 {
	if len(tb.entries) == 0 {
		return 0
	}
	return keyFound + tb.reach()
}

// compares returns what a look at a key costs that others come with: the keys of a small table,
// or of the hash part's index, are compared with it.
func (tb *LTable) compares() int64 {
	return int64(min(len(tb.entries), smallTable)) / entriesCompared
}

// RawGetInt returns t[key] without metamethods, and charges for finding it outside of the array,
// which release 0.1 did not. It does not raise: the next charge does.
func (L *LState) RawGetInt(tb *LTable, key int) LValue {
	if (key < 1 || key > int(tb.size)) && tb.exact() {
		L.G.Budget.Instructions -= tb.seek()
	}
	return tb.RawGetInt(key)
}

// RawGetString returns t[key] without metamethods.
func (tb *LTable) RawGetString(key string) LValue {
	if i := tb.placeString(key); i >= 0 {
		return tb.entries[i].value
	}
	return LNil
}

// Insert inserts a value at a position of the array, from 1 to its length.
func (tb *LTable) Insert(position int, value LValue) {
	tb.array = append(tb.array, LNil)
	copy(tb.array[position:], tb.array[position-1:])
	tb.array[position-1] = LNil
	tb.holes++
	tb.replace(position, value)
	tb.length = max(tb.length, int32(len(tb.array)))
	tb.trim()
}

// Remove removes and returns the value at a position of the array, from 1 to its length.
func (tb *LTable) Remove(position int) LValue {
	value := tb.array[position-1]
	tb.replace(position, LNil)
	copy(tb.array[position-1:], tb.array[position:])
	tb.array[len(tb.array)-1] = LNil
	tb.trim()
	return value
}

// reach is the additional cost of finding a key in a table that exceeds the processor's caches: the
// index, the entry, and the bytes of both keys if they are strings. Release 0.1 charged for one of
// these.
func (tb *LTable) reach() int64 {
	switch {
	case len(tb.entries) <= 4096:
		return 0
	case tb.exact():
		return 10
	}
	return 3
}

// HasKeys reports whether the table has, or had, keys that are not in its array.
func (tb *LTable) HasKeys() bool { return len(tb.entries) > 0 }

// Pairs walks over the table like Next, without looking keys up.
func (tb *LTable) Pairs() iter.Seq2[LValue, LValue] {
	return func(yield func(key, value LValue) bool) {
		for i := 0; i < len(tb.array); i++ {
			if v := tb.array[i]; v != LNil && !yield(number(LNumber(i+1)), v) {
				return
			}
		}
		for i := 0; i < len(tb.entries); i++ {
			if e := tb.entries[i]; e.value != LNil && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Next returns the pair after a key in a walk over the table. The walk begins after LNil and ends
// with the key LNil.
func (tb *LTable) Next(key LValue) (next, value LValue) {
	next, value, _, _ = tb.step(key)
	return next, value
}

// stepsSkipped is how many empty positions one unit pays for.
const stepsSkipped = 4

// step is Next with how many empty positions it skipped. Release 0.1 saw none before the last part
// of a table, nor those of the last step. ok is false if the key never was in the table.
func (tb *LTable) step(key LValue) (next, value LValue, skipped int, ok bool) {
	from, entryFrom, exact := 0, 0, tb.exact()
	if key != LNil {
		n, isNumber := key.(LNumber)
		i, isArray := tb.arrayIndex(n)
		switch {
		case isNumber && isArray && !exact && i > int(tb.length):
			return LNil, LNil, 0, false
		case isNumber && isArray:
			from = i
		default:
			if i = tb.index(key); i < 0 {
				return LNil, LNil, 0, false
			}
			from, entryFrom = len(tb.array), i+1
		}
	}
	for i := from; i < len(tb.array); i++ {
		if v := tb.array[i]; v != LNil {
			return number(LNumber(i + 1)), v, i - from, true
		}
	}
	if exact && from < len(tb.array) {
		skipped = len(tb.array) - from
	}
	for i := entryFrom; i < len(tb.entries); i++ {
		if e := &tb.entries[i]; e.value != LNil {
			return e.key, e.value, skipped + i - entryFrom, true
		}
	}
	if exact {
		skipped += len(tb.entries) - entryFrom
	}
	return LNil, LNil, skipped, true
}

// Next returns the pair after a key in a walk over the table, which begins after LNil and ends with
// the key LNil, and charges for it and for looking the key up, which release 0.1 did not. ok is
// false if the key never was in the table.
func (L *LState) Next(tb *LTable, key LValue) (next, value LValue, ok bool) {
	if s, isString := key.(LString); isString && L.G.Strict {
		L.G.Budget.Charge(L, int64(len(s))/bytesHashed)
	}
	next, value, skipped, ok := tb.step(key)
	if ok {
		L.G.Budget.Charge(L, 2+int64(skipped)/stepsSkipped)
	}
	return next, value, ok
}

// Walk returns what a walk over the whole table costs besides what is done with its pairs.
func (tb *LTable) Walk() int64 {
	if !tb.exact() {
		return int64(tb.empty()) / 4
	}
	return int64(len(tb.array)+len(tb.entries)) / stepsSkipped
}

// empty weighs what a walk over the whole table may skip, as in release 0.1: deleted keys, and a
// quarter for each position of the array.
func (tb *LTable) empty() int { return int(tb.dead) + len(tb.array)/4 }
