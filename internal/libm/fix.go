// Numbers of 128 bits: fractions, and floating-point numbers of them.

package libm

import (
	"math"
	"math/bits"
)

// fix is a fraction from 0 up to but not including 1: hi·2^-64 + lo·2^-128. Its sums and
// differences wrap around.
type fix struct{ hi, lo uint64 }

func (a fix) add(b fix) fix {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return fix{a.hi + b.hi + carry, lo}
}

func (a fix) sub(b fix) fix {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return fix{a.hi - b.hi - borrow, lo}
}

// negative returns 1-a, or 0 for 0.
func (a fix) negative() fix { return fix{}.sub(a) }

func (a fix) less(b fix) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// mul returns a·b, at most 3·2^-128 too small.
func (a fix) mul(b fix) fix {
	hi, lo := bits.Mul64(a.hi, b.hi)
	x, _ := bits.Mul64(a.hi, b.lo)
	y, _ := bits.Mul64(a.lo, b.hi)
	lo, carry := bits.Add64(lo, x, 0)
	hi += carry
	lo, carry = bits.Add64(lo, y, 0)
	return fix{hi + carry, lo}
}

// times returns a·n, the fraction and the integer.
func (a fix) times(n uint64) (f fix, whole uint64) {
	carry, lo := bits.Mul64(a.lo, n)
	whole, hi := bits.Mul64(a.hi, n)
	hi, c := bits.Add64(hi, carry, 0)
	return fix{hi, lo}, whole + c
}

func (a fix) left(n uint) fix {
	if n >= 64 {
		return fix{a.lo << (n - 64), 0}
	}
	return fix{a.hi<<n | a.lo>>(64-n), a.lo << n}
}

func (a fix) right(n uint) fix {
	if n >= 64 {
		return fix{0, a.hi >> (n - 64)}
	}
	return fix{a.hi >> n, a.lo>>n | a.hi<<(64-n)}
}

// zeros returns the number of zero bits before the first other one.
func (a fix) zeros() uint {
	if a.hi == 0 {
		return 64 + uint(bits.LeadingZeros64(a.lo))
	}
	return uint(bits.LeadingZeros64(a.hi))
}

// quotient returns a/b, rounded down, and whether that is exact, for a < b and b >= 1/2.
func (a fix) quotient(b fix) (q fix, exact bool) {
	q.hi, a = a.digit(b)
	q.lo, a = a.digit(b)
	return q, a == fix{}
}

// digit is a step of the long division in base 2^64: the first digit of a/b and the rest, times
// 2^64. See Knuth, The Art of Computer Programming, volume 2, 4.3.1, algorithm D.
func (a fix) digit(b fix) (q uint64, rest fix) {
	var r, over uint64 // the rest of a division by b.hi alone
	if a.hi >= b.hi {
		q = math.MaxUint64
		r, over = bits.Add64(a.lo, b.hi, 0)
	} else {
		q, r = bits.Div64(a.hi, a.lo, b.hi)
	}
	hi, lo := bits.Mul64(q, b.lo)
	lo, borrow := bits.Sub64(0, lo, 0)
	hi, borrow = bits.Sub64(r, hi, borrow)
	for borrow > over {
		q--
		var carry uint64
		lo, carry = bits.Add64(lo, b.lo, 0)
		hi, carry = bits.Add64(hi, b.hi, carry)
		borrow -= carry
	}
	return q, fix{hi, lo}
}

// root returns √a for a >= 1/4, by Newton's method.
func (a fix) root() fix {
	if a.hi == math.MaxUint64 { // √(1-e) is 1-e/2, or as near to 1 as a fraction is
		half := a.negative().right(1)
		if half == (fix{}) {
			half.lo = 1
		}
		return half.negative()
	}
	s := uint64(math.MaxUint64)
	if f := math.Sqrt(float64(a.hi)); f < 1<<32 {
		s = uint64(float64(f * (1 << 32)))
	}
	s = max(s, a.hi+1) // √a > a
	q, _ := bits.Div64(a.hi, a.lo, s)
	s = max(s/2+q/2, a.hi+1)
	x := fix{s, 0}
	wide, _ := a.quotient(x)
	return x.right(1).add(wide.right(1))
}

// series returns c0 + c1·x + c2·x² …, or with alternating signs. In a table of coefficients those
// without high word stand last, and need no more than one word.
func series(c []fix, x fix, alternate bool) fix {
	i := len(c) - 1
	low := c[i].lo
	for ; i > 0 && c[i-1].hi == 0; i-- {
		product, _ := bits.Mul64(low, x.hi)
		if alternate {
			product = -product
		}
		low = c[i-1].lo + product
	}
	sum := fix{0, low}
	for ; i > 0; i-- {
		if product := sum.mul(x); alternate {
			sum = c[i-1].sub(product)
		} else {
			sum = c[i-1].add(product)
		}
	}
	return sum
}

// num is ±m·2^exp. It is normal if m >= 1/2, and only normal ones are compared, divided and
// rounded.
type num struct {
	m   fix
	exp int
	neg bool
}

// split returns a positive number, or the magnitude of a negative one, without its sign.
func split(x float64) num {
	b := math.Float64bits(x)
	m, exp := b&(1<<52-1), int(b>>52&0x7ff)
	if exp == 0 {
		n := bits.LeadingZeros64(m)
		return num{m: fix{m << n, 0}, exp: -1010 - n}
	}
	return num{m: fix{(m | 1<<52) << 11, 0}, exp: exp - 1022}
}

// normal returns a as a normal number; it is not 0.
func (a num) normal() num {
	n := a.m.zeros()
	a.m, a.exp = a.m.left(n), a.exp-int(n)
	return a
}

// fraction returns the magnitude of a, which is below 1.
func (a num) fraction() fix { return a.m.right(uint(-a.exp)) }

// over returns a/b.
func (a num) over(b num) num {
	q := num{exp: a.exp - b.exp, neg: a.neg != b.neg}
	if !a.m.less(b.m) {
		a.m = a.m.right(1)
		q.exp++
	}
	q.m, _ = a.m.quotient(b.m)
	return q.normal()
}

// slack is by how much a mantissa may be wrong, in units of 2^-128.
const slack = 1 << 16

// round returns a as the nearest float64. sure is false if another number within slack, in the last
// place of a's mantissa, rounds differently.
func (a num) round(slack uint64) (z float64, sure bool) {
	drop := uint(128 - 53) // bits after the last that z has
	if a.exp < -1021 {     // z is below the normal numbers
		drop = uint(128 - 53 - 1021 - a.exp)
	}
	switch {
	case a.exp > 1024:
		return a.signed(math.MaxUint64), true
	case drop > 128: // below half of the smallest number, but maybe by little
		return a.signed(0), drop > 129 || a.m.hi < math.MaxUint64 || -a.m.lo > slack
	}
	kept := a.m.right(drop)
	rest, half := a.m.sub(kept.left(drop)), fix{0, 1}.left(drop-1)
	z64, distance := kept.lo, rest.sub(half)
	switch {
	case rest.less(half):
		distance = half.sub(rest)
	case rest != half || z64&1 != 0: // a tie goes to the even number
		z64++
	}
	if drop == 128-53 {
		z64 += uint64(a.exp+1021) << 52 // the first bit of kept adds one to the exponent
	}
	return a.signed(z64), distance.hi > 0 || distance.lo > slack
}

const infinity = 0x7ff << 52 // as bits

// signed returns the number whose magnitude has these bits, infinity if they are too many.
func (a num) signed(magnitude uint64) float64 {
	magnitude = min(magnitude, infinity)
	if a.neg {
		magnitude |= 1 << 63
	}
	return math.Float64frombits(magnitude)
}
