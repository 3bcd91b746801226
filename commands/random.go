// Random choices. They derive from Env.Seed, so every node makes the same.

package commands

import (
	"math"
	"math/bits"
)

// draws is a sequence of random numbers.
type draws struct{ state uint64 }

// draws starts the sequence of this command. The seed moves on by one step, so a script that asks
// twice gets different numbers.
func (x *Call) draws() *draws {
	x.Seed += 0x9e3779b97f4a7c15
	return &draws{state: scramble(x.Seed)}
}

// next returns 64 random bits.
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

// below returns a number from 0 to n-1; n is at least 1.
func (d *draws) below(n int) int {
	hi, _ := bits.Mul64(d.next(), uint64(n)) // the bias is less than n in 2^64
	return int(hi)
}

// distinct returns count different numbers from 0 to n-1 in random order, in time proportional to
// count, which is at most n.
func (d *draws) distinct(n, count int) []int {
	if manyOf(count, n) && n < math.MaxInt32 {
		return d.shuffled(n, count)
	}
	return d.chosen(n, count)
}

// manyOf reports whether walking all n elements is cheaper than finding some of them one by one.
func manyOf(some, n int) bool { return some > n/16 }

// chosen is distinct for a count that is much less than n.
func (d *draws) chosen(n, count int) []int {
	picked := make([]int, count)
	moved := make(map[int]int, count) // a sparse shuffle of 0 … n-1: only what moved
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
	// the number at each position, plus one: 0 is one that has not moved
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

// Bounds on picks with repetition, which Redis does not limit: all clients share a machine that
// runs one command at a time.
const (
	maxPicked      = 1 << 20
	maxPickedBytes = 64 << 20
)

// ErrPickRange is the error for a count of random elements that is out of range.
const ErrPickRange Error = "ERR value is out of range"

// picks returns how many of n elements a count asks for: at most all, or any number with repetition
// if it is negative.
func picks(count int64, n int) int {
	if count < 0 {
		return int(min(-count, maxPicked))
	}
	return int(min(count, int64(n)))
}

// chargePicks charges for picking from n elements, and first refuses a count that is out of range.
func (x *Call) chargePicks(count int64, n int) error {
	if n > 0 && count < -maxPicked {
		return ErrPickRange
	}
	if n > 0 && x.Level >= LevelSecond {
		x.spendPicks(picks(count, n), n)
	}
	return nil
}

// repeated returns count numbers from 0 to n-1, each drawn from all of them. size returns the bytes
// of element i. The error means that there are too many elements or bytes.
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

// randomOptions are the arguments of HRANDFIELD and ZRANDMEMBER after the key.
type randomOptions struct {
	count   int64 // negative: with repetition
	counted bool
	pairs   bool // with values or scores
}

// parseRandom parses a count and the word that asks for pairs.
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
