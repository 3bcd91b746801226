// DELEX and DELIFEQ, which delete a key if its value meets a condition, and DIGEST, which DELEX and
// SET can compare by. They release a lock without a script.

package commands

import (
	"bytes"

	"github.com/zeebo/xxh3"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/ascii"
)

// digestLen is the length of a digest in hexadecimal digits.
const digestLen = 16

// Errors of the comparisons of Redis 8.4.
const (
	ErrDigest         Error = "ERR must be exactly 16 hexadecimal characters"
	ErrDelexType      Error = "ERR Key should be of string type if conditions are specified"
	ErrDelexCondition Error = "ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"
)

// digest returns the XXH3 hash (64 bits, seed 0) of b in hexadecimal with leading zeros.
func digest(b []byte) (hex [digestLen]byte) {
	sum := xxh3.Hash(b)
	for i := range hex {
		hex[i] = "0123456789abcdef"[sum>>(60-4*i)&15]
	}
	return hex
}

// sameDigest reports whether b has the digest hex, in upper or lower case. Nothing has a digest
// that is not hexadecimal.
func sameDigest(b, hex []byte) bool {
	own := digest(b)
	return ascii.Equal(own[:], hex)
}

func digestCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	if e == nil {
		x.Out.Null()
		return nil
	}
	x.spendBytes(len(e.Bytes()))
	hex := digest(e.Bytes())
	x.Out.Bulk(hex[:])
	return nil
}

func delexCommand(x *Call) error {
	if len(x.Args) == 2 {
		return delCommand(x)
	}
	if len(x.Args) != 4 {
		return x.Spec.ArityError()
	}
	e := x.find(x.Args[1])
	if e == nil {
		x.Out.Int(0) // even if the condition is unknown
		return nil
	}
	if e.Kind() != keyspace.KindString {
		return ErrDelexType
	}
	when := ifWord(x.Args[2])
	if when == setAlways {
		return ErrDelexCondition
	}
	holds, err := when.holds(x, e, x.Args[3])
	if err != nil {
		return err
	}
	x.deleteIf(holds)
	return nil
}

func delifeqCommand(x *Call) error {
	e, err := x.findString(x.Args[1])
	if err != nil {
		return err
	}
	x.deleteIf(e != nil && bytes.Equal(e.Bytes(), x.Args[2]))
	return nil
}

// deleteIf deletes the key x.Args[1], which exists, if the condition holds, and replies with the
// number of deleted keys.
func (x *Call) deleteIf(holds bool) {
	if !holds {
		x.Out.Int(0)
		return
	}
	x.DB().Delete(x.Args[1])
	x.notify(NotifyGeneric, "del", x.Args[1])
	x.Out.Int(1)
}
