// Commands that read members, scores, ranks and counts: ZCARD, ZSCORE, ZRANK, ZCOUNT, ZSCAN,
// ZRANDMEMBER.

package commands

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/coordd/coordd/commands/keyspace"
)

func zcard(x *Call) error {
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Int(int64(z.Len()))
	return nil
}

func zscore(x *Call) error {
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	replyScore(x, z, x.Args[2])
	return nil
}

func zmscore(x *Call) error {
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	x.Out.Array(len(x.Args) - 2)
	for _, name := range x.Args[2:] {
		replyScore(x, z, name)
	}
	return nil
}

func replyScore(x *Call, z *keyspace.ZSet, name []byte) {
	if score, ok := z.Score(name); ok {
		x.Out.Double(score)
		return
	}
	x.Out.Null()
}

// zrank is the handler of ZRANK or, if reverse, of ZREVRANK.
func zrank(reverse bool) Handler {
	return func(x *Call) error {
		withScore := len(x.Args) > 3
		switch {
		case len(x.Args) > 4:
			return x.Spec.ArityError()
		case withScore && !isWord(x.Args[3], "WITHSCORE"):
			return ErrSyntax
		}
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		x.Spend(bits.Len(uint(z.Len())))
		rank, ok := z.Rank(x.Args[2])
		switch {
		case !ok && withScore:
			x.Out.NullArray()
			return nil
		case !ok:
			x.Out.Null()
			return nil
		case reverse:
			rank = z.Len() - 1 - rank
		}
		if !withScore {
			x.Out.Int(int64(rank))
			return nil
		}
		x.Out.Array(2)
		x.Out.Int(int64(rank))
		replyScore(x, z, x.Args[2])
		return nil
	}
}

// zcount is the handler of ZCOUNT and ZLEXCOUNT.
func zcount(by rangeBy) Handler {
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
		x.Out.Int(int64(max(last-first+1, 0)))
		return nil
	}
}

func zscan(x *Call) error {
	return scanElements(x, findZSet, func(z *keyspace.ZSet, s *elementScan, cursor uint64) uint64 {
		compact := z.Compact()
		return z.Scan(cursor, s.count, func(m keyspace.Scored) {
			if s.matches(m.Member) {
				s.keep(m.Member, []byte(scannedScore(m.Score, compact)))
			}
		})
	})
}

// scannedScore formats a score as ZSCAN does. Redis stores the integral scores of a small set as
// integers, and only ZSCAN shows them so: 1000000000000000000 instead of 1e+18.
func scannedScore(score float64, compact bool) string {
	if compact && math.Abs(score) <= math.MaxInt64/2 && score == math.Trunc(score) {
		return strconv.FormatInt(int64(score), 10)
	}
	return FormatFloat(score)
}

// zrandmember returns one random member, or count of them: different ones, or with repetition if
// count is negative.
func zrandmember(x *Call) error {
	o, err := x.parseRandom("WITHSCORES")
	if err != nil {
		return err
	}
	z, err := findZSet(x, x.Args[1])
	if err != nil {
		return err
	}
	if !o.counted {
		if z.Len() == 0 {
			x.Out.Null()
			return nil
		}
		x.Out.BulkString(z.At(x.draws().below(z.Len())).Member)
		return nil
	}
	picked, err := pickScored(x, z, o.count)
	if err != nil {
		return err
	}
	if o.pairs {
		replyAllScored(x, picked, x.Tx.Proto == 3)
		return nil
	}
	x.Out.Array(len(picked))
	for _, s := range picked {
		x.Out.BulkString(s.Member)
	}
	return nil
}

// pickScored picks members at random as ZRANDMEMBER counts them. As on Redis, the whole set comes
// in order, the highest score first.
func pickScored(x *Call, z *keyspace.ZSet, count int64) ([]keyspace.Scored, error) {
	n := z.Len()
	if n == 0 {
		return nil, nil
	}
	if err := x.chargePicks(count, n); err != nil {
		return nil, err
	}
	if count >= int64(n) {
		if x.Level < LevelSecond {
			x.Spend(n * bits.Len(uint(n)))
		}
		return scoredSpan(z, n-1, 0), nil
	}
	at := scoredAt(z, picks(count, n))
	var ranks []int
	if count < 0 {
		var err error
		if ranks, err = x.draws().repeated(n, -count, func(i int) int {
			return len(at(i).Member)
		}); err != nil {
			return nil, err
		}
	} else {
		ranks = x.draws().distinct(n, int(count))
	}
	if x.Level < LevelSecond {
		x.Spend(len(ranks) * bits.Len(uint(n)))
	}
	picked := make([]keyspace.Scored, len(ranks))
	for i, rank := range ranks {
		picked[i] = at(rank)
	}
	return picked, nil
}

// scoredSpan returns the members of ranks first to last, which exist, in reverse if first > last.
func scoredSpan(z *keyspace.ZSet, first, last int) []keyspace.Scored {
	all := make([]keyspace.Scored, 0, max(first-last, last-first)+1)
	z.Range(first, last, func(s keyspace.Scored) bool {
		all = append(all, s)
		return true
	})
	return all
}

// scoredAt returns a function that returns members of z, which is not empty, by rank, efficient for
// that many calls.
func scoredAt(z *keyspace.ZSet, calls int) func(rank int) keyspace.Scored {
	if !manyOf(calls, z.Len()) {
		return z.At
	}
	var all []keyspace.Scored
	return func(rank int) keyspace.Scored {
		if all == nil {
			all = scoredSpan(z, 0, z.Len()-1)
		}
		return all[rank]
	}
}
