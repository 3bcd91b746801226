// This file contains what commands that wait share. The machine never waits: a handler that finds
// nothing says so by Block, the node that the client is connected to lets it wait, and tries the
// command again, with Tx.Woken set, when one of its keys was changed. A command that comes when
// others wait for the same keys only looks, and waits: Tx.Behind.

package commands

import (
	"math"
	"math/big"
	"strconv"
)

// mayBlock reports whether the command may wait: not inside a transaction, nor in a script.
func (x *Call) mayBlock() bool { return !x.Tx.Multi && !x.Tx.Script }

// Block answers, in place of a reply, that the command is to wait up to timeoutMs (0: without end)
// for one of its keys to change, and then to be tried again, with other arguments if again is not
// nil. Where nothing may wait the handler does not call it, but replies as Redis does after the
// time is over.
func (x *Call) Block(timeoutMs int64, again [][]byte) {
	size := 16
	for _, a := range again {
		size += len(a) + 16
	}
	if r := x.resp(size); r != nil { // else nobody asked
		r.head(blockMark, timeoutMs)
		r.Array(len(again))
		for _, a := range again {
			r.Bulk(a)
		}
	}
}

// blockMark begins what stands for a reply that does not come yet. It is no type of the Redis
// protocol and never reaches a client: a line with the time to wait in ms, then an array of the
// arguments to try again with, empty for the same.
const blockMark = '?'

// CutBlock takes apart what a handler answered by Block. ok is false for a reply.
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

// timeoutSeconds reads a timeout in seconds, with decimals, and returns ms, rounded up.
func (x *Call) timeoutSeconds(arg []byte) (timeoutMs int64, err error) {
	x.Spend(digitsWork(arg))
	f, ok := ParseExtended(arg)
	if !ok {
		return 0, errTimeoutFloat
	}
	if f.IsInf() {
		return 0, errTimeoutNegative
	}
	// with 64 bits of mantissa, as Redis does: -0.001 gives a little more than -1, which becomes 0
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

// timeoutMilliseconds reads a timeout in ms.
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
