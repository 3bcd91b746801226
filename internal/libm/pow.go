// Powers.

package libm

import (
	"math"
	"math/bits"
)

// Pow returns x^y.
func Pow(x, y float64) (z float64, hard bool) {
	z, sure := QuickPow(x, y)
	if !sure {
		z = hardPow(math.Abs(x), y)
		if x < 0 && isOdd(y) {
			z = -z
		}
	}
	return z, !sure
}

// QuickPow is Pow, unless that is hard.
func QuickPow(x, y float64) (z float64, ok bool) {
	if z, special := specialPow(x, y); special {
		return z, true
	}
	neg := x < 0 && isOdd(y)
	x = math.Abs(x)
	switch y {
	case 2: // what one operation does, it rounds
		return float64(x * x), true
	case 0.5:
		return math.Sqrt(x), true
	case -1:
		return 1 / math.Copysign(x, sign(neg)), true
	}
	if p, exact := exactPower(x, y); exact {
		p.neg = neg
		z, _ = p.round(0)
		return z, true
	}
	p := power(x, y)
	p.neg = neg
	return p.round(slack)
}

// power returns x^y for positive x other than 1, or what rounds like it.
func power(x, y float64) num {
	a, b := split(x).log(), split(y)
	a = num{m: a.m.mul(b.m), exp: a.exp + b.exp, neg: a.neg != (y < 0)}.normal()
	switch {
	case a.exp > 10 && a.neg:
		return num{m: fix{1 << 63, 0}, exp: -2000}
	case a.exp > 10:
		return num{m: fix{1 << 63, 0}, exp: 2000}
	case a.exp < -56:
		return num{m: fix{1 << 63, 0}, exp: 1}
	}
	return a.exponential()
}

func sign(neg bool) float64 {
	if neg {
		return -1
	}
	return 1
}

// specialPow has the cases of C's Annex F.9.4.4 that are no power of a finite number.
func specialPow(x, y float64) (z float64, special bool) {
	switch {
	case y == 0, x == 1:
		return 1, true
	case x != x || y != y:
		return math.NaN(), true
	case math.IsInf(y, 0):
		switch size := math.Abs(x); {
		case size == 1:
			return 1, true
		case (size > 1) == (y > 0):
			return math.Inf(1), true
		}
		return 0, true
	case x == 0, math.IsInf(x, 0):
		z = 0
		if (x == 0) == (y < 0) {
			z = math.Inf(1)
		}
		if math.Signbit(x) && isOdd(y) {
			z = -z
		}
		return z, true
	case x < 0 && math.Trunc(y) != y:
		return math.NaN(), true
	}
	return 0, false
}

// isOdd reports whether y is an odd integer.
func isOdd(y float64) bool {
	return math.Abs(y) < 1<<53 && math.Trunc(y) == y && int64(y)&1 != 0
}

// exactPower returns x^y if that has no more than 64 bits, for positive x. No other power is a
// number or lies in the middle of two: such a middle has 54 bits.
//
// x is m·2^e and y is n·2^-k, with odd m and n. A power with negative n is exact if m is 1, and one
// with positive k if m and 2^e are squares, as often as k says.
func exactPower(x, y float64) (p num, exact bool) {
	a := split(x)
	shift := bits.TrailingZeros64(a.m.hi)
	m, e := a.m.hi>>shift, a.exp-64+shift
	b := split(y)
	shift = bits.TrailingZeros64(b.m.hi)
	n, k := b.m.hi>>shift, 64-shift-b.exp
	if k < -12 { // |y| >= 2^12
		return num{}, false
	}
	for ; k > 0; k-- {
		root := uint64(math.Sqrt(float64(m)))
		if root*root != m || e&1 != 0 || e == 0 && m == 1 {
			return num{}, false
		}
		m, e = root, e/2
	}
	if n >= 1<<12 {
		return num{}, false
	}
	if n <<= -k; m != 1 && (y < 0 || n > 40) {
		return num{}, false
	}
	power := uint64(1)
	for range n {
		if m == 1 {
			break
		}
		hi, lo := bits.Mul64(power, m)
		if hi != 0 {
			return num{}, false
		}
		power = lo
	}
	if e *= int(n); y < 0 {
		e = -e
	}
	return num{m: fix{power, 0}, exp: e + 64}.normal(), true
}
