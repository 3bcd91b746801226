// What blocking commands share. Applying the log never waits: a handler that finds nothing calls
// Block. Then the machine keeps the command, and runs it again, with Tx.Woken set, in the entry
// that changes one of its keys (Request.Wait, docs/adr/0040). Or its client's node sends it again
// after such a change; there a command that arrives while others wait for the same keys takes
// nothing and waits too: Tx.Behind.

package commands

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
)

// mayBlock reports whether the command may wait: not in a transaction or a script.
func (x *Call) mayBlock() bool { return !x.Tx.Multi && !x.Tx.Script }

// Block makes the command wait, in place of a reply: for up to timeoutMs (0: without limit) until
// one of its keys changes. Then it runs again, with the arguments again if they are not nil. A
// handler that may not block replies instead as Redis does on a timeout.
func (x *Call) Block(timeoutMs int64, again [][]byte) { x.BlockAndLook(timeoutMs, noLook, again) }

// noLook is BlockAndLook's lookMs for a command that finds more only once a key changes.
const noLook = -1

// BlockAndLook is Block for a command that may find something without a change: after lookMs, at
// the earliest, if that is not noLook. Such a command waits in no machine: its node looks again.
func (x *Call) BlockAndLook(timeoutMs, lookMs int64, again [][]byte) {
	x.Tx.Blocked = true
	size := 16
	for _, a := range again {
		size += len(a) + 16
	}
	if r := x.resp(size); r != nil { // nil: no reply is built
		r.head(blockMark, timeoutMs)
		if lookMs != noLook && !r.Full {
			r.Buf = fmt.Appendf(r.Buf[:len(r.Buf)-2], " %d\r\n", lookMs)
		}
		r.Array(len(again))
		for _, a := range again {
			r.Bulk(a)
		}
	}
}

// blockMark starts the form that Block writes: a line with the timeout in ms, and the Place if the
// machine was asked for one, or when to look again, then an array of the arguments to run again
// with, empty for the same. It is no type of the Redis protocol and never reaches a client.
const blockMark = '?'

// CutBlock parses what Block wrote. ok is false for a reply.
func CutBlock(reply []byte) (timeoutMs int64, again []byte, ok bool) {
	if len(reply) == 0 || reply[0] != blockMark {
		return 0, nil, false
	}
	line, again, _ := bytes.Cut(reply[1:], []byte("\r\n"))
	timeout, _, _ := bytes.Cut(line, []byte(" "))
	timeoutMs, ok = ParseInt(timeout)
	return timeoutMs, again, ok
}

// Place is what the machine answers to a Request.Wait, besides what Block wrote.
type Place struct {
	// Era numbers the times that the machine lost the waits of the client's node. It keeps no
	// command that names another.
	Era uint64
	// Order is the command's place among all that wait. 0: the machine did not keep the command,
	// because of its era or for lack of room.
	Order uint64
}

// AddTo adds the place to what Block wrote.
func (p Place) AddTo(reply []byte) []byte {
	line, again, _ := bytes.Cut(reply, []byte("\r\n"))
	return slices.Concat(line, fmt.Appendf(nil, " %d %d\r\n", p.Era, p.Order), again)
}

// CutPlace parses what AddTo wrote. ok is false if there is no place.
func CutPlace(reply []byte) (p Place, ok bool) {
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	words := bytes.Fields(line)
	if len(words) != 3 {
		return p, false
	}
	era, known := ParseInt(words[1])
	order, ok := ParseInt(words[2])
	return Place{uint64(era), uint64(order)}, known && ok
}

// CutLook parses when to look again, ms from now, in what BlockAndLook wrote. ok is false if only a
// change can bring something.
func CutLook(reply []byte) (ms int64, ok bool) {
	line, _, _ := bytes.Cut(reply, []byte("\r\n"))
	words := bytes.Fields(line)
	if len(words) != 2 {
		return 0, false
	}
	return ParseInt(words[1])
}

// WaitsInMachine reports whether the machine keeps a blocking command that finds nothing: one that
// takes elements from lists or sorted sets. Readers of streams are woken by their nodes.
func (s *Spec) WaitsInMachine() bool { return s.Kind == Write && s.Group != "stream" }

// Claims reports whether a node claims what the machine gives to a call that waited.
func (s *Spec) Claims() bool { return s.Waits == WaitsOnWait }

// WaitClass returns what tells of which keys a call that waits may take: its group, and how many
// elements it needs if that is not one.
func (s *Spec) WaitClass(args [][]byte) string {
	switch {
	case s.Claims():
		return lockClass(args)
	case s.Keys.Least != nil:
		if least := s.Keys.Least(args); least > 1 {
			return s.Group + " " + strconv.FormatInt(least, 10)
		}
	}
	return s.Group
}

// WaitedKeys returns the indexes in args of the keys that a call may wait for: those that it takes
// from or reads, not those that it only adds to. There are none if the call is invalid.
func (s *Spec) WaitedKeys(args [][]byte) (indexes []int) {
	if len(s.Keys.Parts) <= 1 {
		indexes, _ = s.KeyIndexes(args)
		return indexes
	}
	uses, _ := s.KeyUses(args)
	for _, u := range uses {
		if u.Flags&KeyAccess != 0 {
			indexes = append(indexes, u.Index)
		}
	}
	return indexes
}

// OnlyKeys reduces the arguments of a blocking command to some of its keys: some has places in
// indexes, in rising order. The other keys are as they were when the command found nothing. So the
// cost of a change does not depend on the number of keys.
func (s *Spec) OnlyKeys(args [][]byte, indexes, some []int) [][]byte {
	if len(indexes) <= len(some) || len(s.Keys.Parts) > 1 {
		return args
	}
	first, end := indexes[0], indexes[len(indexes)-1]+1
	rest := args[end:]
	if s.Keys.Paired && len(rest) != len(indexes) {
		return args
	}
	only := slices.Clone(args[:first])
	for _, i := range some {
		only = append(only, args[indexes[i]])
	}
	if s.Keys.Paired {
		for _, i := range some {
			only = append(only, rest[i])
		}
		return only
	}
	if n := s.Keys.Numkeys; n > 0 {
		only[n] = strconv.AppendInt(nil, int64(len(some)), 10)
	}
	return append(only, rest...)
}

// Errors of timeouts.
const (
	errTimeoutFloat    Error = "ERR timeout is not a float or out of range"
	errTimeoutInteger  Error = "ERR timeout is not an integer or out of range"
	errTimeoutNegative Error = "ERR timeout is negative"
)

// timeoutSeconds parses a timeout in seconds, with decimals, and returns ms, rounded up.
func (x *Call) timeoutSeconds(arg []byte) (timeoutMs int64, err error) {
	x.spendDigits(arg)
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
