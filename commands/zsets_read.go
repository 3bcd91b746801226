package commands

// This file holds the commands that read members, scores, ranks and counts of sorted sets.

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

// zrank is the handler of ZRANK, or with reverse of ZREVRANK.
func zrank(reverse bool) Handler {
	return func(x *Call) error {
		z, err := findZSet(x, x.Args[1])
		if err != nil {
			return err
		}
		x.Spend(bits.Len(uint(z.Len())))
		rank, ok := z.Rank(x.Args[2])
		if !ok {
			x.Out.Null()
			return nil
		}
		if reverse {
			rank = z.Len() - 1 - rank
		}
		x.Out.Int(int64(rank))
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
			if s.take(m.Member) {
				s.keep(m.Member, scannedScore(m.Score, compact))
			}
		})
	})
}

// scannedScore writes a score as ZSCAN does. Redis keeps the integral scores of a small set as integers, and here alone
// writes them as it keeps them: 1000000000000000000 in place of 1e+18.
func scannedScore(score float64, compact bool) string {
	if compact && math.Abs(score) <= math.MaxInt64/2 && score == math.Trunc(score) {
		return strconv.FormatInt(int64(score), 10)
	}
	return FormatFloat(score)
}
