// Logarithms.

package libm

import (
	"math"
	"math/bits"
)

// Log returns the natural logarithm of x.
func Log(x float64) (z float64, hard bool) {
	if z, special := specialLog(x); special {
		return z, false
	}
	return settle(split(x).log(), x, hardLog)
}

// Log10 returns the decimal logarithm of x.
func Log10(x float64) (z float64, hard bool) {
	if z, special := specialLog(x); special {
		return z, false
	}
	// The other logarithms are irrational.
	for n := max(split(x).exp-1, 0) * 1233 >> 12; n < len(powersOf10) && powersOf10[n] <= x; n++ {
		if powersOf10[n] == x {
			return float64(n), false
		}
	}
	return settle(split(x).log10(), x, hardLog10)
}

func (a num) log10() num {
	l := a.log()
	l.m, l.exp = l.m.mul(inverseLog10), l.exp-1
	return l.normal()
}

// powersOf10 are those that are numbers.
var powersOf10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12,
	1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

func specialLog(x float64) (z float64, special bool) {
	switch {
	case x != x, x > math.MaxFloat64:
		return x, true
	case x < 0:
		return math.NaN(), true
	case x == 0:
		return math.Inf(-1), true
	case x == 1:
		return 0, true
	}
	return 0, false
}

// log returns ln a for a number with no more than 53 bits, positive and not 1. It is wrong by less
// than 2^-122 of itself.
//
// a is m·2^e with m from 1 up to 2. A table has a number near 1/m, another one near the inverse of
// their product; what is left is near 1, exact, and its logarithm is a short series.
func (a num) log() num {
	e, m := a.exp-1, int64(a.m.hi>>11)
	first := m >> 46 & 63
	z := m*int64(logFactor[first]) - 1<<60 // m·factor - 1, in units of 2^-60
	second := (z + 1<<47) >> 48
	z = (z-second<<48)<<12 - z*second // (1+z)(1 - second/2^12) - 1, in units of 2^-72
	rest := log1p(z)
	if near := e == 0 && first == 0 || e == -1 && first == len64-1; near && second == 0 {
		return rest // precise, however small
	}
	sum := word3{log2Words[0] >> 12, log2Words[1]>>12 | log2Words[0]<<52,
		log2Words[2]>>12 | log2Words[1]<<52}.times(e)
	sum = sum.add(logFirst[first]).add(logSecond[second+len64])
	if z != 0 {
		sum = sum.add(rest.word3())
	}
	return sum.num()
}

// len64 is the number of intervals of the tables.
const len64 = 64

// log1p returns ln(1+z) for z in units of 2^-72, |z| < 2^61.
func log1p(z int64) num {
	if z == 0 {
		return num{}
	}
	size := uint64(z)
	if z < 0 {
		size = -size
	}
	scaled := fix{size << 3, 0} // |z|·2^11
	e := scaled.mul(series(logSeries[:], scaled, z > 0))
	n := bits.LeadingZeros64(size)
	m := fix{size << n, 0}
	e = m.mul(e).right(1) // ln(1+z) = z(1-e), or z(1+e) below 0
	if m = m.right(1); z > 0 {
		m = m.sub(e)
	} else {
		m = m.add(e)
	}
	return num{m: m, exp: -7 - n, neg: z < 0}.normal()
}

// word3 is a number of 192 bits in two's complement, of which 180 are its fraction; the first word
// is the highest.
type word3 [3]uint64

func (a word3) add(b word3) word3 {
	low, carry := bits.Add64(a[2], b[2], 0)
	mid, carry := bits.Add64(a[1], b[1], carry)
	return word3{a[0] + b[0] + carry, mid, low}
}

func (a word3) negative() word3 {
	low, borrow := bits.Sub64(0, a[2], 0)
	mid, borrow := bits.Sub64(0, a[1], borrow)
	return word3{-a[0] - borrow, mid, low}
}

// times returns a·n for |n| < 2048.
func (a word3) times(n int) word3 {
	size := uint64(max(n, -n))
	hi, low := bits.Mul64(a[2], size)
	mid := a[1] * size
	top, _ := bits.Mul64(a[1], size)
	mid, carry := bits.Add64(mid, hi, 0)
	p := word3{a[0]*size + top + carry, mid, low}
	if n < 0 {
		return p.negative()
	}
	return p
}

// word3 returns a number below 2^-11.
func (a num) word3() word3 {
	w := word3{0, a.m.hi, a.m.lo}
	if n := a.exp + 180 - 128; n >= 0 {
		w = word3{w[1] >> (64 - n), w[1]<<n | w[2]>>(64-n), w[2] << n}
	} else {
		f := a.m.right(uint(-n))
		w = word3{0, f.hi, f.lo}
	}
	if a.neg {
		return w.negative()
	}
	return w
}

// num returns a number that is not 0.
func (a word3) num() num {
	neg := a[0]>>63 != 0
	if neg {
		a = a.negative()
	}
	exp := 12
	for a[0] == 0 {
		a, exp = word3{a[1], a[2]}, exp-64
	}
	n := uint(bits.LeadingZeros64(a[0]))
	f := fix{a[0], a[1]}.left(n)
	f.lo |= a[2] >> (64 - n)
	return num{m: f, exp: exp - int(n), neg: neg}
}
