// DEL and UNLINK, FLUSHDB and FLUSHALL.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// deletedWork is the cost of deleting a key, besides the lookup, in units of Env.Work.
const deletedWork = 10

func delCommand(x *Call) error {
	if x.Level >= LevelSecond {
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

// flushWork is the cost of a new, empty database.
const flushWork = 32

// flushMode checks the argument of FLUSHDB and FLUSHALL, and charges for the new databases. Both
// modes are synchronous here: Flush takes constant time.
func (x *Call) flushMode(databases int) error {
	if x.Level >= LevelSecond {
		x.Spend(flushWork * databases)
	}
	if len(x.Args) == 1 || (len(x.Args) == 2 &&
		(isWord(x.Args[1], "ASYNC") || isWord(x.Args[1], "SYNC"))) {
		return nil
	}
	return ErrSyntax
}

func flushdbCommand(x *Call) error {
	if err := x.flushMode(1); err != nil {
		return err
	}
	x.DB().Flush()
	x.Out.Status("OK")
	return nil
}

func flushallCommand(x *Call) error {
	if err := x.flushMode(keyspace.Databases); err != nil {
		return err
	}
	x.Keyspace.FlushAll()
	x.Out.Status("OK")
	return nil
}
