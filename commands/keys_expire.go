// The EXPIRE and TTL families and PERSIST. Deadlines are compared and kept in ms of the cluster
// clock; wall time comes in where a client gives or asks for an absolute time.

package commands

import (
	"math"

	"github.com/coordd/coordd/internal/resp"
)

// Errors of the EXPIRE family for options that exclude each other.
const (
	ErrExpireNX   Error = "ERR NX and XX, GT or LT options at the same time are not compatible"
	ErrExpireGTLT Error = "ERR GT and LT options at the same time are not compatible"
)

// expireOptions are the conditions of the EXPIRE family.
type expireOptions struct{ nx, xx, gt, lt bool }

func (o *expireOptions) parse(args [][]byte) error {
	for _, arg := range args {
		if !o.add(arg) {
			return Errorf("ERR Unsupported option %s", resp.CText(arg))
		}
	}
	switch {
	case o.nx && (o.xx || o.gt || o.lt):
		return ErrExpireNX
	case o.gt && o.lt:
		return ErrExpireGTLT
	}
	return nil
}

// add adds a condition and reports whether arg is one.
func (o *expireOptions) add(arg []byte) bool {
	switch {
	case isWord(arg, "NX"):
		o.nx = true
	case isWord(arg, "XX"):
		o.xx = true
	case isWord(arg, "GT"):
		o.gt = true
	case isWord(arg, "LT"):
		o.lt = true
	default:
		return false
	}
	return true
}

// allow reports whether the conditions allow a deadline to change; 0 is none. No deadline counts as
// the latest.
func (o *expireOptions) allow(oldMs, newMs int64) bool {
	switch {
	case o.nx && oldMs != 0, o.xx && oldMs == 0:
		return false
	case o.gt && (oldMs == 0 || newMs <= oldMs):
		return false
	case o.lt && oldMs != 0 && newMs >= oldMs:
		return false
	}
	return true
}

func expireCommand(x *Call) error { return x.expire(1000, false) }

func pexpireCommand(x *Call) error { return x.expire(1, false) }

func expireatCommand(x *Call) error { return x.expire(1000, true) }

func pexpireatCommand(x *Call) error { return x.expire(1, true) }

// expire runs the EXPIRE family. The time is in units of unitMs, since 1970 or from now, and may be
// negative.
func (x *Call) expire(unitMs int64, absolute bool) error {
	var o expireOptions
	if err := o.parse(x.Args[3:]); err != nil {
		return err
	}
	n, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	if n > math.MaxInt64/unitMs || n < math.MinInt64/unitMs ||
		(!absolute && n*unitMs > math.MaxInt64-x.WallMs()) {
		return InvalidExpire(x.Spec.FullName())
	}
	deadlineMs := x.deadline(n*unitMs, absolute)
	e := x.find(x.Args[1])
	if e == nil || !o.allow(e.Deadline(), deadlineMs) {
		x.Out.Int(0)
		return nil
	}
	x.setDeadline(x.Args[1], deadlineMs)
	x.Out.Int(1)
	return nil
}

func persistCommand(x *Call) error {
	if e := x.find(x.Args[1]); e == nil || e.Deadline() == 0 {
		x.Out.Int(0)
		return nil
	}
	x.setDeadline(x.Args[1], 0)
	x.Out.Int(1)
	return nil
}

func ttlCommand(x *Call) error {
	x.replyTTL(func(deadlineMs int64) int64 { return roundSeconds(x.remainingMs(deadlineMs)) })
	return nil
}

func pttlCommand(x *Call) error {
	x.replyTTL(x.remainingMs)
	return nil
}

func expiretimeCommand(x *Call) error {
	x.replyTTL(func(deadlineMs int64) int64 { return roundSeconds(x.expiryMs(deadlineMs)) })
	return nil
}

func pexpiretimeCommand(x *Call) error {
	x.replyTTL(x.expiryMs)
	return nil
}

// replyTTL replies with show of the key's deadline, -1 if it has none, -2 if there is no key.
func (x *Call) replyTTL(show func(deadlineMs int64) int64) {
	e := x.find(x.Args[1])
	switch {
	case e == nil:
		x.Out.Int(-2)
	case e.Deadline() == 0:
		x.Out.Int(-1)
	default:
		x.Out.Int(show(e.Deadline()))
	}
}
