// The INCR family and INCRBYFLOAT. They keep the TTL.

package commands

import (
	"math"
	"math/big"
	"strconv"
)

// ErrDecrement is DECRBY's error for the one number without a negative.
const ErrDecrement Error = "ERR decrement would overflow"

func incrCommand(x *Call) error { return x.increment(1) }

func decrCommand(x *Call) error { return x.increment(-1) }

func incrbyCommand(x *Call) error {
	by, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	return x.increment(by)
}

func decrbyCommand(x *Call) error {
	by, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	if by == math.MinInt64 {
		return ErrDecrement
	}
	return x.increment(-by)
}

func (x *Call) increment(by int64) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	n := int64(0)
	if e != nil {
		var ok bool
		if n, ok = ParseInt(e.Bytes()); !ok {
			return ErrNotInteger
		}
	}
	if (by > 0 && n > math.MaxInt64-by) || (by < 0 && n < math.MinInt64-by) {
		return ErrOverflow
	}
	n += by
	var buf [20]byte
	x.replace(e != nil, strconv.AppendInt(buf[:0], n, 10), "incrby")
	x.Out.Int(n)
	return nil
}

// replace sets the string of the key x.Args[1], keeps its TTL, and notifies event.
func (x *Call) replace(exists bool, value []byte, event string) {
	if exists {
		x.DB().SetString(x.Args[1], value)
	} else {
		x.DB().Create(x.Args[1], value)
	}
	x.notify(NotifyString, event, x.Args[1])
}

func incrbyfloatCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	n := new(big.Float).SetPrec(extended)
	if e != nil {
		var ok bool
		x.spendDigits(e.Bytes())
		if n, ok = ParseExtended(e.Bytes()); !ok {
			return ErrNotFloat
		}
	}
	x.spendDigits(x.Args[2])
	by, ok := ParseExtended(x.Args[2])
	if !ok {
		return ErrNotFloat
	}
	sum, ok := AddExtended(n, by)
	if !ok {
		return ErrNaN
	}
	s := FormatExtended(sum)
	text := []byte(s)
	x.spendDigits(text)
	x.replace(e != nil, text, "incrbyfloat")
	x.Out.BulkString(s)
	return nil
}
