// RENAME, COPY and MOVE, and SWAPDB, which exchanges two databases.

package commands

import (
	"bytes"

	"github.com/coordd/coordd/commands/keyspace"
)

// ErrSameObject is COPY's error for a key that is to be copied to itself.
const ErrSameObject Error = "ERR source and destination objects are the same"

func renameCommand(x *Call) error {
	if x.DB().Find(x.Args[1]) == nil {
		return ErrNoSuchKey
	}
	if !bytes.Equal(x.Args[1], x.Args[2]) {
		x.rename()
	}
	x.Out.Status("OK")
	return nil
}

func renamenxCommand(x *Call) error {
	if x.DB().Find(x.Args[1]) == nil {
		return ErrNoSuchKey
	}
	if x.DB().Find(x.Args[2]) != nil {
		x.Out.Int(0)
		return nil
	}
	x.rename()
	x.Out.Int(1)
	return nil
}

// rename gives the key x.Args[1], which exists, the name x.Args[2].
func (x *Call) rename() {
	from, to := x.Args[1], x.Args[2]
	x.spendCopy(from)
	x.DB().Rename(from, to)
	x.notify(NotifyGeneric, "rename_from", from)
	x.notify(NotifyGeneric, "rename_to", to)
}

// smallForm is up to how many elements a collection may be copied one by one.
const smallForm = 512

// spendCopy adds the work of giving another key the value of one that exists: a string is hashed, a
// small collection copied.
func (x *Call) spendCopy(key []byte) {
	e := x.DB().Find(key)
	x.spendBytes(len(e.Bytes()))
	if x.Level >= LevelBounded {
		// the next write into it copies it, or into what it was copied from
		x.spendBytes(2 * len(e.Bytes()))
	}
	if c := e.Collection(); c != nil {
		copied := 8 // elements in a unit of work
		if x.Level >= LevelBounded {
			copied = 3
		}
		x.Spend(min(c.Len(), smallForm) / copied)
	}
}

// moveCommand is MOVE. Redis looks at the database before it looks for the key.
func moveCommand(x *Call) error {
	index, err := ParseDB(x.Args[2])
	if err != nil {
		return err
	}
	if index == x.Tx.DB {
		return ErrSameObject
	}
	key, dst := x.Args[1], x.Keyspace.DB(index)
	if x.DB().Find(key) == nil || dst.Find(key) != nil {
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
	if x.DB().Find(source) == nil || (!replace && dst.Find(to) != nil) {
		x.Out.Int(0)
		return nil
	}
	x.spendCopy(source)
	x.DB().Copy(source, dst, to)
	x.notifyIn(index, NotifyGeneric, "copy_to", to)
	x.Out.Int(1)
	return nil
}

// Error replies of SWAPDB for what is no number.
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

// parseInt32 reads an integer of 32 bits.
func parseInt32(arg []byte) (int, bool) {
	n, ok := ParseInt(arg)
	return int(n), ok && n == int64(int32(n))
}
