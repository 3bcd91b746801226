// ZRANGE in all its forms, the older commands that are forms of it, and ZRANGESTORE.

package commands

import (
	"math/bits"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of options that do not go together.
const (
	errLimitByRank Error = "ERR syntax error, LIMIT is only supported in combination with " +
		"either BYSCORE or BYLEX"
	errWithScoresByLex Error = "ERR syntax error, WITHSCORES not supported in combination with " +
		"BYLEX"
)

// zrangeForm is what the command's name determines. For ZRANGE and ZRANGESTORE that is nothing:
// only they have BYSCORE, BYLEX and REV.
type zrangeForm struct {
	by      rangeBy
	fixed   bool // by and reverse are given
	reverse bool
	store   bool // ZRANGESTORE, which has no WITHSCORES
}

// zselection is a parsed range with its options.
type zselection struct {
	bounds     zbounds
	reverse    bool
	withScores bool
	offset     int64 // members to skip; negative: all
	count      int64 // members to return after that; negative: all
}

// parse parses the arguments from the lower bound on: start stop [options].
func (s *zselection) parse(form zrangeForm, args [][]byte) error {
	s.bounds.by, s.reverse, s.count = form.by, form.reverse, -1
	if err := s.parseOptions(form, args[2:]); err != nil {
		return err
	}
	by := s.bounds.by
	if s.count != -1 && by == byRank {
		return errLimitByRank
	}
	if s.withScores && by == byLex {
		return errWithScoresByLex
	}
	if s.reverse && by != byRank {
		return s.bounds.parse(args[1], args[0])
	}
	return s.bounds.parse(args[0], args[1])
}

func (s *zselection) parseOptions(form zrangeForm, args [][]byte) error {
	bySet := false
	for ; len(args) > 0; args = args[1:] {
		switch {
		case !form.store && isWord(args[0], "WITHSCORES"):
			s.withScores = true
		case len(args) >= 3 && isWord(args[0], "LIMIT"):
			var ok [2]bool
			s.offset, ok[0] = ParseInt(args[1])
			s.count, ok[1] = ParseInt(args[2])
			if !ok[0] || !ok[1] {
				return ErrNotInteger
			}
			args = args[2:]
		case !form.fixed && !s.reverse && isWord(args[0], "REV"):
			s.reverse = true
		case !form.fixed && !bySet && isWord(args[0], "BYLEX"):
			s.bounds.by, bySet = byLex, true
		case !form.fixed && !bySet && isWord(args[0], "BYSCORE"):
			s.bounds.by, bySet = byScore, true
		default:
			return ErrSyntax
		}
	}
	return nil
}

// ranks returns the rank of the first member of the result, that of the last, which is lower in a
// reverse range, and their number. If the number is 0, the ranks mean nothing.
func (s *zselection) ranks(x *Call, z *keyspace.ZSet) (from, to, n int) {
	skip := 0
	if s.bounds.by != byRank {
		if s.offset < 0 {
			return 0, 0, 0
		}
		skip = int(min(s.offset, int64(z.Len())))
	}
	s.bounds.spend(x, z)
	first, last := s.bounds.span(z, s.reverse, skip)
	n = max(last-first+1, 0)
	if s.count >= 0 {
		n = int(min(int64(n), s.count))
	}
	if s.reverse {
		return last, last - n + 1, n
	}
	return first, first + n - 1, n
}

// zrange is the handler of ZRANGE and of the older commands, as form says.
func zrange(form zrangeForm) Handler {
	return func(x *Call) error {
		var s zselection
		if err := s.parse(form, x.Args[2:]); err != nil {
			return err
		}
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		from, to, n := s.ranks(x, z)
		nested := s.withScores && x.Tx.Proto == 3
		if s.withScores && !nested {
			x.Out.Array(2 * n)
		} else {
			x.Out.Array(n)
		}
		if n == 0 {
			return nil
		}
		z.Range(from, to, func(m keyspace.Scored) bool {
			if s.withScores {
				replyScored(x, m, nested)
			} else {
				x.Out.BulkString(m.Member)
			}
			return true
		})
		return nil
	}
}

// What one member that ZRANGESTORE puts costs, in units of Env.Work.
const (
	storedMember = 16 // below LevelSecond
	copiedMember = 10 // if only a part of the source is put
	sharedMember = 2  // if all of it is: the copy shares its trees until one is changed
)

// zrangestore overwrites the destination. An empty range removes it.
func zrangestore(x *Call) error {
	var s zselection
	if err := s.parse(zrangeForm{store: true}, x.Args[3:]); err != nil {
		return err
	}
	dst := x.Args[1]
	src, err := findZSet(x, x.Args[2])
	if err != nil {
		return err
	}
	from, to, n := s.ranks(x, src)
	// The source may be the destination: the new set is complete before the old one is replaced.
	z := s.result(x, src, from, to, n)
	storeCollection(x, dst, z, NotifyZSet, "zrangestore")
	x.Out.Int(int64(n))
	return nil
}

// result returns a set of the n members of src with the ranks from to to. Redis adds the members
// one by one and knows their number in advance only by rank. So until the result has the large
// form, it stores 0 for -0.
func (s *zselection) result(x *Call, src *keyspace.ZSet, from, to, n int) *keyspace.ZSet {
	if n == 0 {
		return keyspace.NewZSet()
	}
	// the walk looks for the first member among all, and a part is chosen by comparing names
	if n == src.Len() {
		x.spendBytesOf(len(src.At(from).Member) * bits.Len(uint(n)))
	} else {
		x.spendBytesOf(src.NameBytes())
	}
	all := make([]keyspace.Scored, 0, n)
	small, zeros := s.bounds.by != byRank || keyspace.FitsSmall(n, 0), false
	src.Range(from, to, func(m keyspace.Scored) bool {
		switch {
		case x.Level < LevelSecond:
			x.Spend(storedMember + len(m.Member)/32) // hashed and copied twice
		case n == src.Len():
			x.Spend(sharedMember)
		default:
			x.Spend(copiedMember + len(m.Member)/32)
		}
		if small = small && keyspace.FitsSmall(len(all)+1, len(m.Member)); small && m.Score == 0 {
			m.Score, zeros = 0, true // not -0
		}
		all = append(all, m)
		return true
	})
	if from > to {
		slices.Reverse(all)
	}
	if zeros {
		return keyspace.ZSetOf(all)
	}
	return x.DB().Part(src, min(from, to), max(from, to), all)
}
