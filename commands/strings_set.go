// SET, and the commands that are SET by another name. SET NX PX takes every lock, so parsing
// allocates nothing, and a key is looked up no more often than needed.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/keyspace"
)

// setOptions are SET's options.
type setOptions struct {
	when    setCondition
	operand []byte // what an IF condition compares with
	get     bool
	keepTTL bool
	unit    ttlUnit
	ttl     []byte
	lease   []byte // id of the lease that the key is attached to; nil: of none
}

// setCondition says when SET sets and DELEX deletes. Conditions exclude each other.
type setCondition uint8

const (
	setAlways setCondition = iota
	setNX                  // the key does not exist
	setXX                  // the key exists
	setIFEQ                // the key holds the operand
	setIFNE                // the key does not exist or holds something else
	setIFDEQ               // the key holds a string of this digest
	setIFDNE               // the key does not exist or holds a string of another digest
)

// ifWord returns the condition that a word names, or setAlways. NX and XX, which take no operand,
// are not among them.
func ifWord(arg []byte) setCondition {
	switch {
	case isWord(arg, "IFEQ"):
		return setIFEQ
	case isWord(arg, "IFNE"):
		return setIFNE
	case isWord(arg, "IFDEQ"):
		return setIFDEQ
	case isWord(arg, "IFDNE"):
		return setIFDNE
	}
	return setAlways
}

// parse parses SET's options. As on Redis an option may be repeated; the last one counts.
func (o *setOptions) parse(args [][]byte) error {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		more := i+1 < len(args)
		if unit := parseTTLUnit(arg); unit != ttlNone {
			if !more || o.keepTTL || o.lease != nil || (o.unit != ttlNone && o.unit != unit) {
				return ErrSyntax
			}
			i++
			o.unit, o.ttl = unit, args[i]
			continue
		}
		when := setAlways
		switch {
		case isWord(arg, "NX"):
			when = setNX
		case isWord(arg, "XX"):
			when = setXX
		case isWord(arg, "GET"):
			o.get = true
			continue
		case isWord(arg, "KEEPTTL") && o.unit == ttlNone && o.lease == nil:
			o.keepTTL = true
			continue
		case isWord(arg, "LEASE") && more && o.unit == ttlNone && !o.keepTTL:
			i++
			o.lease = args[i]
			continue
		default:
			if when = ifWord(arg); when == setAlways || !more {
				return ErrSyntax
			}
			i++
			o.operand = args[i]
		}
		if o.when != setAlways && o.when != when {
			return ErrSyntax
		}
		o.when = when
	}
	return nil
}

func setCommand(x *Call) error {
	var o setOptions
	if len(x.Args) > 3 {
		if err := o.parse(x.Args[3:]); err != nil {
			return err
		}
	}
	var deadlineMs int64
	if o.unit != ttlNone {
		var err error
		if deadlineMs, err = x.parseDeadline(o.unit, o.ttl); err != nil {
			return err
		}
	}
	if o.lease != nil {
		return setLeased(x, &o)
	}
	if o.when == setAlways && !o.get {
		x.set(x.Args[1], x.Args[2], o.keepTTL, deadlineMs)
		x.Out.Status("OK")
		return nil
	}
	_, err := x.setIf(&o, deadlineMs, nil)
	return err
}

// setIf sets the key of SET if it meets the condition, and ready, if there is one, returns no
// error. It returns the key's entry if it was set.
func (x *Call) setIf(o *setOptions, deadlineMs int64, ready func() error) (*keyspace.Entry, error) {
	e := x.find(x.Args[1])
	if e != nil && e.Kind() != keyspace.KindString && (o.get || o.when >= setIFEQ) {
		return nil, ErrWrongType
	}
	holds, err := o.when.holds(x, e, o.operand)
	if err != nil {
		return nil, err
	}
	overtakes := holds && o.when == setNX && x.queued(x.Args[1])
	if holds = holds && !overtakes; holds && ready != nil {
		if err := ready(); err != nil {
			return nil, err
		}
	}
	switch {
	case o.get && e != nil:
		x.Out.Bulk(e.Bytes()) // first: what cannot be answered is not replaced
	case o.get && overtakes: // null would say that it was set
		x.Out.BulkString(x.nextOwner(x.Args[1]))
	case o.get || !holds:
		x.Out.Null()
	default:
		x.Out.Status("OK")
	}
	if o.when == setNX && !holds {
		x.asked(e, false)
	} else if (o.when == setXX || o.when == setIFEQ) && holds && deadlineMs != 0 {
		x.renews()
	}
	switch {
	case holds && e == nil:
		e = x.create(x.Args[1], x.Args[2], deadlineMs)
		if o.when == setNX {
			x.asked(e, true)
		}
	case holds:
		e = x.set(x.Args[1], x.Args[2], o.keepTTL, deadlineMs)
	default:
		e = nil
	}
	return e, nil
}

// holds reports whether e, a string or nil, meets the condition. The error is for an operand that
// is not a digest; as on Redis it is checked only if there is something to compare.
func (c setCondition) holds(x *Call, e *keyspace.Entry, operand []byte) (bool, error) {
	switch c {
	case setNX:
		return e == nil, nil
	case setXX:
		return e != nil, nil
	case setIFEQ:
		return e != nil && bytes.Equal(e.Bytes(), operand), nil
	case setIFNE:
		return e == nil || !bytes.Equal(e.Bytes(), operand), nil
	case setIFDEQ, setIFDNE:
		if e == nil {
			return c == setIFDNE, nil
		}
		if len(operand) != digestLen {
			return false, ErrDigest
		}
		x.spendBytes(len(e.Bytes()))
		return sameDigest(e.Bytes(), operand) == (c == setIFDEQ), nil
	}
	return true, nil
}

// set sets key to a string that expires at deadlineMs, never if 0, or as before with keepTTL. It
// returns nil if the key is past its deadline at once.
func (x *Call) set(key, value []byte, keepTTL bool, deadlineMs int64) *keyspace.Entry {
	db := x.DB()
	if deadlineMs != 0 && x.past(deadlineMs) {
		x.notifyExpired(key, !db.Delete(key))
		return nil
	}
	before := x.kindAt(x.Tx.DB, key)
	e := x.overwrite(key, value)
	x.overwritten(x.Tx.DB, key, before, keyspace.KindString)
	x.notify(NotifyString, "set", key)
	if !keepTTL {
		db.SetDeadline(e, deadlineMs)
	}
	if deadlineMs != 0 {
		x.notify(NotifyGeneric, "expire", key)
	}
	return e
}

// overwrite sets key to a string, whatever it held. Who writes another value is a new holder, from
// LevelSecond on.
func (x *Call) overwrite(key, value []byte) *keyspace.Entry {
	if x.Level < LevelSecond {
		return x.DB().SetString(key, value)
	}
	return x.DB().Overwrite(key, value)
}

// create is set for a key that does not exist. It returns nil if the key is past its deadline at
// once.
func (x *Call) create(key, value []byte, deadlineMs int64) *keyspace.Entry {
	db := x.DB()
	if deadlineMs != 0 && x.past(deadlineMs) {
		db.Lacks(key)
		x.notifyExpired(key, true)
		return nil
	}
	e := db.Create(key, value)
	x.notify(NotifyString, "set", key)
	if deadlineMs != 0 {
		db.SetDeadline(e, deadlineMs)
		x.notify(NotifyGeneric, "expire", key)
	}
	return e
}

// notifyExpired sends the notifications of a key set with an expire time that is past: it never
// exists, but Redis notifies its whole life.
func (x *Call) notifyExpired(key []byte, fresh bool) {
	if fresh {
		x.notify(NotifyNew, "new", key)
	}
	x.notify(NotifyString, "set", key)
	x.notify(NotifyGeneric, "expire", key)
	x.notify(NotifyExpired, "expired", key)
}

func setnxCommand(x *Call) error {
	if e := x.find(x.Args[1]); e != nil || x.queued(x.Args[1]) {
		x.asked(e, false)
		x.Out.Int(0)
		return nil
	}
	x.asked(x.create(x.Args[1], x.Args[2], 0), true)
	x.Out.Int(1)
	return nil
}

func setexCommand(x *Call) error { return x.setWithTTL(ttlEX) }

func psetexCommand(x *Call) error { return x.setWithTTL(ttlPX) }

func (x *Call) setWithTTL(unit ttlUnit) error {
	deadlineMs, err := x.parseDeadline(unit, x.Args[2])
	if err != nil {
		return err
	}
	x.set(x.Args[1], x.Args[3], false, deadlineMs)
	x.Out.Status("OK")
	return nil
}

func getsetCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.create(x.Args[1], x.Args[2], 0)
		x.Out.Null()
		return nil
	}
	x.Out.Bulk(e.Bytes()) // first: what cannot be answered is not replaced
	x.set(x.Args[1], x.Args[2], false, 0)
	return nil
}

func msetCommand(x *Call) error {
	if len(x.Args)%2 == 0 {
		return x.Spec.ArityError()
	}
	for i := 1; i < len(x.Args); i += 2 {
		x.set(x.Args[i], x.Args[i+1], false, 0)
	}
	x.Out.Status("OK")
	return nil
}

// Errors of MSETEX.
const (
	errPairsNumber Error = "ERR invalid numkeys value"
	errPairs       Error = "ERR wrong number of key-value pairs"
)

// maxPairs is the largest number of pairs that MSETEX parses.
const maxPairs = 1<<31 - 1

func msetexCommand(x *Call) error {
	n, ok := ParseInt(x.Args[1])
	switch {
	case !ok || n < 1 || n > maxPairs:
		return errPairsNumber
	case 2*n > int64(len(x.Args)-2):
		return errPairs
	}
	pairs, rest := x.Args[2:2+2*n], x.Args[2+2*n:]
	x.Spend(2 * deep(x.DB().Size()) * int(n)) // as MSET, whose spec says which arguments are keys
	var o setOptions
	if err := o.parse(rest); err != nil {
		return err
	}
	if o.get || o.when >= setIFEQ || o.lease != nil {
		return ErrSyntax
	}
	var deadlineMs int64
	if o.unit != ttlNone {
		var err error
		if deadlineMs, err = x.parseDeadline(o.unit, o.ttl); err != nil {
			return err
		}
	}
	for i := 0; o.when != setAlways && i < len(pairs); i += 2 {
		absent := x.find(pairs[i]) == nil
		if absent != (o.when == setNX) || absent && x.queued(pairs[i]) {
			x.Out.Int(0)
			return nil
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		x.set(pairs[i], pairs[i+1], o.keepTTL, deadlineMs)
	}
	x.Out.Int(1)
	return nil
}

func msetnxCommand(x *Call) error {
	if len(x.Args)%2 == 0 {
		return x.Spec.ArityError()
	}
	for i := 1; i < len(x.Args); i += 2 {
		if x.find(x.Args[i]) != nil || x.queued(x.Args[i]) {
			x.Out.Int(0)
			return nil
		}
	}
	for i := 1; i < len(x.Args); i += 2 {
		x.set(x.Args[i], x.Args[i+1], false, 0)
	}
	x.Out.Int(1)
	return nil
}
