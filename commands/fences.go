// FENCE.CHECK: a resource lets the newest holder of a lock in and none that was there before. The
// key holds the largest token seen, in decimal.

package commands

import (
	"math"
	"strconv"
)

// Errors of FENCE.CHECK.
const (
	errToken   Error = "ERR token must be an integer from 0 to 9223372036854775807"
	errNoToken Error = "ERR the key holds something else than a token of FENCE.CHECK"
)

var fenceSpecs = []Spec{{
	Name: "fence.check", Kind: Write, Arity: -3, Flags: DenyOOM | Fast,
	Keys:  collectionKey.does(KeyRW | KeyAccess | KeyUpdate),
	Group: "string", Since: "0.2.0", Level: LevelSecond,
	Syntax: "resource:key token:integer [PX milliseconds:integer]",
	Summary: "Accepts a fencing token that is not smaller than the largest one seen, and " +
		"remembers it.",
	Complexity: "O(1)", Grows: growsKey, Handler: fenceCheck,
}}

// fenceCheck writes nothing unless the token is larger than all before: not even a deadline. So
// most checks are answered without the log.
func fenceCheck(x *Call) error {
	token, ok := ParseInt(x.Args[2])
	if !ok || token < 0 {
		return errToken
	}
	deadlineMs := int64(0)
	switch {
	case len(x.Args) == 3:
	case len(x.Args) != 5 || !isWord(x.Args[3], "PX"):
		return ErrSyntax
	default:
		var err error
		if deadlineMs, err = x.parseDeadline(ttlPX, x.Args[4]); err != nil {
			return err
		}
	}
	key, largest := x.Args[1], int64(math.MinInt64)
	e, err := x.findString(key)
	if err != nil {
		return err
	}
	if e != nil {
		if largest, ok = ParseInt(e.Bytes()); !ok || largest < 0 {
			return errNoToken
		}
	}
	if token > largest {
		db, text := x.DB(), strconv.AppendInt(nil, token, 10)
		if e == nil {
			e = db.Create(key, text)
		} else {
			e = db.SetString(key, text)
		}
		x.notify(NotifyString, "set", key)
		if db.SetDeadline(e, deadlineMs); deadlineMs != 0 {
			x.notify(NotifyGeneric, "expire", key)
		}
	}
	if token < largest {
		x.Out.Int(0)
	} else {
		x.Out.Int(1)
	}
	return nil
}
