// This file contains the random choices of commands. They come from Env.Seed, so every node makes
// the same.

package commands

import (
	"math"
	"math/bits"
)

// draws is a sequence of random numbers.
type draws struct{ state uint64 }

// draws starts the sequence of this command. The seed goes on by one step, so that a script that
// asks twice is not answered alike.
func (x *Call) draws() *draws {
	x.Seed += 0x9e3779b97f4a7c15
	return &draws{state: scramble(x.Seed)}
}

// next is a number of 64 random bits.
func (d *draws) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	return scramble(d.state)
}

// scramble spreads a counter over all bits: the output function of SplitMix64 (Steele, Lea, Flood:
// Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below is a number from 0 to n-1; n is 1 or more.
func (d *draws) below(n int) int {
	hi, _ := bits.Mul64(d.next(), uint64(n)) // uneven by less than n in 2^64
	return int(hi)
}

// distinct gives count different numbers from 0 to n-1 in random order, count being n at most, in
// time proportional to count.
func (d *draws) distinct(n, count int) []int {
	if manyOf(count, n) && n < math.MaxInt32 {
		return d.shuffled(n, count)
	}
	return d.chosen(n, count)
}

// manyOf reports whether to go over all n elements rather than to look for some one by one.
func manyOf(some, n int) bool { return some > n/16 }

// chosen is distinct for a count that is much less than n.
func (d *draws) chosen(n, count int) []int {
	picked := make([]int, count)
	moved := make(map[int]int, count) // a shuffle of 0 … n-1 of which only what was moved is kept
	at := func(i int) int {
		if j, ok := moved[i]; ok {
			return j
		}
		return i
	}
	for i := range picked {
		j := i + d.below(n-i)
		picked[i] = at(j)
		moved[j] = at(i)
	}
	return picked
}

// shuffled is distinct, with the same result, for a count that is not much less than n.
func (d *draws) shuffled(n, count int) []int {
	picked := make([]int, count)
	// the number in each position, and one more: 0 is one that was not moved
	moved := make([]int32, n)
	at := func(i int) int {
		if j := moved[i]; j != 0 {
			return int(j) - 1
		}
		return i
	}
	for i := range picked {
		j := i + d.below(n-i)
		picked[i] = at(j)
		moved[j] = int32(at(i)) + 1
	}
	return picked
}

// What may be picked with repetition in one call, which Redis does not bound: all clients share a
// machine that runs one command at a time.
const (
	maxPicked      = 1 << 20
	maxPickedBytes = 64 << 20
)

// ErrPickRange is the error of a count of random elements that is out of range.
const ErrPickRange Error = "ERR value is out of range"

// picks is how many of n elements a count asks for: all that there are at most, or with repetition
// where it is negative.
func picks(count int64, n int) int {
	if count < 0 {
		return int(min(-count, maxPicked))
	}
	return int(min(count, int64(n)))
}

// chargePicks charges for picking from n elements as a count says, and refuses a count that is out
// of range before.
func (x *Call) chargePicks(count int64, n int) error {
	if n > 0 && count < -maxPicked {
		return ErrPickRange
	}
	if n > 0 && x.Level >= LevelBounded {
		x.spendPicks(picks(count, n), n)
	}
	return nil
}

// repeated gives count numbers from 0 to n-1, each drawn from all of them. size is the bytes of
// element i; the error says that the elements are too many or too large together.
func (d *draws) repeated(n int, count int64, size func(i int) int) ([]int, error) {
	if count > maxPicked {
		return nil, ErrPickRange
	}
	picked := make([]int, count)
	total := 0
	for i := range picked {
		picked[i] = d.below(n)
		if total += size(picked[i]); total > maxPickedBytes {
			return nil, ErrPickRange
		}
	}
	return picked, nil
}

// randomOptions are the arguments of HRANDFIELD and ZRANDMEMBER behind the key.
type randomOptions struct {
	count   int64 // negative: with repetition
	counted bool
	pairs   bool // values or scores are wanted too
}

// parseRandom reads a count and, behind it, the word that asks for pairs.
func (x *Call) parseRandom(word string) (o randomOptions, err error) {
	if len(x.Args) == 2 {
		return o, nil
	}
	count, ok := ParseInt(x.Args[2])
	o = randomOptions{count: count, counted: true, pairs: len(x.Args) == 4 &&
		isWord(x.Args[3], word)}
	switch {
	case !ok:
		return o, ErrNotInteger
	case count == math.MinInt64:
		return o, outOfRange(-math.MaxInt64, math.MaxInt64)
	case len(x.Args) > 3 && !o.pairs:
		return o, ErrSyntax
	case o.pairs && (count < -math.MaxInt64/2 || count > math.MaxInt64/2):
		return o, ErrPickRange
	}
	return o, nil
}
