// LPOS, LINSERT and LREM, which search lists by value.

package commands

import (
	"math"
	"math/bits"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of LPOS's options.
const (
	errPosRank Error = "ERR RANK can't be zero: use 1 to start from the first match, 2 from " +
		"the second ... or use negative to start from the end of the list"
	errPosCount  Error = "ERR COUNT can't be negative"
	errPosMaxlen Error = "ERR MAXLEN can't be negative"
)

// searchList calls found with the positions of the elements of l that equal value, among the first
// limit as seen from the end, until found returns false.
func searchList(x *Call, l *keyspace.List, value []byte, end listEnd, limit int,
	found func(position int) bool) {
	if limit == 0 {
		return
	}
	first, last := end.span(l, limit)
	reached := last // or where found returned false
	compared := func() { x.spendBytesOf(len(value)) }
	compare := func(position int) bool {
		if !found(position) {
			reached = position
			return false
		}
		return true
	}
	if x.Level < LevelSecond {
		l.Find(value, first, last, compared, func(position int) bool {
			x.spendBytes(len(value)) // release 0.1 charged for equal ones alone
			return compare(position)
		})
		x.Spend((max(reached-first, first-reached) + 1) / searched)
		return
	}
	const parcel = 1 << 12 // a search that takes too long ends between parcels
	step := 1
	if first > last {
		step = -1
	}
	for from, left := first, limit; left > 0 && reached == last; {
		n := min(left, parcel)
		to := from + step*(n-1)
		x.Spend(bits.Len(uint(l.Len())) + n/2)
		l.Find(value, from, to, compared, compare)
		from, left = to+step, left-n
	}
}

func linsert(x *Call) error {
	behind := isWord(x.Args[2], "AFTER")
	if !behind && !isWord(x.Args[2], "BEFORE") {
		return ErrSyntax
	}
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	if l.Len() == 0 {
		x.Out.Int(0)
		return nil
	}
	at := -1
	searchList(x, l, x.Args[3], leftEnd, l.Len(), func(position int) bool {
		at = position
		return false
	})
	if at < 0 {
		x.Out.Int(-1)
		return nil
	}
	if behind {
		at++
	}
	x.spendDepth(l, copiedNode)
	e, l := editList(x, x.Args[1])
	l.Insert(at, x.Args[4])
	x.changed(e, NotifyList, "linsert")
	x.Out.Int(int64(l.Len()))
	return nil
}

// Costs of removing elements from the middle of a long list, in units of Env.Work.
const (
	removedElement  = 8   // per element, below LevelSecond
	gatheredElement = 4   // per element
	piece           = 64  // elements of a leaf
	removedPiece    = 160 // per leaf with removed elements
)

// spendPositions adds the work of removing the elements at sorted positions.
func (x *Call) spendPositions(l *keyspace.List, positions []int) {
	if x.Level < LevelSecond {
		x.Spend(len(positions) * removedElement)
		return
	}
	pieces, last := 0, -1
	for _, position := range positions {
		if position/piece != last {
			pieces, last = pieces+1, position/piece
		}
	}
	x.Spend(len(positions)*gatheredElement + pieces*min(removedPiece, 3*l.Len()))
}

func lrem(x *Call) error {
	count, ok := ParseInt(x.Args[2])
	if !ok {
		return ErrNotInteger
	}
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	end := leftEnd
	if count < 0 {
		// -count overflows, and n never reaches it: all are removed
		end, count = rightEnd, -count
	}
	var positions []int
	searchList(x, l, x.Args[3], end, l.Len(), func(position int) bool {
		positions = append(positions, position)
		return int64(len(positions)) != count
	})
	if len(positions) > 0 {
		if end == rightEnd {
			slices.Reverse(positions)
		}
		x.spendPositions(l, positions)
		e, l := editList(x, x.Args[1])
		l.Remove(positions)
		x.changed(e, NotifyList, "lrem")
	}
	x.DB().Lacks(x.Args[1])
	x.Out.Int(int64(len(positions)))
	return nil
}

// listSearch are the options of LPOS.
type listSearch struct {
	end    listEnd
	skip   int64 // matches to skip
	count  int64 // matches to return, 0 for all
	listed bool  // COUNT was given: the reply is an array
	maxlen int64 // elements to compare, 0 for all
	// overflow is set if RANK is the lowest number, which Redis cannot negate: it then returns all
	// matches, whatever the count.
	overflow bool
}

func (s *listSearch) parse(args [][]byte) error {
	s.count = 1
	for ; len(args) > 0; args = args[2:] {
		if len(args) == 1 {
			return ErrSyntax
		}
		n, ok := ParseInt(args[1])
		switch {
		case isWord(args[0], "RANK"):
			if !ok {
				return ErrNotInteger
			}
			if n == 0 {
				return errPosRank
			}
			s.end, s.skip = leftEnd, n-1
			if n < 0 {
				s.end, s.skip = rightEnd, -(n + 1)
			}
			if s.overflow = n == math.MinInt64; s.overflow {
				s.skip = 0
			}
		case isWord(args[0], "COUNT"):
			if !ok || n < 0 {
				return errPosCount
			}
			s.count, s.listed = n, true
		case isWord(args[0], "MAXLEN"):
			if !ok || n < 0 {
				return errPosMaxlen
			}
			s.maxlen = n
		default:
			return ErrSyntax
		}
	}
	return nil
}

func lpos(x *Call) error {
	var s listSearch
	if err := s.parse(x.Args[3:]); err != nil {
		return err
	}
	l, err := findList(x, x.Args[1])
	if err != nil {
		return err
	}
	limit := int64(l.Len())
	if s.maxlen > 0 {
		limit = min(limit, s.maxlen)
	}
	wanted := s.count
	if wanted == 0 || s.overflow {
		wanted = math.MaxInt64
	}
	var positions []int
	searchList(x, l, x.Args[2], s.end, int(limit), func(position int) bool {
		if s.skip > 0 {
			s.skip--
			return true
		}
		positions = append(positions, position)
		return int64(len(positions)) < wanted
	})
	switch {
	case s.listed:
		x.Out.Array(len(positions))
		for _, position := range positions {
			x.Out.Int(int64(position))
		}
	case len(positions) > 0:
		x.Out.Int(int64(positions[0]))
	default:
		x.Out.Null()
	}
	return nil
}
