// LLEN, LINDEX, LSET, LRANGE and LTRIM, which address elements by index.

package commands

import (
	"math/bits"

	"github.com/coordd/coordd/commands/keyspace"
)

func llen(x *Call) error {
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(int64(l.Len()))
	return nil
}

// listIndex parses an index in l, counted from the end if negative. ok is false if l has no such
// element.
func listIndex(l *keyspace.List, arg []byte) (position int, ok bool, err error) {
	i, ok := ParseInt(arg)
	if !ok {
		return 0, false, ErrNotInteger
	}
	if i < 0 {
		i += int64(l.Len())
	}
	return int(i), i >= 0 && i < int64(l.Len()), nil
}

func lindex(x *Call) error {
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	if l.Len() == 0 { // Redis does not check the index then
		x.Out.Null()
		return nil
	}
	position, ok, err := listIndex(l, x.Args[2])
	switch {
	case err != nil:
		return err
	case ok:
		x.spendDepth(l, 1)
		x.Out.BulkString(l.At(position))
	default:
		x.Out.Null()
	}
	return nil
}

// spendDepth adds the work of descending a long list's tree, units per node.
func (x *Call) spendDepth(l *keyspace.List, units int) {
	if x.Level >= LevelSecond {
		x.Spend(units * bits.Len(uint(l.Len())))
	}
}

// copiedNode is the cost of copying a node of a list's tree, in units of Env.Work.
const copiedNode = 8

func lset(x *Call) error {
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	if l.Len() == 0 {
		return ErrNoSuchKey
	}
	position, ok, err := listIndex(l, x.Args[2])
	if err != nil {
		return err
	}
	if !ok {
		return ErrOutOfRange
	}
	x.spendDepth(l, copiedNode)
	e, l := editList(x, x.Args[1])
	l.Set(position, x.Args[3])
	x.changed(e, NotifyList, "lset")
	x.Out.Status("OK")
	return nil
}

// findSpan returns the list at the first argument and its range between the indexes in the next
// two.
func findSpan(x *Call) (l *keyspace.List, first, last int, err error) {
	start, ok := ParseInt(x.Args[2])
	if !ok {
		return nil, 0, 0, ErrNotInteger
	}
	stop, ok := ParseInt(x.Args[3])
	if !ok {
		return nil, 0, 0, ErrNotInteger
	}
	if l, err = findList(x, x.Args[1]); err != nil {
		return nil, 0, 0, err
	}
	first, last = listSpan(l, start, stop)
	return l, first, last, nil
}

func lrange(x *Call) error {
	l, first, last, err := findSpan(x)
	if err != nil {
		return err
	}
	x.Out.Array(last - first + 1)
	if first <= last {
		replyElements(x, l, first, last)
	}
	return nil
}

func ltrim(x *Call) error {
	l, first, last, err := findSpan(x)
	if err != nil {
		return err
	}
	if n := l.Len(); n > 0 {
		// as on Redis, a list that loses nothing counts as changed too: WATCH and notifications
		// show it
		x.spendDepth(l, 4*copiedNode)
		e, l := editList(x, x.Args[1])
		if last < n-1 {
			l.RemoveRange(last+1, n-1)
		}
		if first > 0 {
			l.RemoveRange(0, first-1)
		}
		x.changed(e, NotifyList, "ltrim")
	}
	x.DB().Lacks(x.Args[1])
	x.Out.Status("OK")
	return nil
}
