package lua

import "math"

// The error texts of a script that exceeds its budget.
const (
	ErrInstructions = "script stopped: it used up its instruction budget (CONFIG SET " +
		"coordd-request-work allows more)"
	ErrMemory = "script stopped: it used up its memory budget"
	// ErrTime is for what its budget should have stopped long before: see Budget.Watch.
	ErrTime = "script stopped: it ran for much longer than its instructions should take"
)

// Budget is what a script may still use. Below zero it is spent, and stays so: each later charge
// raises again, so no pcall outlives it.
type Budget struct {
	Instructions int64 // units of work left, 25 ns each at most
	// bytes left to allocate; garbage is not credited, because collectors differ between nodes
	Bytes int64
	// Watch, if set, is called whenever the script has used up another watchedUnits, and ends it
	// with ErrTime by returning true.
	Watch func() (late bool)

	watched int64 // Instructions at which to call Watch again; 0: only when they are spent
	late    bool
}

// watchedUnits bounds how often an operation that takes far longer than its charge runs before
// somebody looks. A look takes a thousandth of the time of so many units.
const watchedUnits = 1 << 11

// Begin has Watch called from now on.
func (b *Budget) Begin() {
	if b.Watch != nil {
		b.watched = max(b.Instructions-watchedUnits, 0)
	}
}

// Charge deducts units of work, and raises ErrInstructions in L if fewer were left. Amounts below
// one are ignored.
func (b *Budget) Charge(L *LState, units int64) {
	if units <= 0 {
		return
	}
	if b.Instructions = subtract(b.Instructions, units); b.Instructions < b.watched {
		L.look()
	}
}

// raiseSpent ends a script whose budget is spent.
func (L *LState) raiseSpent() { L.RaiseError(L.G.Budget.Spent()) }

// look calls Watch, and ends a script whose budget is spent or that is late.
func (L *LState) look() {
	if b := &L.G.Budget; !b.Look() {
		L.raiseSpent()
	}
}

// Look calls Watch, and reports whether there is budget left.
func (b *Budget) Look() bool {
	if b.Instructions >= 0 {
		if b.Watch == nil || !b.Watch() {
			b.Begin()
			return true
		}
		b.Instructions, b.late = -1, true
	}
	b.watched = 0
	return false
}

// TakeWatched is Take that calls Watch when it is time to. It reports whether there is budget left.
func (b *Budget) TakeWatched(units, bytes int64) bool {
	b.Take(units, bytes)
	return b.Instructions >= b.watched || b.Look()
}

// ChargeBytes deducts n bytes, and raises ErrMemory in L if fewer were left. It is called before
// the allocation.
func (b *Budget) ChargeBytes(L *LState, n int64) {
	if n <= 0 {
		return
	}
	if b.Bytes = subtract(b.Bytes, n); b.Bytes < 0 {
		b.Instructions = min(b.Instructions, -1) // so that the next instruction raises again
		L.raiseSpent()
	}
}

// Take deducts units and bytes without raising: the next charge does.
func (b *Budget) Take(units, bytes int64) {
	b.Instructions = subtract(b.Instructions, max(units, 0))
	if b.Bytes = subtract(b.Bytes, max(bytes, 0)); b.Bytes < 0 {
		b.Instructions = min(b.Instructions, -1)
	}
}

// Spent returns the text of the error that stops the script, "" while there is budget left.
func (b *Budget) Spent() string {
	switch {
	case b.late:
		return ErrTime
	case b.Bytes < 0:
		return ErrMemory
	case b.Instructions < 0:
		return ErrInstructions
	}
	return ""
}

// subtract returns left-n (n >= 0) without wrapping around at the smallest integer.
func subtract(left, n int64) int64 {
	if left < math.MinInt64+n {
		return math.MinInt64
	}
	return left - n
}

// What things take, in bytes. Each is what Go allocates, including the waste of size classes.
const (
	tableBytes    = 128 // an empty table
	slotBytes     = 16  // one value of an array
	entryBytes    = 32  // one key with its value
	indexBytes    = 64  // an entry of the index over keys
	numberBytes   = 16  // a number that is stored
	closureBytes  = 80
	upvalueBytes  = 48
	stringBytes   = 32 // a string besides its bytes
	registerBytes = 16
	frameBytes    = 96
	threadBytes   = 512
)

// ChargeSlots charges for values that are copied or set to nil, which release 0.1 charged less for.
// It does not raise: the next instruction does.
func (L *LState) ChargeSlots(n int) {
	if n >= slotsCopied && L.G.Strict {
		L.G.Budget.Instructions -= int64(n) / slotsCopied
	}
}

// slotsCopied is how many values ChargeSlots charges a unit for.
const slotsCopied = 8

// How many bytes of a string one unit pays for, or how many slots.
const (
	bytesBuilt  = 16   // copied into a new string: mostly the price of fresh memory
	bytesEqual  = 1024 // compared by == in release 0.1
	bytesLess   = 256  // compared
	bytesHashed = 32   // looked up as a key, which may be compared with several
	slotsSet    = 32   // registers that one instruction sets to nil
	// array slots that are set to nil or walked over, values that are copied
	slotsCleared = 16
)
