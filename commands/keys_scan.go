// Commands on a database as a whole: listing, counting, picking and deleting its keys, exchanging
// it with another.

package commands

import (
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

func keysCommand(x *Call) error {
	if err := CheckPattern(x.Args[1]); err != nil {
		return err
	}
	o := scanOptions{match: x.Args[1], filter: string(x.Args[1]) != "*"}
	var found []*keyspace.Entry
	var name []byte
	x.spendDead()
	x.DB().Each(func(e *keyspace.Entry) bool {
		x.spendKey(&o, e)
		name = append(name[:0], e.Key()...)
		if o.wants(name) {
			found = append(found, e)
		}
		return true
	})
	x.Out.Array(len(found))
	for _, e := range found {
		x.Out.BulkString(e.Key())
	}
	return nil
}

// spendKey adds the work of looking at one key of all.
func (x *Call) spendKey(o *scanOptions, e *keyspace.Entry) {
	x.Spend(o.work(len(e.Key())))
	if x.Level >= LevelBounded {
		x.Spend(walkedWork + keptWork)
	}
}

func scanCommand(x *Call) error {
	cursor, err := parseCursor(x.Args[1])
	if err != nil {
		return err
	}
	o, err := parseScanOptions(x.Args[2:], scanType)
	if err != nil {
		return err
	}
	var found []*keyspace.Entry
	var name []byte
	x.spendDead()
	next := x.DB().Scan(cursor, o.count, func(e *keyspace.Entry) {
		x.spendKey(&o, e)
		name = append(name[:0], e.Key()...)
		if o.wants(name) && o.wantsKind(e.Kind()) {
			found = append(found, e)
		}
	})
	x.Out.Array(2)
	x.Out.BulkString(strconv.FormatUint(next, 10))
	x.Out.Array(len(found))
	for _, e := range found {
		x.Out.BulkString(e.Key())
	}
	return nil
}

// wantsKind reports whether TYPE takes values of kind. A name that no type has takes none.
func (o *scanOptions) wantsKind(kind keyspace.Kind) bool {
	if !o.oneType {
		return true
	}
	var buf [16]byte
	return len(o.typeName) <= len(buf) && string(lower(buf[:0], o.typeName)) == kind.String()
}

func dbsizeCommand(x *Call) error {
	x.spendDead()
	x.Out.Int(int64(x.DB().Len()))
	return nil
}

func randomkeyCommand(x *Call) error {
	x.spendDead()
	e := x.DB().Random(x.draws().next())
	if e == nil {
		x.Out.Null()
		return nil
	}
	x.Out.BulkString(e.Key())
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

// flushMode checks the argument of FLUSHDB and FLUSHALL. The two modes are one here: a database is
// emptied at once.
func (x *Call) flushMode() error {
	if len(x.Args) == 1 || (len(x.Args) == 2 &&
		(isWord(x.Args[1], "ASYNC") || isWord(x.Args[1], "SYNC"))) {
		return nil
	}
	return ErrSyntax
}

func flushdbCommand(x *Call) error {
	if err := x.flushMode(); err != nil {
		return err
	}
	x.DB().Flush()
	x.Out.Status("OK")
	return nil
}

func flushallCommand(x *Call) error {
	if err := x.flushMode(); err != nil {
		return err
	}
	x.Keyspace.FlushAll()
	x.Out.Status("OK")
	return nil
}
