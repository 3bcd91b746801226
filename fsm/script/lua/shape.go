package lua

import (
	"math"
	"math/bits"
)

// The sizes of tables as in C Lua 5.1, which programs see in the operator # of a table with holes.
// C Lua keeps an array of the positive integers up to a size, of which more than half are in use,
// and a hash part with a power of two of nodes for all other keys. It chooses both sizes again when
// a key comes for which no node is free, and only then. The hash part here finds nothing: it tells
// when C Lua would run out of nodes. (R. Ierusalimschy, L. H. de Figueiredo, W. Celes: The
// Implementation of Lua 5.0, section 4; ltable.c of Lua 5.1.)

// classicSize is the size of the array of a table as in release 0.1: any positive integer is in it.
const classicSize = MaxArrayIndex - 1

// exact reports whether the table has the sizes of C Lua.
func (tb *LTable) exact() bool { return tb.size != classicSize }

// arrayIndex reports whether a number is a key of the array.
func (tb *LTable) arrayIndex(n LNumber) (index int, ok bool) {
	index, ok = isArrayKey(n)
	return index, ok && index <= int(tb.size)
}

// shape is the hash part.
type shape struct {
	nodes []int32 // each the index of an entry plus one; 0: it never had a key
	free  int     // the nodes from here on have had a key
	lost  int     // entries whose node another key has taken
	// node of the key that was placed last
	newest int
}

// nodeCount returns how many nodes a hash part for n keys has.
func nodeCount(n int) int {
	if n == 0 {
		return 0
	}
	return 1 << bits.Len(uint(n-1))
}

// mainPosition returns the node in which a key is if it can choose. C Lua uses the addresses of
// tables and functions, which differ from run to run.
func mainPosition(key LValue, nodes int) int {
	switch k := key.(type) {
	case LString:
		h := uint32(len(k))
		step := len(k)>>5 + 1
		for i := len(k); i >= step; i -= step {
			h ^= h<<5 + h>>2 + uint32(k[i-1])
		}
		return int(h) & (nodes - 1)
	case LNumber:
		if k == 0 {
			return 0
		}
		b := math.Float64bits(float64(k))
		return int((uint32(b) + uint32(b>>32)) % uint32((nodes-1)|1))
	case LBool:
		if k {
			return 1 & (nodes - 1)
		}
	}
	return 0
}

// hasFree reports whether a node has never had a key.
func (s *shape) hasFree() bool {
	for s.free > 0 && s.nodes[s.free-1] != 0 {
		s.free--
	}
	return s.free > 0
}

// fits reports whether place finds a node for a key.
func (s *shape) fits(tb *LTable, key LValue) bool {
	if len(s.nodes) == 0 {
		return false
	}
	n := s.nodes[mainPosition(key, len(s.nodes))]
	return n == 0 || tb.entries[n-1].value == LNil || s.hasFree()
}

// loses returns the key that place deletes to make room for a key that fits; LNil: none.
func (s *shape) loses(tb *LTable, key LValue) LValue {
	n := s.nodes[mainPosition(key, len(s.nodes))]
	if n == 0 || tb.entries[n-1].value != LNil {
		return LNil
	}
	return tb.entries[n-1].key
}

// place gives a node to a key, which is or becomes the entry at an index. It returns false if there
// is none.
func (s *shape) place(tb *LTable, key LValue, at int) bool {
	if len(s.nodes) == 0 {
		return false
	}
	node := mainPosition(key, len(s.nodes))
	if n := s.nodes[node]; n != 0 {
		switch other := &tb.entries[n-1]; {
		case other.value == LNil:
			tb.lose(int(n - 1))
			s.lost++
		case !s.hasFree():
			return false
		default:
			s.free--
			if mainPosition(other.key, len(s.nodes)) == node {
				node = s.free
			} else { // it makes room for the key that has this main position
				s.nodes[s.free] = n
			}
		}
	}
	s.nodes[node], s.newest = int32(at+1), node
	return true
}

// lose forgets a key without a value: its node is taken.
func (tb *LTable) lose(at int) {
	e := &tb.entries[at]
	if s, ok := e.key.(LString); ok {
		delete(tb.strings, string(s))
	} else {
		delete(tb.others, e.key)
	}
	e.key = LNil
}

// rebuild makes a hash part for n keys of the present entries, all of which have values.
func (s *shape) rebuild(tb *LTable, n int) {
	old := s.nodes
	s.clear(n)
	for i := len(old) - 1; i >= 0; i-- {
		if at := old[i]; at != 0 {
			s.place(tb, tb.entries[at-1].key, int(at-1))
		}
	}
}

func (s *shape) clear(n int) {
	s.nodes, s.lost = make([]int32, nodeCount(n)), 0
	s.free = len(s.nodes)
}

// needsShape makes the hash part. A table without an array, to which only strings came as keys and
// which lost none, has none until then: the order of the entries tells what it would be.
func (tb *LTable) needsShape() {
	if tb.shape != nil {
		return
	}
	s := &shape{}
	if tb.hint > 0 {
		s.clear(1 << (tb.hint - 1))
	}
	tb.shape = s
	for i := range tb.entries {
		if !s.place(tb, tb.entries[i].key, i) {
			s.rebuild(tb, i+1)
			s.place(tb, tb.entries[i].key, i)
		}
	}
}

// shapeless reports whether a new key does not matter to the sizes yet.
func (tb *LTable) shapeless(key, value LValue) bool {
	_, isString := key.(LString)
	return tb.shape == nil && tb.size == 0 && isString && value != LNil
}

// addKey adds a key that is neither in the array nor among the entries.
func (tb *LTable) addKey(key, value LValue) {
	if !tb.exact() || tb.shapeless(key, value) {
		tb.addEntry(key, value)
		return
	}
	if tb.appends(key) > 0 {
		tb.size = max(1, 2*tb.size)
		tb.RawSet(key, value)
		return
	}
	if tb.shape == nil && len(tb.entries) == 0 && tb.hint == 0 { // there is no hash part
		if size, hash := tb.sizesWith(key); hash == 0 {
			tb.size = int32(size)
			tb.RawSet(key, value)
			return
		}
	}
	tb.needsShape()
	if !tb.shape.place(tb, key, len(tb.entries)) {
		tb.resize(tb.sizesWith(key))
		tb.RawSet(key, value)
		return
	}
	if value == LNil {
		tb.dead++
	}
	tb.addEntry(key, value)
}

// appends returns a key that doubles the array: the next one, without holes before it, in a table
// without a hash part. It returns 0 for others.
func (tb *LTable) appends(key LValue) int {
	n, _ := key.(LNumber)
	size := int(tb.size)
	if n != LNumber(size+1) || len(tb.array) != size || tb.holes != 0 || size&(size-1) != 0 ||
		tb.shape != nil || len(tb.entries) > 0 || tb.hint > 0 {
		return 0
	}
	return size + 1
}

// sizesWith returns the size of the array and the number of keys in the hash part that C Lua
// chooses when a key comes: the array is the largest of which more than half is in use.
func (tb *LTable) sizesWith(key LValue) (size, hash int) {
	var counts [27]int // integer keys above half of 1<<i and up to that, by i
	integers, keys := 0, 1
	for i, from := 0, 0; from < len(tb.array); i++ {
		to := min(1<<i, len(tb.array))
		for _, v := range tb.array[from:to] {
			if v != LNil {
				counts[i]++
			}
		}
		integers += counts[i]
		from = to
	}
	count := func(key LValue) {
		n, _ := key.(LNumber)
		if i, ok := isArrayKey(n); ok {
			counts[bits.Len(uint(i-1))]++
			integers++
		}
	}
	keys += integers
	for i := range tb.entries {
		if e := &tb.entries[i]; e.value != LNil {
			count(e.key)
			keys++
		}
	}
	count(key)
	sum, inside := 0, 0
	for i := 0; i < len(counts) && 1<<i/2 < integers; i++ {
		sum += counts[i]
		if counts[i] > 0 && sum > 1<<i/2 {
			size, inside = 1<<i, sum
		}
		if sum == integers {
			break
		}
	}
	return size, keys - inside
}

// keeps reports whether all entries stay as they are in a table whose array has a size.
func (tb *LTable) keeps(size int) bool {
	return tb.dead == 0 && size >= len(tb.array) && !tb.hasIntegers(size)
}

// resize gives the array a size and the hash part room for a number of keys.
func (tb *LTable) resize(size, keys int) {
	s := tb.shape
	if tb.keeps(size) {
		tb.size = int32(size)
		s.rebuild(tb, keys)
		return
	}
	var kept []entry
	for i := size; i < len(tb.array); i++ { // what leaves the array
		if v := tb.array[i]; v != LNil {
			kept = append(kept, entry{LNumber(i + 1), v})
		}
	}
	left := len(kept)
	if size < len(tb.array) {
		for i := size; i < len(tb.array); i++ {
			if tb.array[i] == LNil {
				tb.holes--
			}
		}
		clear(tb.array[size:])
		tb.array = tb.array[:size]
		tb.trim()
	}
	tb.size = int32(size)
	moved := make([]int32, len(tb.entries)) // where entries go, plus one
	for i, e := range tb.entries {
		n, _ := e.key.(LNumber)
		at, inArray := tb.arrayIndex(n)
		switch {
		case e.value == LNil:
		case inArray:
			tb.setArray(at, e.value)
		default:
			kept = append(kept, e)
			moved[i] = int32(len(kept))
		}
	}
	old := s.nodes
	tb.replaceEntries(kept)
	s.clear(keys)
	for i := range left {
		s.place(tb, kept[i].key, i)
	}
	for i := len(old) - 1; i >= 0; i-- {
		if n := old[i]; n != 0 && moved[n-1] != 0 {
			at := int(moved[n-1] - 1)
			s.place(tb, kept[at].key, at)
		}
	}
}

// hasIntegers reports whether an entry's key belongs to an array of a size.
func (tb *LTable) hasIntegers(size int) bool {
	for i := range tb.entries {
		if n, ok := tb.entries[i].key.(LNumber); ok && n >= 1 && n <= LNumber(size) {
			if _, ok := isArrayKey(n); ok {
				return true
			}
		}
	}
	return false
}

// replaceEntries replaces the entries. The caller has charged for indexing.
func (tb *LTable) replaceEntries(kept []entry) {
	tb.entries, tb.dead = kept, 0
	tb.strings, tb.others = nil, nil
	if len(kept) > smallTable {
		for i := range kept {
			tb.indexEntry(i)
		}
	}
}

// dropLost removes the entries whose keys are lost, if they are most. It reports whether it did.
func (tb *LTable) dropLost() bool {
	s := tb.shape
	if s == nil || s.lost <= len(tb.entries)/2 {
		return false
	}
	moved := make([]int32, len(tb.entries))
	kept := make([]entry, 0, len(tb.entries))
	for i, e := range tb.entries {
		if e.key != LNil {
			kept = append(kept, e)
			moved[i] = int32(len(kept))
		}
	}
	for i, n := range s.nodes {
		if n != 0 && int(n) <= len(moved) { // not the newest, which is not an entry yet
			s.nodes[i] = moved[n-1]
		}
	}
	dead := tb.dead - int32(s.lost)
	tb.replaceEntries(kept)
	tb.dead, s.lost = dead, 0
	return true
}

// move has the newest key's node name an entry at an index.
func (s *shape) move(at int) { s.nodes[s.newest] = int32(at + 1) }

// The cost of a key when sizes are chosen again, and of one that is indexed again.
const (
	keyPlaced  = 4
	keyIndexed = 20
)

// indexing returns what it costs to index the entries again: the index hashes the whole of each
// key, which may be long. Those of a table that becomes small are hashed when it has an index
// again, and paid for now.
func (tb *LTable) indexing() (units int64) {
	n := len(tb.entries)
	bytes := int64(0)
	if n > smallTable {
		for i := range tb.entries {
			bytes += keyBytes(tb.entries[i].key)
		}
	}
	return keyIndexed*int64(n) + bytes/bytesHashed
}

// keyBytes returns how many bytes of a key are hashed, if they may be many.
func keyBytes(key LValue) int64 {
	s, _ := key.(LString)
	return int64(len(s))
}

// shapeGrowth returns what a new key allocates and moves besides its entry.
func (tb *LTable) shapeGrowth(key, value LValue) (units, bytes int64) {
	if tb.shapeless(key, value) {
		return 0, 0
	}
	if tb.shape != nil && tb.shape.fits(tb, key) {
		return keyBytes(tb.shape.loses(tb, key)) / bytesHashed, 0
	}
	n := int64(len(tb.entries))
	size, hash := tb.sizesWith(key)
	units = n*keyPlaced + int64(len(tb.array))/(slotsCleared/2)
	if key.Type() == LTNumber || !tb.keeps(size) {
		units += tb.indexing()
	}
	bytes = n*8 + int64(nodeCount(hash))*4 + int64(max(0, size-cap(tb.array)))*slotBytes
	if hash > 0 && tb.shape == nil {
		bytes += 64
	}
	if size < len(tb.array) { // what leaves the array
		left := int64(len(tb.array) - size)
		units, bytes = units+left*keyIndexed, bytes+left*(entryBytes+indexBytes+numberBytes)
	}
	return units, bytes
}

// bordersSeen is how many elements of the array a unit of the search for a border looks at.
const bordersSeen = 4

// border returns the length that C Lua finds: some n with t[n] and without t[n+1]. It also returns
// what looking for it costs: somebody may have built the table so that each look takes long.
func (tb *LTable) border() (n int, units int64) {
	size := int(tb.size)
	if len(tb.array) < size { // the last place of the array is nil
		if tb.holes == 0 {
			return len(tb.array), 0
		}
		low, high := 0, size
		for high-low > 1 {
			if m := (low + high) / 2; m > len(tb.array) || tb.array[m-1] == LNil {
				high = m
			} else {
				low = m
			}
		}
		return low, int64(bits.Len32(uint32(size))) / bordersSeen
	}
	if len(tb.entries) == 0 {
		return size, 0
	}
	perKey := tb.seek()
	low, high := size, size+1
	for tb.RawGetInt(high) != LNil {
		units += perKey
		low = high
		if high > math.MaxInt32/2 { // as C Lua
			n = tb.linearBorder()
			return n, units + int64(min(n, size))/bordersSeen + int64(max(0, n-size))*perKey
		}
		high *= 2
	}
	for high-low > 1 {
		units += perKey
		if m := (low + high) / 2; tb.RawGetInt(m) == LNil {
			high = m
		} else {
			low = m
		}
	}
	return low, units
}

func (tb *LTable) linearBorder() int {
	i := 1
	for tb.RawGetInt(i) != LNil {
		i++
	}
	return i - 1
}
