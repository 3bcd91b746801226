// KEYS and SCAN, DBSIZE and RANDOMKEY: commands on all keys of a database.

package commands

import (
	"math"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/ascii"
)

func keysCommand(x *Call) error {
	if err := CheckPattern(x.Args[1]); err != nil {
		return err
	}
	o := scanOptions{match: x.Args[1], filter: string(x.Args[1]) != "*"}
	var found []*keyspace.Entry
	var name []byte
	x.spendDead(math.MaxInt)
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

// spendKey adds the work of looking at one of all keys.
func (x *Call) spendKey(o *scanOptions, e *keyspace.Entry) {
	x.Spend(o.work(len(e.Key())))
	if x.Level >= LevelSecond {
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
	x.spendDead(o.count)
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

// wantsKind reports whether TYPE accepts values of kind. An unknown type accepts none.
func (o *scanOptions) wantsKind(kind keyspace.Kind) bool {
	if !o.oneType {
		return true
	}
	var buf [16]byte
	return len(o.typeName) <= len(buf) &&
		string(ascii.AppendLower(buf[:0], o.typeName)) == kind.String()
}

func dbsizeCommand(x *Call) error {
	x.spendDead(math.MaxInt)
	x.Out.Int(int64(x.DB().Len()))
	return nil
}

func randomkeyCommand(x *Call) error {
	x.spendDead(math.MaxInt)
	e := x.DB().Random(x.draws().next())
	if e == nil {
		x.Out.Null()
		return nil
	}
	x.Out.BulkString(e.Key())
	return nil
}
