// WINDOW.HIT: sliding windows on the cluster clock. A hit at t counts in the milliseconds t to
// t+window-1, so any window of the clock's milliseconds has at most limit hits, and who was refused
// may be allowed exactly when the reply says.
//
// A window of up to maxExact is exact: the key is a sorted set of the hits that count. A larger one
// is two counters, in windows_counters.go. Which of them it is follows from the limit of the call;
// if that was changed, the next hit that is charged converts the key.
//
// All windows are looked at before one is changed, and a call that is refused changes nothing: it
// is answered without the log.

package commands

import (
	"bytes"
	"math/bits"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

const (
	maxExact    = 10_000       // limit of an exact window
	maxWindows  = 32           // windows of a call
	maxQuantity = 1<<53 - 1    // limit, window and cost: numbers that scripts have exactly
	seekWork    = 4            // a step of a search by score, in units of Env.Work
	hitWork     = 2 * writeArg // a hit put into both orders of a sorted set
)

// Errors of WINDOW.HIT.
const (
	errNoWindow   Error = "ERR the key holds something else than a window of WINDOW.HIT"
	errSameWindow Error = "ERR the windows of a call must have different keys"
)

var windowUse = KeyRW | KeyAccess | KeyUpdate

var windowSpecs = []Spec{{
	Name: "window.hit", Kind: Write, Arity: -5, Flags: DenyOOM | MovableKeys,
	Keys: KeySpec{First: 1, Last: 1, Step: 1, Find: windowKeys,
		Parts: []KeyPart{{First: 1, Step: 1, Flags: windowUse}, {Unknown: true, Flags: windowUse}}},
	Group: "sorted-set", Since: "0.2.0", Level: LevelSecond,
	Syntax: "key limit:integer PX window:integer [COST cost:integer] [key limit:integer PX " +
		"window:integer [COST cost:integer] ...] [PEEK] [ID request]",
	Summary: "Counts a hit in sliding windows if all of them allow it, or returns how long to " +
		"wait.",
	Complexity: "O(N log M) for N hits charged and removed, of M in a window",
	Grows:      growsWindow, RequestID: windowRequest, Handler: windowHit,
}}

// windowRequest is the RequestID of WINDOW.HIT.
func windowRequest(args [][]byte) []byte {
	options, err := eachWindow(args, func(int, []byte) {})
	if err != nil {
		return nil
	}
	return options.request
}

// hit is one call of WINDOW.HIT.
type hit struct {
	hitOptions
	windows []hitWindow
}

// hitOptions are what a call has besides its windows.
type hitOptions struct {
	peek    bool
	request []byte // nil: it has no id
}

// hitWindow is one of its windows.
type hitWindow struct {
	key             []byte
	limit, ms, cost int64
	e               *keyspace.Entry // nil: no key
	used            int64           // hits that count now
	first, end      int             // the ranks of those in a sorted set, from first to end-1
	counters        windowCounters  // the state of a window that is not exact, or will not be
}

func (w *hitWindow) exact() bool { return w.limit <= maxExact }

// eachWindow calls f for the windows of a call, with the position of their key and their cost, nil
// if they have none. What follows a window is another one, if there are enough arguments for that;
// so only COST cannot be the name of a key that is not the first.
func eachWindow(args [][]byte, f func(at int, cost []byte)) (o hitOptions, err error) {
	i, windows := 1, 0
	for more := true; more; more = len(args)-i >= 4 {
		if len(args)-i < 4 || !isWord(args[i+2], "PX") {
			return o, ErrSyntax
		}
		if windows++; windows > maxWindows {
			return o, Errorf("ERR a call may have at most %d windows", maxWindows)
		}
		at, cost := i, []byte(nil)
		if i += 4; len(args)-i >= 2 && isWord(args[i], "COST") {
			cost = args[i+1]
			i += 2
		}
		f(at, cost)
	}
	if i < len(args) && isWord(args[i], "PEEK") {
		o.peek = true
		i++
	}
	if len(args)-i == 2 && isWord(args[i], "ID") {
		o.request = givenID(args[i+1])
		i += 2
	}
	if i != len(args) {
		return o, ErrSyntax
	}
	return o, nil
}

// windowKeys finds the keys of WINDOW.HIT.
func windowKeys(args [][]byte) []int {
	keys := make([]int, 0, (len(args)-1)/4)
	if _, err := eachWindow(args, func(at int, _ []byte) { keys = append(keys, at) }); err != nil {
		return nil
	}
	return keys
}

// growsWindow reports whether a call may add hits.
func growsWindow(x *Call) bool {
	options, err := eachWindow(x.Args, func(int, []byte) {})
	return err == nil && !options.peek
}

// parse parses the arguments.
func (h *hit) parse(args [][]byte) (err error) {
	var wrong error
	h.hitOptions, err = eachWindow(args, func(at int, cost []byte) {
		w := hitWindow{key: args[at]}
		if err := w.parse(args[at+1], args[at+3], cost); err != nil && wrong == nil {
			wrong = err
		}
		for i := range h.windows {
			if bytes.Equal(h.windows[i].key, w.key) && wrong == nil {
				wrong = errSameWindow
			}
		}
		h.windows = append(h.windows, w)
	})
	if err != nil {
		return err
	}
	return wrong
}

// parse parses the numbers.
func (w *hitWindow) parse(limit, ms, cost []byte) error {
	w.cost = 1
	numbers := [3][]byte{limit, ms, cost}
	for i, n := range [3]*int64{&w.limit, &w.ms, &w.cost} {
		arg, ok := numbers[i], false
		if arg == nil {
			continue
		}
		if *n, ok = ParseInt(arg); !ok || *n < 1 || *n > maxQuantity {
			return Errorf("ERR %s must be an integer from 1 to %d",
				[3]string{"limit", "window", "cost"}[i], maxQuantity)
		}
	}
	return nil
}

func windowHit(x *Call) error {
	h := hit{windows: make([]hitWindow, 0, 4)}
	if err := h.parse(x.Args); err != nil {
		return err
	}
	for i := range h.windows {
		if err := h.windows[i].look(x); err != nil {
			return err
		}
	}
	waitMs, refused := h.judge(x)
	if refused == 0 && !h.peek {
		h.charge(x)
	}
	left := int64(maxQuantity)
	for i := range h.windows {
		w := &h.windows[i]
		n := w.limit - w.used
		if refused == 0 {
			n -= w.cost
		}
		left = min(left, max(n, 0))
	}
	x.Out.Array(4)
	x.Out.Int(int64(1 - min(refused, 1)))
	x.Out.Int(left)
	x.Out.Int(waitMs)
	x.Out.Int(int64(refused))
	return nil
}

// judge returns which window refuses the hit for the longest time, from 1, and for how long: -1 is
// for ever. 0: all allow it.
func (h *hit) judge(x *Call) (waitMs int64, refused int) {
	for i := range h.windows {
		w := &h.windows[i]
		if w.cost <= w.limit-w.used {
			continue
		}
		if !h.peek {
			x.Witness.window(x, WindowDenied, w.key, w.e)
		}
		ms := int64(-1)
		if w.cost <= w.limit {
			ms = w.waitMs(x)
		}
		if refused == 0 || waitMs >= 0 && (ms < 0 || ms > waitMs) {
			waitMs, refused = ms, i+1
		}
	}
	return waitMs, refused
}

// charge counts the hit in all windows.
func (h *hit) charge(x *Call) {
	for i := range h.windows {
		h.windows[i].spend(x)
	}
	for i := range h.windows {
		w := &h.windows[i]
		w.charge(x)
		x.Witness.window(x, WindowAllowed, w.key, w.e)
	}
}

// look reads the key.
func (w *hitWindow) look(x *Call) error {
	x.Spend(readArg + 2*deep(x.DB().Size()) + len(w.key)/bytesSpent)
	w.counters = windowCounters{start: x.ClockMs, end: x.ClockMs + w.ms}
	if w.e = x.find(w.key); w.e == nil {
		return nil
	}
	switch c := w.e.Collection().(type) {
	case *keyspace.ZSet:
		return w.lookHits(x, c)
	case *keyspace.Hash: //hash: its fields
		x.spendWaking(c)
		if !w.counters.read(c) {
			return errNoWindow
		}
		w.counters.roll(x.ClockMs, w.ms)
		w.used = w.counters.used(x.ClockMs)
		return nil
	}
	return ErrWrongType
}

// lookHits reads a sorted set. Hits from later than now are of another cluster's clock, whose key
// was restored here. They do not count.
func (w *hitWindow) lookHits(x *Call, z *keyspace.ZSet) error {
	x.spendWaking(z)
	n, now := z.Len(), x.ClockMs
	x.Spend(2 * seekWork * bits.Len(uint(n)))
	if !isHit(z.At(0)) || !isHit(z.At(n-1)) {
		return errNoWindow
	}
	w.first = z.Seek(func(s keyspace.Scored) bool { return s.Score > float64(now-w.ms) })
	if w.end = n; z.At(n-1).Score > float64(now) {
		w.end = z.Seek(func(s keyspace.Scored) bool { return s.Score > float64(now) })
	}
	if w.used = int64(w.end - w.first); w.used > 0 {
		// in case the limit calls for counters now
		w.counters = windowCounters{start: int64(z.At(w.first).Score), current: w.used}
		w.counters.roll(now, w.ms)
	}
	return nil
}

// waitMs returns how long the hit, whose cost is within the limit, must wait: until enough others
// have left, or all with the key.
func (w *hitWindow) waitMs(x *Call) (ms int64) {
	if z, ok := w.e.Collection().(*keyspace.ZSet); ok {
		over := w.used + w.cost - w.limit
		ms = int64(z.At(w.first+int(over)-1).Score) + w.ms - x.ClockMs
	} else {
		ms = w.counters.waitMs(x.ClockMs, w.limit-w.cost)
	}
	if atMs := w.e.Deadline(); atMs != 0 {
		ms = min(ms, atMs+1-x.ClockMs)
	}
	return max(ms, 1)
}

// spend charges for what charge will do.
func (w *hitWindow) spend(x *Call) {
	x.Spend(2*writeArg + len(w.key)/bytesSpent)
	if !w.exact() {
		return
	}
	hits := int(w.cost)
	if z, ok := w.zset(); ok {
		if w.end < z.Len() {
			spendSpan(x, z, w.end, z.Len()-1)
		}
		if w.first > 0 {
			spendSpan(x, z, 0, w.first-1)
		}
	} else {
		hits += int(w.used) // those of counters
	}
	x.Spend(hits * (hitWork + bits.Len(uint(w.limit))))
}

func (w *hitWindow) zset() (z *keyspace.ZSet, ok bool) {
	if w.e != nil {
		z, ok = w.e.Collection().(*keyspace.ZSet)
	}
	return z, ok
}

// charge counts the hit. The key lives as long as that counts.
func (w *hitWindow) charge(x *Call) {
	db := x.DB()
	if w.exact() {
		w.chargeExact(x)
	} else {
		w.counters.current += w.cost
		h := windowForm(x, w, keyspace.NewHash)
		w.counters.write(h)
		x.changed(w.e, NotifyHash, "hset")
	}
	w.e.MarkWindow()
	db.SetDeadline(w.e, x.ClockMs+w.ms)
	x.notify(NotifyGeneric, "expire", w.key)
}

// chargeExact counts the hit in a sorted set. It removes what does not count.
func (w *hitWindow) chargeExact(x *Call) {
	_, was := w.zset()
	z := windowForm(x, w, keyspace.NewZSet)
	hits := w.cost
	if was {
		if w.end < z.Len() {
			z.RemoveRange(w.end, z.Len()-1)
		}
		if w.first > 0 {
			z.RemoveRange(0, w.first-1)
		}
	} else {
		hits += w.used // counters do not tell when theirs came
	}
	now := float64(x.ClockMs)
	// one of these names is free, even if a client has removed others
	n := z.Len() - z.Seek(func(s keyspace.Scored) bool { return s.Score >= now })
	for ; hits > 0; n++ {
		if z.Add(hitName(x.ClockMs, n), now) {
			hits--
		}
	}
	x.changed(w.e, NotifyZSet, "zadd")
}

// windowForm returns the window's collection, ready to change: that of the key, or a new one if
// there is no key, or it has the other form.
func windowForm[T keyspace.Collection](x *Call, w *hitWindow, create func() T) T {
	if w.e != nil {
		if _, same := w.e.Collection().(T); !same {
			before, c := x.kindAt(x.Tx.DB, w.key), create()
			w.e = x.DB().SetCollection(w.key, c)
			x.overwritten(x.Tx.DB, w.key, before, c.Kind())
			return c
		}
	}
	e, c := editCollection(x, w.key, create)
	w.e = e
	return c
}

// hitName returns the member of a hit: when it came, and its number among those of the same
// millisecond if it is not the first.
func hitName(atMs int64, n int) []byte {
	name := strconv.AppendInt(nil, atMs, 10)
	if n > 0 {
		name = strconv.AppendInt(append(name, '-'), int64(n), 10)
	}
	return name
}

// isHit reports whether a member looks as hitName and its score say.
func isHit(s keyspace.Scored) bool {
	const longest = 32
	if len(s.Member) > longest {
		return false
	}
	name, number, numbered := bytes.Cut([]byte(s.Member), []byte{'-'})
	atMs, ok := ParseInt(name)
	if n, okNumber := ParseInt(number); numbered && (!okNumber || n < 1) {
		return false
	}
	return ok && float64(atMs) == s.Score
}
