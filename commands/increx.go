// INCREX, a counter with bounds and a TTL: a fixed window of requests in one command. Other rate
// limits are in rate_limits.go.

package commands

import (
	"math"
	"math/big"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

var increxSpec = Spec{Name: "increx", Kind: Write, Arity: -2, Flags: DenyOOM | Fast,
	Acts: actRate | actAlone,
	Keys: collectionKey.does(KeyRW | KeyAccess | KeyUpdate), Group: "string", Since: "8.8.0",
	Syntax: "key [BYFLOAT increment:double | BYINT increment:integer] [LBOUND lowerbound] " +
		"[UBOUND upperbound] [SATURATE] " +
		"[EX seconds:integer | PX milliseconds:integer | EXAT unix-time-seconds:unix-time | PXAT " +
		"unix-time-milliseconds:unix-time | PERSIST] [ENX] [ID request]",
	RequestID:  func(args [][]byte) []byte { return requestID(args, 2) },
	Summary:    "Increments the number of a key within bounds and sets its time to live.",
	Complexity: "O(1)", Grows: growsKey, Handler: increx}

// limitSpecs are the commands for limits.
var limitSpecs = append([]Spec{increxSpec}, rateSpecs...)

// Errors of INCREX.
const (
	errENXAlone       Error = "ERR ENX flag requires an expiration"
	errBoundsCrossed  Error = "ERR LBOUND can't be greater than UBOUND"
	errInfiniteBy     Error = "ERR BYFLOAT increment cannot be Infinity"
	errInfiniteValue  Error = "ERR value cannot be Infinity"
	errAppliedInteger Error = "ERR applied increment would overflow"
	errAppliedFloat   Error = "ERR applied increment would be Infinity"
)

// increxOptions are the arguments of INCREX. Those not given are nil.
type increxOptions struct {
	byInt, byFloat []byte
	lower, upper   []byte
	saturate, enx  bool
	persist        bool
	unit           ttlUnit
	ttl            []byte
	deadlineMs     int64 // that unit and ttl give
}

// parse parses the options, each of which may be given once.
func (o *increxOptions) parse(x *Call, args [][]byte) error {
	for len(args) > 0 {
		n := 0
		if n = o.flag(args[0]); n == 0 && len(args) > 1 {
			n = o.pair(args[0], args[1])
		}
		if n == 0 {
			return ErrSyntax
		}
		args = args[n:]
	}
	switch {
	case o.byInt != nil && o.byFloat != nil, o.persist && (o.enx || o.unit != ttlNone):
		return ErrSyntax
	case o.enx && o.unit == ttlNone:
		return errENXAlone
	case o.unit == ttlNone:
		return nil
	}
	var err error
	o.deadlineMs, err = x.parseDeadline(o.unit, o.ttl)
	return err
}

// flag parses an option without a value and returns its number of arguments, or 0 if it is another
// one or was given before.
func (o *increxOptions) flag(word []byte) int {
	var set *bool
	switch {
	case isWord(word, "SATURATE"):
		set = &o.saturate
	case isWord(word, "ENX"):
		set = &o.enx
	case isWord(word, "PERSIST"):
		set = &o.persist
	}
	if set == nil || *set {
		return 0
	}
	*set = true
	return 1
}

// pair is flag for an option with a value.
func (o *increxOptions) pair(word, value []byte) int {
	var set *[]byte
	unit := parseTTLUnit(word)
	switch {
	case unit != ttlNone:
		o.unit = unit
		set = &o.ttl // shared by the units, which exclude each other
	case isWord(word, "BYINT"):
		set = &o.byInt
	case isWord(word, "BYFLOAT"):
		set = &o.byFloat
	case isWord(word, "LBOUND"):
		set = &o.lower
	case isWord(word, "UBOUND"):
		set = &o.upper
	}
	if set == nil || *set != nil {
		return 0
	}
	*set = value
	return 2
}

func increx(x *Call) error {
	var o increxOptions
	if err := o.parse(x, x.withoutID(2)[2:]); err != nil {
		return err
	}
	if o.byFloat != nil {
		return o.addFloat(x)
	}
	return o.addInteger(x)
}

// parseInteger parses the integer of an option, otherwise if arg is nil. Errors call it name.
func parseInteger(arg []byte, otherwise int64, name string) (int64, error) {
	if arg == nil {
		return otherwise, nil
	}
	n, ok := ParseInt(arg)
	if !ok {
		return 0, Errorf("ERR %s is not an integer or out of range", name)
	}
	return n, nil
}

func (o *increxOptions) addInteger(x *Call) error {
	by, err := parseInteger(o.byInt, 1, "Increment")
	if err != nil {
		return err
	}
	lower, err := parseInteger(o.lower, math.MinInt64, "LBOUND")
	if err != nil {
		return err
	}
	upper, err := parseInteger(o.upper, math.MaxInt64, "UBOUND")
	if err != nil {
		return err
	}
	if lower > upper {
		return errBoundsCrossed
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	old := int64(0)
	if e != nil {
		var ok bool
		if old, ok = ParseInt(e.Bytes()); !ok {
			return ErrNotInteger
		}
	}
	sum := addMs(old, by) // saturates
	beyond := sum != old+by
	switch {
	case sum > upper || (beyond && by > 0):
		sum, beyond = upper, true
	case sum < lower || beyond:
		sum, beyond = lower, true
	}
	switch {
	case beyond && !o.saturate:
		replyInts(x, old, 0)
		return nil
	case beyond:
		if by = sum - old; (sum >= old) != (by >= 0) {
			return errAppliedInteger
		}
	}
	o.store(x, e, strconv.AppendInt(nil, sum, 10), "incrby")
	replyInts(x, sum, by)
	return nil
}

func replyInts(x *Call, value, by int64) {
	x.Out.Array(2)
	x.Out.Int(value)
	x.Out.Int(by)
}

// parseLong parses the number of an option with x87's precision. It may be infinite.
func parseLong(x *Call, arg []byte, name string) (*big.Float, error) {
	x.spendDigits(arg)
	f, ok := ParseExtended(arg)
	if !ok {
		return nil, Errorf("ERR %s is not a valid float", name)
	}
	return f, nil
}

// longest returns the largest number of x87's long double, or the lowest if negative.
func longest(negative bool) *big.Float {
	f := new(big.Float).SetPrec(extended).SetUint64(math.MaxUint64)
	f.SetMantExp(f, maxExponent-extended)
	if negative {
		f.Neg(f)
	}
	return f
}

// parseLongBound is parseLong for a bound, by default the end of the range of long doubles.
func parseLongBound(x *Call, arg []byte, name string, lower bool) (*big.Float, error) {
	if arg == nil {
		return longest(lower), nil
	}
	return parseLong(x, arg, name)
}

func (o *increxOptions) addFloat(x *Call) error {
	by, err := parseLong(x, o.byFloat, "Increment")
	if err != nil {
		return err
	}
	if by.IsInf() {
		return errInfiniteBy
	}
	lower, err := parseLongBound(x, o.lower, "LBOUND", true)
	if err != nil {
		return err
	}
	upper, err := parseLongBound(x, o.upper, "UBOUND", false)
	if err != nil {
		return err
	}
	if lower.Cmp(upper) > 0 {
		return errBoundsCrossed
	}
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	old := new(big.Float).SetPrec(extended)
	if e != nil {
		x.spendDigits(e.Bytes())
		var ok bool
		if old, ok = ParseExtended(e.Bytes()); !ok {
			return ErrNotFloat
		}
		if old.IsInf() {
			return errInfiniteValue
		}
	}
	sum, finite := AddExtended(old, by)
	beyond := !finite
	switch {
	case sum.Cmp(upper) > 0 || (beyond && !sum.Signbit()):
		sum, beyond = upper, true
	case sum.Cmp(lower) < 0 || beyond:
		sum, beyond = lower, true
	}
	switch {
	case beyond && !o.saturate:
		replyLongs(x, old, new(big.Float))
		return nil
	case beyond:
		if by, finite = AddExtended(sum, new(big.Float).Neg(old)); !finite {
			return errAppliedFloat
		}
	}
	text := []byte(FormatExtended(sum))
	x.spendDigits(text)
	o.store(x, e, text, "incrbyfloat")
	replyLongs(x, sum, by)
	return nil
}

// replyLongs replies with two numbers: doubles in RESP3, bulk strings in RESP2. A double has the
// digits of the stored text.
func replyLongs(x *Call, value, by *big.Float) {
	x.Out.Array(2)
	for _, f := range [2]*big.Float{value, by} {
		text := FormatExtended(f)
		x.spendDigits([]byte(text))
		if x.Tx.Proto != 3 {
			x.Out.BulkString(text)
			continue
		}
		if x.Tx.Script {
			double, _ := f.Float64()
			x.Out.Double(double)
		} else if r := x.resp(len(text) + lineBytes); r != nil {
			r.line(',', text)
		}
	}
}

// store sets the key, whose entry is e or nil, to the sum, and its TTL. As on Redis a time that is
// past removes the key, and only the removal is notified.
func (o *increxOptions) store(x *Call, e *keyspace.Entry, sum []byte, event string) {
	key, db := x.Args[1], x.DB()
	volatile := e != nil && e.Deadline() != 0
	expires := o.unit != ttlNone && !(o.enx && volatile)
	if expires && x.past(o.deadlineMs) {
		x.deleteKey(key)
		return
	}
	if e != nil {
		e = db.SetString(key, sum)
	} else {
		e = db.Create(key, sum)
	}
	x.notify(NotifyString, event, key)
	switch {
	case expires:
		db.SetDeadline(e, o.deadlineMs)
		x.notify(NotifyGeneric, "expire", key)
	case o.persist && volatile:
		db.SetDeadline(e, 0)
		x.notify(NotifyGeneric, "persist", key)
	}
}
