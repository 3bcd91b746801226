// XADD, XLEN, XRANGE, XREVRANGE, XDEL, XTRIM and XSETID.

package commands

import (
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of XADD, XTRIM and XSETID.
const (
	errTwoTrims Error = "ERR syntax error, MAXLEN and MINID options at the same time are " +
		"not compatible"
	errTrimMaxLen  Error = "ERR The MAXLEN argument must be >= 0."
	errTrimLimit   Error = "ERR The LIMIT argument must be >= 0."
	errLimitNoTrim Error = "ERR syntax error, LIMIT cannot be used without specifying a " +
		"trimming strategy"
	errLimitExact Error = "ERR syntax error, LIMIT cannot be used without the special ~ option"
	errNoTrim     Error = "ERR syntax error, XTRIM must be called with a trimming strategy"
	errAddZero    Error = "ERR The ID specified in XADD must be greater than 0-0"
	errAddLow     Error = "ERR The ID specified in XADD is equal or smaller than the target " +
		"stream top item"
	errAddExhausted Error = "ERR The stream has exhausted the last possible ID, unable to add " +
		"more items"
	// Redis's text if the time has no sequence number left
	errAddNoNumber   Error = "ERR Elements are too large to be stored"
	errAddedNegative Error = "ERR entries_added must be positive"
	errSetIDDeleted  Error = "ERR The ID specified in XSETID is smaller than the provided " +
		"max_deleted_entry_id"
	errSetIDTop Error = "ERR The ID specified in XSETID is smaller than the target stream " +
		"top item"
	errSetIDAdded Error = "ERR The entries_added specified in XSETID is smaller than the " +
		"target stream length"
)

// approxLimit is the maximum number of entries that a trim with ~ removes if LIMIT is not given:
// those of 100 nodes.
const approxLimit = 10000

// addArgs are the arguments of XADD before the fields, or those of XTRIM.
type addArgs struct {
	noCreate bool
	trims    bool
	trim     keyspace.StreamTrim
	limited  bool
	whole    bool // the whole id is given
	partly   bool // the id is given but for its number, *
	id       keyspace.StreamID
	fields   int // position of the first field
	once     onceArgs
}

// parse parses the arguments from the third on. Without an id at the end, XADD's fields start past
// all arguments. The words about references are of LevelSecond.
func (a *addArgs) parse(x *Call, add bool) error {
	args, i, refs := x.Args, 2, x.Level < LevelSecond // whether they were named
	for ; i < len(args); i++ {
		arg, more := args[i], len(args)-1-i
		switch {
		case add && string(resp.CText(arg)) == "*":
			a.fields = i + 1
			return a.check(add)
		case isWord(arg, "MAXLEN") && more > 0, isWord(arg, "MINID") && more > 0:
			if a.trims {
				return errTwoTrims
			}
			taken, err := a.parseTrim(args[i:])
			if err != nil {
				return err
			}
			i += taken
		case isWord(arg, "LIMIT") && more > 0:
			i++
			n, ok := ParseInt(args[i])
			if !ok {
				return ErrNotInteger
			}
			if n < 0 {
				return errTrimLimit
			}
			a.trim.Limit, a.limited = n, true
		case !refs && readRefs(arg, &a.trim.Refs):
			refs = true
		case add && x.Level >= LevelSecond && isWord(arg, "IDMP") && more > 1,
			add && x.Level >= LevelSecond && isWord(arg, "IDMPAUTO") && more > 0:
			taken, err := a.once.parse(args[i:])
			if err != nil {
				return err
			}
			i += taken
		case add && isWord(arg, "NOMKSTREAM"):
			a.noCreate = true
		case add:
			id, auto, ok := readStreamID(arg, 0)
			if !ok {
				return errStreamID
			}
			a.id, a.whole, a.partly, a.fields = id, !auto, auto, i+1
			return a.check(add)
		default:
			return ErrSyntax
		}
	}
	a.fields = i + 1
	return a.check(add)
}

// parseTrim parses MAXLEN or MINID and what belongs to it, and returns how many arguments that
// took.
func (a *addArgs) parseTrim(args [][]byte) (taken int, err error) {
	a.trims = true
	a.trim.ByLength = isWord(args[0], "MAXLEN")
	a.trim.Approx = false
	at := 1
	if mark := string(resp.CText(args[1])); len(args) > 2 && (mark == "~" || mark == "=") {
		a.trim.Approx = mark == "~"
		at = 2
	}
	if !a.trim.ByLength {
		a.trim.MinID, err = parseStreamID(args[at], 0)
		return at, err
	}
	n, ok := ParseInt(args[at])
	if !ok {
		return 0, ErrNotInteger
	}
	if n < 0 {
		return 0, errTrimMaxLen
	}
	a.trim.MaxLen = n
	return at, nil
}

func (a *addArgs) check(add bool) error {
	switch {
	case a.trim.Limit > 0 && !a.trims:
		return errLimitNoTrim
	case !add && !a.trims:
		return errNoTrim
	case a.limited && !a.trim.Approx:
		return errLimitExact
	case a.trim.Approx && !a.limited:
		a.trim.Limit = approxLimit
	}
	return nil
}

// newID returns the id of a new entry in a stream whose last id is last.
func (a *addArgs) newID(x *Call, last keyspace.StreamID) (id keyspace.StreamID, err error) {
	next, ok := last.Next()
	if !ok {
		return id, errAddExhausted
	}
	switch {
	case a.whole:
		id = a.id
	case a.partly && a.id.Ms != last.Ms:
		id = a.id
	case a.partly && next.Ms != last.Ms:
		return id, errAddNoNumber
	case a.partly:
		id = next
	default:
		if nowMs := uint64(x.TimeUs() / 1000); nowMs > last.Ms {
			next = keyspace.StreamID{Ms: nowMs}
		}
		id = next
	}
	if !last.Less(id) {
		return id, errAddLow
	}
	return id, nil
}

func xadd(x *Call) error {
	var a addArgs
	if err := a.parse(x, true); err != nil {
		return err
	}
	if n := len(x.Args) - a.fields; n < 2 || n%2 == 1 {
		return x.Spec.ArityError()
	}
	if a.once.asked && (a.whole || a.partly) {
		return errOnceID
	}
	if a.whole && a.id.IsZero() {
		return errAddZero
	}
	s, err := findStream(x, x.Args[1])
	if err != nil {
		return err
	}
	if s == nil && a.noCreate {
		x.Out.Null()
		return nil
	}
	if a.once.asked && a.once.done(x, s, x.Args[a.fields:]) {
		return nil
	}
	id, err := a.newID(x, lastID(s))
	if err != nil {
		return err
	}
	// where references count, even the estimate walks the groups
	if s != nil && a.trims && (a.trim.Refs == keyspace.KeepRefs || s.Trims(a.trim, 1)) {
		x.expectTrim(s, a.trim, 1)
	}
	e, s := editStream(x, x.Args[1])
	s.Add(id, x.Args[a.fields:])
	if a.once.asked {
		s.AddOnce(a.once.producer, a.once.id, id, x.ClockMs)
	}
	trimmed := a.trims && trimStream(x, s, a.trim) > 0
	x.changed(e, NotifyStream, "xadd")
	if trimmed {
		x.notify(NotifyStream, "xtrim", x.Args[1])
	}
	x.Out.BulkString(id.String())
	return nil
}

// spendRemoved adds the work of removing entries of that size in all: their positions in the trees,
// and a hash of each.
func (x *Call) spendRemoved(entries, size int) {
	each := 4
	if x.Level >= LevelSecond {
		each = 8
	}
	x.Spend(each * entries)
	x.spendBytes(size)
}

// trimStream trims a stream that is open for changes, and returns the number of removed entries.
func trimStream(x *Call, s *keyspace.Stream, t keyspace.StreamTrim) int {
	removed, size := s.Trim(t)
	if x.Level < LevelSecond {
		x.spendRemoved(removed, size)
	}
	return removed
}

// expectTrim adds the work of trimming a stream that will have more entries than now, in advance.
func (x *Call) expectTrim(s *keyspace.Stream, t keyspace.StreamTrim, more int) {
	if x.Level < LevelSecond {
		return
	}
	var nodes, entries, size int
	if t.Refs == keyspace.KeepRefs {
		nodes, entries, size = s.TrimSize(t, more)
	} else {
		// walked by refsWork, and by Trim for a new entry
		x.Spend(2 * walkedWork * s.Groups())
		each := 2 * (lookWork + refsWork(s, t.Refs, 1)) // Trim looks again
		nodes, entries, size = s.TrimSizeEach(t, more, func(id keyspace.StreamID) {
			x.Spend(each + x.droppedNames(s, t.Refs, id))
		})
	}
	x.Spend(nodes)
	x.spendRemoved(entries, size)
}

func xtrim(x *Call) error {
	var a addArgs
	if err := a.parse(x, false); err != nil {
		return err
	}
	s, err := findStream(x, x.Args[1])
	if err != nil {
		return err
	}
	removed := 0
	if s != nil && s.Trims(a.trim, 0) {
		var e *keyspace.Entry
		x.expectTrim(s, a.trim, 0)
		e, s = editStream(x, x.Args[1])
		if removed = trimStream(x, s, a.trim); removed > 0 {
			x.changed(e, NotifyStream, "xtrim")
		} else {
			x.DB().Noted(e, false)
		}
	}
	x.Out.Int(int64(removed))
	return nil
}

func xlen(x *Call) error {
	s, err := findStream(x, x.Args[1])
	if err != nil {
		return err
	}
	n := 0
	if s != nil {
		n = s.Len()
	}
	x.Out.Int(int64(n))
	return nil
}

// xrange is the handler of XRANGE or, if back, of XREVRANGE.
func xrange(back bool) Handler {
	return func(x *Call) error {
		low, high := x.Args[2], x.Args[3]
		if back {
			low, high = high, low
		}
		first, err := parseRangeStart(low)
		if err != nil {
			return err
		}
		last, err := parseRangeEnd(high)
		if err != nil {
			return err
		}
		count, counted := int64(0), false
		for args := x.Args[4:]; len(args) > 0; args = args[2:] {
			if len(args) < 2 || !isWord(args[0], "COUNT") {
				return ErrSyntax
			}
			if count, counted = ParseInt(args[1]); !counted {
				return ErrNotInteger
			}
		}
		s, err := findStream(x, x.Args[1])
		switch {
		case err != nil:
			return err
		case s == nil:
			x.Out.Array(0)
		case counted && count <= 0:
			x.Out.NullArray()
		default:
			replyEntries(x.Out, streamRange(x, s, first, last, count, back, nil))
		}
		return nil
	}
}

func xdel(x *Call) error {
	s, err := findStream(x, x.Args[1])
	if err != nil {
		return err
	}
	if s == nil {
		x.Out.Int(0)
		return nil
	}
	ids, err := parseStreamIDs(x.Args[2:])
	if err != nil {
		return err
	}
	if x.Level >= LevelSecond {
		x.Spend(pendingWork * len(ids))
	}
	var e *keyspace.Entry
	removed, size := 0, 0
	for _, id := range ids {
		entry, ok := s.Get(id)
		if !ok {
			continue
		}
		if e == nil {
			e, s = editStream(x, x.Args[1])
		}
		s.Delete(id)
		removed++
		size += entry.Size()
	}
	if e != nil {
		x.spendRemoved(removed, size)
		x.changed(e, NotifyStream, "xdel")
	}
	x.Out.Int(int64(removed))
	return nil
}

// setIDArgs are the arguments of XSETID.
type setIDArgs struct {
	last, deleted keyspace.StreamID
	added         int64 // -1: not given
}

func (a *setIDArgs) parse(args [][]byte) (err error) {
	if a.last, err = parseStreamID(args[2], 0); err != nil {
		return err
	}
	a.added = -1
	for args := args[3:]; len(args) > 0; args = args[2:] {
		switch {
		case len(args) < 2:
			return ErrSyntax
		case isWord(args[0], "ENTRIESADDED"):
			n, ok := ParseInt(args[1])
			if !ok {
				return ErrNotInteger
			}
			if n < 0 {
				return errAddedNegative
			}
			a.added = n
		case isWord(args[0], "MAXDELETEDID"):
			if a.deleted, err = parseStreamID(args[1], 0); err != nil {
				return err
			}
			if a.last.Less(a.deleted) {
				return errSetIDDeleted
			}
		default:
			return ErrSyntax
		}
	}
	return nil
}

func xsetid(x *Call) error {
	var a setIDArgs
	if err := a.parse(x.Args); err != nil {
		return err
	}
	s, err := existingStream(x, x.Args[1])
	if err != nil {
		return err
	}
	if top, ok := s.Top(); ok {
		if a.last.Less(top.ID) {
			return errSetIDTop
		}
		if a.added >= 0 && int64(s.Len()) > a.added {
			return errSetIDAdded
		}
	}
	e, s := editStream(x, x.Args[1])
	if x.Level >= LevelSecond {
		s.SetLast(a.last)
	} else {
		x.Keyspace.SetLastLoosely(s, a.last)
	}
	if a.added >= 0 {
		s.SetAdded(uint64(a.added))
	}
	if !a.deleted.IsZero() {
		s.SetTombstone(a.deleted)
	}
	x.DB().Noted(e, false)
	x.notify(NotifyStream, "xsetid", x.Args[1])
	x.Out.Status("OK")
	return nil
}
