// The inverse functions of sine, cosine and tangent.

package libm

import (
	"math"
	"math/bits"
)

// Asin returns the angle from -π/2 to π/2 whose sine is x.
func Asin(x float64) (z float64, hard bool) {
	switch a := math.Abs(x); {
	case x != x, a < tiny:
		return x, false
	case a > 1:
		return math.NaN(), false
	case a == 1:
		return math.Copysign(math.Pi/2, x), false
	}
	return settle(arcsine(x), x, hardAsin)
}

func arcsine(x float64) num {
	a := angle(split(x), other(x))
	a.neg = x < 0
	return a
}

// Acos returns the angle from 0 to π whose cosine is x.
func Acos(x float64) (z float64, hard bool) {
	switch a := math.Abs(x); {
	case x != x:
		return x, false
	case a > 1:
		return math.NaN(), false
	case x == 1:
		return 0, false
	case x == -1:
		return math.Pi, false
	case x == 0:
		return math.Pi / 2, false
	}
	return settle(arccosine(x), x, hardAcos)
}

func arccosine(x float64) num {
	a := split(x)
	a.neg = x < 0
	return angle(other(x), a)
}

// other returns √(1-x²) for 0 < |x| < 1.
func other(x float64) num {
	a := split(x)
	var square fix
	square.hi, square.lo = bits.Mul64(a.m.hi, a.m.hi)
	rest := square.right(uint(-2 * a.exp)).negative()
	if rest == (fix{}) {
		return num{m: fix{1 << 63, 0}, exp: 1}
	}
	n := rest.zeros() &^ 1
	return num{m: rest.left(n).root(), exp: -int(n) / 2}.normal()
}

// Atan returns the angle from -π/2 to π/2 whose tangent is x.
func Atan(x float64) (z float64, hard bool) {
	if x != x || math.Abs(x) < tiny {
		return x, false
	}
	return Atan2(x, 1)
}

// Atan2 returns the angle from -π to π of the point (x, y).
func Atan2(y, x float64) (z float64, hard bool) {
	if z, special := specialAtan2(math.Abs(y), x); special {
		return math.Copysign(z, y), false
	}
	if a, b := split(y), split(x); x > 0 && b.exp-a.exp > 100 {
		return math.Copysign(belowQuotient(a, b), y), false
	}
	z, sure := arctangent(y, x).round(slack)
	if !sure {
		z = hardAtan2(y, x)
	}
	return z, !sure
}

func arctangent(y, x float64) num {
	a, b := split(y), split(x)
	b.neg = x < 0
	c := angle(a, b)
	c.neg = y < 0
	return c
}

// specialAtan2 has the cases of C's Annex F.9.1.4, for y that is not negative.
func specialAtan2(y, x float64) (z float64, special bool) {
	switch inf := math.IsInf(x, 0); {
	case x != x || y != y:
		return math.NaN(), true
	case math.IsInf(y, 1) && inf && x > 0:
		return math.Pi / 4, true
	case math.IsInf(y, 1) && inf:
		return 3 * math.Pi / 4, true
	case y == 0 && !math.Signbit(x), inf && x > 0:
		return 0, true
	case y == 0, inf:
		return math.Pi, true
	case x == 0, math.IsInf(y, 1):
		return math.Pi / 2, true
	}
	return 0, false
}

// belowQuotient returns what is below a/b by less than a 2^180th of it, for numbers of 53 bits:
// their angle if a is much smaller. Below the normal numbers it may be just below the middle of
// two.
func belowQuotient(a, b num) float64 {
	q := num{exp: a.exp - b.exp}
	if !a.m.less(b.m) {
		a.m, q.exp = a.m.right(1), q.exp+1
	}
	m, exact := a.m.quotient(b.m)
	if exact {
		m = m.sub(fix{0, 1})
	}
	q.m = m
	if m.hi>>63 == 0 { // just below one half
		q.m, q.exp = fix{math.MaxUint64, math.MaxUint64}, q.exp-1
	}
	z, _ := q.round(0)
	return z
}

// angle returns the angle from 0 to π of the point (x, y), y positive and x not 0.
func angle(y, x num) num {
	if x.neg || x.exp < y.exp || x.exp == y.exp && x.m.less(y.m) {
		return obtuse(y, x)
	}
	return acute(y, x)
}

// obtuse is angle for what is more than π/4, from the angle to the nearest axis.
func obtuse(y, x num) num {
	neg := x.neg
	x.neg = false
	halfPi := quarterPi.right(1) // in units of 4
	if x.exp < y.exp || x.exp == y.exp && x.m.less(y.m) {
		a := acute(x, y)
		f := a.m.right(uint(2 - a.exp))
		if neg {
			return num{m: halfPi.add(f), exp: 2}.normal()
		}
		return num{m: halfPi.sub(f), exp: 2}.normal()
	}
	a := acute(y, x)
	return num{m: quarterPi.sub(a.m.right(uint(2 - a.exp))), exp: 2}.normal()
}

// acute is angle for y <= x: that of a slope i/64 nearby, and the angle between both.
//
// The tangent of the latter is (y - x·i/64) / (x + y·i/64).
func acute(y, x num) num {
	shift := uint(x.exp - y.exp)
	i := (y.m.right(shift).hi/(x.m.hi>>7) + 1) / 2
	if i == 0 {
		t := y.over(x)
		scaled := t.m.right(uint(-t.exp)).left(6)
		square := scaled.mul(scaled)
		t.m = t.m.sub(t.m.mul(square.mul(series(atanSeries[:], square, true))))
		return t.normal()
	}
	f := y.m.right(shift)
	up, upOver := f.left(6), f.hi>>58
	line, lineOver := x.m.times(i)
	minus := upOver < lineOver || upOver == lineOver && up.less(line)
	if up = up.sub(line); minus {
		up = up.negative()
	}
	down := x.m.right(1).add(f.mul(fix{i << 57, 0})) // (x + y·i/64)/2
	n := down.zeros()
	t, _ := up.right(1).left(n).quotient(down.left(n)) // times 2^6
	square := t.mul(t)
	t = t.sub(t.mul(square.mul(series(atanSeries[:], square, true)))).right(6)
	if minus {
		return num{m: arctangents[i].sub(t)}.normal()
	}
	return num{m: arctangents[i].add(t)}.normal()
}
