// RENAME, COPY and MOVE, and SWAPDB, which exchanges two databases.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/keyspace"
)

// ErrSameObject is the error for a copy or move of a key to itself.
const ErrSameObject Error = "ERR source and destination objects are the same"

func renameCommand(x *Call) error {
	if x.find(x.Args[1]) == nil {
		return ErrNoSuchKey
	}
	if !bytes.Equal(x.Args[1], x.Args[2]) {
		x.rename()
	}
	x.Out.Status("OK")
	return nil
}

func renamenxCommand(x *Call) error {
	if x.find(x.Args[1]) == nil {
		return ErrNoSuchKey
	}
	if x.find(x.Args[2]) != nil {
		x.Out.Int(0)
		return nil
	}
	x.rename()
	x.Out.Int(1)
	return nil
}

// rename renames x.Args[1], which exists, to x.Args[2].
func (x *Call) rename() {
	from, to := x.Args[1], x.Args[2]
	x.spendCopy(from)
	before := x.kindAt(x.Tx.DB, to)
	x.DB().Rename(from, to)
	x.notify(NotifyGeneric, "rename_from", from)
	x.notify(NotifyGeneric, "rename_to", to)
	if before != none {
		x.overwritten(x.Tx.DB, to, before, x.DB().Find(to).Kind())
	}
}

// smallForm is the largest number of elements that are copied one by one.
const smallForm = 512

// spendCopy adds the work of copying the value of an existing key: a string is hashed, a small
// collection copied.
func (x *Call) spendCopy(key []byte) {
	e := x.find(key)
	x.spendBytes(len(e.Bytes()))
	if x.Level >= LevelSecond {
		// the next write to either of the two copies the string
		x.spendBytes(2 * len(e.Bytes()))
	}
	if c := e.Collection(); c != nil {
		copied := 8 // elements per unit of work
		if x.Level >= LevelSecond {
			copied = 3
		}
		x.Spend(min(c.Len(), smallForm) / copied)
	}
}

// What giving a collection its large form costs for each element, in units of Env.Work: one tree of
// a hash, two of a sorted set; a set of integers makes names of them.
const (
	grownElement = 16
	grownMember  = 8
)

// spendGrowth adds the work of giving the copy of a small collection its large form, as one change
// of it may. Whatever else makes a collection pays so much for each element.
func (x *Call) spendGrowth(e *keyspace.Entry) {
	if x.Level < LevelSecond {
		return
	}
	switch c := e.Collection().(type) {
	case *keyspace.Hash: //hash: what it holds, dead fields and all
		if c.Compact() {
			x.Spend(grownElement * (c.Len() + c.Dead()))
		}
	case *keyspace.ZSet:
		if c.Compact() {
			x.Spend(grownElement * c.Len())
		}
	case *keyspace.Set: //set: what it holds, dead members and all
		if n := c.Len() + c.Dead(); n <= smallForm {
			x.Spend(grownMember * n)
		}
	}
}

// moveCommand checks the database before it looks up the key, as Redis does.
func moveCommand(x *Call) error {
	index, err := ParseDB(x.Args[2])
	if err != nil {
		return err
	}
	if index == x.Tx.DB {
		return ErrSameObject
	}
	key, dst := x.Args[1], x.Keyspace.DB(index)
	if x.find(key) == nil || dst.Find(key) != nil {
		x.Out.Int(0)
		return nil
	}
	x.spendCopy(key)
	x.DB().Move(key, dst, key)
	x.notify(NotifyGeneric, "move_from", key)
	x.notifyIn(index, NotifyGeneric, "move_to", key)
	x.Out.Int(1)
	return nil
}

func copyCommand(x *Call) error {
	index, replace := x.Tx.DB, false
	for i := 3; i < len(x.Args); i++ {
		switch {
		case isWord(x.Args[i], "REPLACE"):
			replace = true
		case isWord(x.Args[i], "DB") && i+1 < len(x.Args):
			i++
			n, err := ParseDB(x.Args[i])
			if err != nil {
				return err
			}
			index = n
		default:
			return ErrSyntax
		}
	}
	source, to := x.Args[1], x.Args[2]
	if index == x.Tx.DB && bytes.Equal(source, to) {
		return ErrSameObject
	}
	dst := x.Keyspace.DB(index)
	if x.find(source) == nil || (!replace && dst.Find(to) != nil) {
		x.Out.Int(0)
		return nil
	}
	x.spendCopy(source)
	x.spendGrowth(x.DB().Find(source))
	before := x.kindAt(index, to)
	x.DB().Copy(source, dst, to)
	x.notifyIn(index, NotifyGeneric, "copy_to", to)
	if before != none {
		x.overwritten(index, to, before, dst.Find(to).Kind())
	}
	x.Out.Int(1)
	return nil
}

// Errors of SWAPDB for arguments that are not numbers.
const (
	errFirstDB  Error = "ERR invalid first DB index"
	errSecondDB Error = "ERR invalid second DB index"
)

func swapdbCommand(x *Call) error {
	a, okA := parseInt32(x.Args[1])
	b, okB := parseInt32(x.Args[2])
	switch {
	case !okA:
		return errFirstDB
	case !okB:
		return errSecondDB
	case min(a, b) < 0 || max(a, b) >= keyspace.Databases:
		return ErrDBIndex
	}
	x.Keyspace.Swap(a, b)
	x.Out.Status("OK")
	return nil
}

// parseInt32 parses a 32-bit integer.
func parseInt32(arg []byte) (int, bool) {
	n, ok := ParseInt(arg)
	return int(n), ok && n == int64(int32(n))
}
