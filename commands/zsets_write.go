// ZADD, ZINCRBY, ZREM and the ZREMRANGE family.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of ZADD and ZINCRBY.
const (
	errAddXXNX   Error = "ERR XX and NX options at the same time are not compatible"
	errAddGTLTNX Error = "ERR GT, LT, and/or NX options at the same time are not compatible"
	errAddIncr   Error = "ERR INCR option supports a single increment-element pair"
	errScoreNaN  Error = "ERR resulting score is not a number (NaN)"
)

// zaddition is one call of ZADD or ZINCRBY.
type zaddition struct {
	nx, xx, gt, lt bool
	ch, incr       bool
	pairs          [][]byte // score, member, score, member …
	scores         []float64
}

// parse parses the options and the scores, in Redis's order of checks.
func (a *zaddition) parse(args [][]byte) error {
	for ; len(args) > 0; args = args[1:] {
		switch {
		case isWord(args[0], "NX"):
			a.nx = true
		case isWord(args[0], "XX"):
			a.xx = true
		case isWord(args[0], "GT"):
			a.gt = true
		case isWord(args[0], "LT"):
			a.lt = true
		case isWord(args[0], "CH"):
			a.ch = true
		case isWord(args[0], "INCR"):
			a.incr = true
		default:
			return a.parsePairs(args)
		}
	}
	return ErrSyntax
}

func (a *zaddition) parsePairs(pairs [][]byte) error {
	switch {
	case len(pairs)%2 != 0:
		return ErrSyntax
	case a.nx && a.xx:
		return errAddXXNX
	case (a.gt && a.nx) || (a.lt && a.nx) || (a.gt && a.lt):
		return errAddGTLTNX
	case a.incr && len(pairs) > 2:
		return errAddIncr
	}
	a.pairs = pairs
	a.scores = make([]float64, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		score, ok := ParseFloat(pairs[i])
		if !ok {
			return ErrNotFloat
		}
		a.scores = append(a.scores, score)
	}
	return nil
}

// decide returns the new score of a member that has the score old, if it exists, and is given
// score. ok is false if the options keep it as it is. The error is for a sum that is NaN.
func (a *zaddition) decide(old float64, exists bool,
	score float64) (result float64, ok bool, err error) {
	if !exists {
		return score, !a.xx, nil
	}
	if a.nx {
		return 0, false, nil
	}
	if a.incr {
		score += old
		if math.IsNaN(score) {
			return 0, false, errScoreNaN
		}
	}
	if (a.lt && score >= old) || (a.gt && score <= old) {
		return 0, false, nil
	}
	return score, true, nil
}

// spend adds the work of parsing long scores, and of placing members of a large set in the order of
// scores.
func (a *zaddition) spend(x *Call, z *keyspace.ZSet) {
	if x.Level < LevelSecond {
		return
	}
	for i := 0; i < len(a.pairs); i += 2 {
		x.spendNumber(len(a.pairs[i]))
	}
	x.Spend(scoredWork * deep(z.Len()) * len(a.scores))
}

// scoredWork is the cost of a position in the order of scores, in units of Env.Work, per doubling
// of a set that exceeds the processor's caches.
const scoredWork = 8

// run changes the sorted set and replies. It opens the set at the first member that really changes.
func (a *zaddition) run(x *Call) error {
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	a.spend(x, z)
	var e *keyspace.Entry
	var added, updated int64
	var result float64
	processed := false
	for i, score := range a.scores {
		name := a.pairs[2*i+1]
		old, exists := z.Score(name)
		score, ok, err := a.decide(old, exists, score)
		if err != nil {
			return err // INCR has a single member: nothing has changed
		}
		if !ok {
			continue
		}
		result, processed = score, true
		if exists && score == old {
			continue
		}
		if e == nil {
			e, z = editZSet(x, x.Args[1])
		}
		z.Put(name, score, old, exists)
		if exists {
			updated++
		} else {
			added++
		}
	}
	switch {
	case e == nil:
	case a.incr:
		x.changed(e, NotifyZSet, "zincr")
	default:
		x.changed(e, NotifyZSet, "zadd")
	}
	switch {
	case a.incr && processed:
		x.Out.Double(result)
	case a.incr:
		x.Out.Null()
	case a.ch:
		x.Out.Int(added + updated)
	default:
		x.Out.Int(added)
	}
	return nil
}

func zadd(x *Call) error {
	var a zaddition
	if err := a.parse(x.Args[2:]); err != nil {
		return err
	}
	return a.run(x)
}

// zincrby is ZADD INCR with one member. As on Redis, an increment that is a word of ZADD's options
// is a syntax error.
func zincrby(x *Call) error {
	a := zaddition{incr: true}
	if err := a.parse(x.Args[2:]); err != nil {
		return err
	}
	return a.run(x)
}

func zrem(x *Call) error {
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	if x.Level >= LevelSecond {
		x.Spend((scoredWork + 3) * deep(z.Len()) * (len(x.Args) - 2)) // out of both orders
	}
	var e *keyspace.Entry
	var removed int64
	for _, name := range x.Args[2:] {
		if _, ok := z.Score(name); !ok {
			continue
		}
		if e == nil {
			e, z = editZSet(x, x.Args[1])
		}
		z.Remove(name)
		removed++
	}
	if e != nil {
		x.changed(e, NotifyZSet, "zrem")
	}
	x.DB().Lacks(x.Args[1])
	x.Out.Int(removed)
	return nil
}

// Costs of removing members from a large sorted set or set, in units of Env.Work.
const (
	removedMember = 8  // one member, below LevelSecond
	removedSingle = 30 // one of few
	keptMember    = 3  // each member, also those that stay, if many go
)

// spendRemoval adds the work of removing some of n members.
func (x *Call) spendRemoval(some, n int) {
	if keyspace.RebuildCheaper(some, n) {
		x.Spend(n * keptMember)
	} else {
		x.Spend(some * removedSingle)
	}
}

// spendSpan adds the work of removing the members of ranks first to last of z.
func spendSpan(x *Call, z *keyspace.ZSet, first, last int) {
	switch {
	case z.Compact():
	case x.Level >= LevelSecond:
		n := last - first + 1
		if x.spendRemoval(n, z.Len()); keyspace.RebuildCheaper(n, z.Len()) {
			x.spendBytesOf(z.NameBytes()) // each is compared with the first and the last
		} else {
			z.Range(first, last, func(s keyspace.Scored) bool {
				x.Spend(len(s.Member) / bytesSpent) // hashed
				return true
			})
		}
	default:
		z.Range(first, last, func(s keyspace.Scored) bool {
			x.Spend(removedMember + len(s.Member)/bytesSpent)
			return true
		})
	}
}

// removeSpan removes the members of ranks first to last, which exist, from the sorted set at key,
// and notifies event.
func removeSpan(x *Call, key []byte, first, last int, event string) {
	e, z := editZSet(x, key)
	z.RemoveRange(first, last)
	x.changed(e, NotifyZSet, event)
}

// zremrange is the handler of ZREMRANGEBYRANK, ZREMRANGEBYSCORE and ZREMRANGEBYLEX, whose names are
// the events.
func zremrange(by rangeBy) Handler {
	return func(x *Call) error {
		b := zbounds{by: by}
		if err := b.parse(x.Args[2], x.Args[3]); err != nil {
			return err
		}
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		b.spend(x, z)
		first, last := b.span(z, false, 0)
		n := max(last-first+1, 0)
		if n > 0 {
			spendSpan(x, z, first, last)
			removeSpan(x, x.Args[1], first, last, x.Spec.Name)
		}
		x.DB().Lacks(x.Args[1])
		x.Out.Int(int64(n))
		return nil
	}
}
