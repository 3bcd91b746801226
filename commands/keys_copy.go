// Commands on single keys whatever they hold: deleting, counting, renaming, moving, copying,
// fencing.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// ErrSameObject is COPY's error for a key that is to be copied to itself.
const ErrSameObject Error = "ERR source and destination objects are the same"

// deletedWork is what deleting a key costs beside looking it up, in units of Env.Work.
const deletedWork = 10

func delCommand(x *Call) error {
	if x.Level >= LevelBounded {
		x.Spend((deletedWork + 2*deep(x.DB().Volatile())) * (len(x.Args) - 1))
	}
	n := int64(0)
	for _, key := range x.Args[1:] {
		if x.DB().Delete(key) {
			x.notify(NotifyGeneric, "del", key)
			n++
		}
	}
	x.Out.Int(n)
	return nil
}

func existsCommand(x *Call) error {
	n := int64(0)
	for _, key := range x.Args[1:] {
		if x.DB().Find(key) != nil {
			n++
		}
	}
	x.Out.Int(n)
	return nil
}

func typeCommand(x *Call) error {
	kind := keyspace.Kind(0)
	if e := x.DB().Find(x.Args[1]); e != nil {
		kind = e.Kind()
	}
	x.Out.Status(kind.String())
	return nil
}

func fenceCommand(x *Call) error {
	if created := x.DB().Creation(x.Args[1]); created != 0 {
		x.Out.Int(int64(created))
		return nil
	}
	x.Out.Null()
	return nil
}

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

// ParseDB reads the number of a database, as SELECT, COPY and MOVE take it.
func ParseDB(arg []byte) (int, error) {
	n, ok := ParseInt(arg)
	switch {
	case !ok:
		return 0, ErrNotInteger
	case n < math.MinInt32 || n > math.MaxInt32:
		return 0, outOfRange(math.MinInt32, math.MaxInt32)
	case n < 0 || n >= keyspace.Databases:
		return 0, ErrDBIndex
	}
	return int(n), nil
}
