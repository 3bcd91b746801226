// What blocking commands share. The machine never waits: a handler that finds nothing calls Block.
// The node that the client is connected to then runs the command again, with Tx.Woken set, when one
// of its keys has changed. A command that arrives while others wait for the same keys takes nothing
// and waits too: Tx.Behind.

package commands

import (
	"math"
	"math/big"
	"strconv"
)

// mayBlock reports whether the command may wait: not in a transaction or a script.
func (x *Call) mayBlock() bool { return !x.Tx.Multi && !x.Tx.Script }

// Block makes the command wait, in place of a reply: for up to timeoutMs (0: without limit) until
// one of its keys changes. Then it runs again, with the arguments again if they are not nil. A
// handler that may not block replies instead as Redis does on a timeout.
func (x *Call) Block(timeoutMs int64, again [][]byte) {
	size := 16
	for _, a := range again {
		size += len(a) + 16
	}
	if r := x.resp(size); r != nil { // nil: no reply is built
		r.head(blockMark, timeoutMs)
		r.Array(len(again))
		for _, a := range again {
			r.Bulk(a)
		}
	}
}

// blockMark starts the form that Block writes: a line with the timeout in ms, then an array of the
// arguments to run again with, empty for the same. It is no type of the Redis protocol and never
// reaches a client.
const blockMark = '?'

// CutBlock parses what Block wrote. ok is false for a reply.
func CutBlock(reply []byte) (timeoutMs int64, again []byte, ok bool) {
	if len(reply) == 0 || reply[0] != blockMark {
		return 0, nil, false
	}
	for i, c := range reply {
		if c == '\n' {
			timeoutMs, err := strconv.ParseInt(string(reply[1:i-1]), 10, 64)
			return timeoutMs, reply[i+1:], err == nil
		}
	}
	return 0, nil, false
}

// Errors of timeouts.
const (
	errTimeoutFloat    Error = "ERR timeout is not a float or out of range"
	errTimeoutInteger  Error = "ERR timeout is not an integer or out of range"
	errTimeoutNegative Error = "ERR timeout is negative"
)

// timeoutSeconds parses a timeout in seconds, with decimals, and returns ms, rounded up.
func (x *Call) timeoutSeconds(arg []byte) (timeoutMs int64, err error) {
	x.Spend(digitsWork(arg))
	f, ok := ParseExtended(arg)
	if !ok {
		return 0, errTimeoutFloat
	}
	if f.IsInf() {
		return 0, errTimeoutNegative
	}
	// 64 bits of mantissa, as Redis has: -0.001 gives a little more than -1, which becomes 0
	f.Mul(f, big.NewFloat(1000))
	ms, rounded := f.Int64()
	switch {
	case ms == math.MaxInt64: // Redis's conversion to an integer overflows to a negative number
		return 0, errTimeoutNegative
	case rounded == big.Below:
		ms++
	}
	return notNegative(ms)
}

// timeoutMilliseconds parses a timeout in ms.
func (x *Call) timeoutMilliseconds(arg []byte) (timeoutMs int64, err error) {
	ms, ok := ParseInt(arg)
	if !ok {
		return 0, errTimeoutInteger
	}
	return notNegative(ms)
}

func notNegative(ms int64) (int64, error) {
	if ms < 0 {
		return 0, errTimeoutNegative
	}
	return ms, nil
}
