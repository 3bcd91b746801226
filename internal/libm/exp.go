// The exponential function and the hyperbolic ones.

package libm

import (
	"math"
	"math/bits"
)

// tiny is a magnitude below which x, or 1, is the nearest number to most functions of x.
const tiny = 0x1p-27

// Exp returns e^x.
func Exp(x float64) (z float64, hard bool) {
	switch {
	case x != x:
		return x, false
	case x > 710:
		return math.Inf(1), false
	case x < -746:
		return 0, false
	case math.Abs(x) < 0x1p-54:
		return 1, false
	}
	return settle(exponential(x), x, hardExp)
}

// settle rounds the result of a first attempt, or makes the second one.
func settle(first num, x float64, second func(x float64) float64) (z float64, hard bool) {
	z, sure := first.round(slack)
	if !sure {
		z = second(x)
	}
	return z, !sure
}

// exponential returns e^x for 2^-54 <= |x| < 1024.
func exponential(x float64) num {
	a := split(x)
	a.neg = x < 0
	return a.exponential()
}

// exponential returns e^a for |a| < 1024. It is wrong by no more than a is, in 2^-128.
func (a num) exponential() num {
	whole, f := uint64(0), fix{}
	if a.exp > 0 {
		whole, f = a.m.hi>>(64-a.exp), a.m.left(uint(a.exp))
	} else {
		f = a.fraction()
	}
	k, r := byLog2(whole, f)
	if a.neg {
		if k = -k; r != (fix{}) {
			k, r = k-1, log2().sub(r)
		}
	}
	s := r.left(12)
	low := s.mul(series(expSeries[:], s, false)) // e^(the bits of r after the 12th) - 1
	middle := expMiddle[r.hi>>52&63]
	u := middle.add(low).add(middle.mul(low))
	high := expHigh[r.hi>>58]
	return num{m: high.add(high.mul(u)), exp: k + 1}
}

// byLog2 divides whole + f, which is below 1024, by ln 2: it returns the integer quotient and the
// rest.
func byLog2(whole uint64, f fix) (k int, rest fix) {
	hi, _ := bits.Mul64(whole<<53|f.hi>>11, log2E)
	q := hi >> 52 // the quotient or one less
	hi, mid := bits.Mul64(q, log2Words[0])
	carry1, low := bits.Mul64(q, log2Words[1])
	carry2, _ := bits.Mul64(q, log2Words[2])
	low, c := bits.Add64(low, carry2, 0)
	mid, c = bits.Add64(mid, carry1, c)
	hi += c
	var borrow uint64
	rest.lo, borrow = bits.Sub64(f.lo, low, 0)
	rest.hi, borrow = bits.Sub64(f.hi, mid, borrow)
	if whole -= hi + borrow; whole > 0 || !rest.less(log2()) {
		q, rest = q+1, rest.sub(log2())
	}
	return int(q), rest
}

// log2 returns ln 2.
func log2() fix { return fix{log2Words[0], log2Words[1]} }

// Sinh returns the hyperbolic sine of x.
func Sinh(x float64) (z float64, hard bool) {
	switch a := math.Abs(x); {
	case x != x, a < tiny:
		return x, false
	case a > 711:
		return math.Copysign(math.Inf(1), x), false
	}
	return settle(sinh(x), x, hardSinh)
}

// Cosh returns the hyperbolic cosine of x.
func Cosh(x float64) (z float64, hard bool) {
	switch a := math.Abs(x); {
	case x != x:
		return x, false
	case a < tiny:
		return 1, false
	case a > 711:
		return math.Inf(1), false
	}
	return settle(cosh(x), x, hardCosh)
}

// Tanh returns the hyperbolic tangent of x.
func Tanh(x float64) (z float64, hard bool) {
	switch a := math.Abs(x); {
	case x != x, a < tiny:
		return x, false
	case a > 20:
		return math.Copysign(1, x), false
	}
	return settle(tanh(x), x, hardTanh)
}

// sinh returns sinh x for tiny <= |x| < 1024.
func sinh(x float64) num {
	if math.Abs(x) < 0.25 {
		a := split(x)
		square := a.m.mul(a.m).right(uint(-2*a.exp - 4)) // 16x²
		e := square.mul(series(sinhSeries[:], square, false))
		m := a.m.right(1).add(a.m.mul(e).right(1)) // x(1+e)/2
		return num{m: m, exp: a.exp + 1, neg: x < 0}.normal()
	}
	up, down := exponential(math.Abs(x)), exponential(-math.Abs(x))
	m := up.m.sub(down.m.right(uint(up.exp - down.exp)))
	return num{m: m, exp: up.exp - 1, neg: x < 0}.normal()
}

// cosh returns cosh x for tiny <= |x| < 1024.
func cosh(x float64) num {
	up, down := exponential(math.Abs(x)), exponential(-math.Abs(x))
	m := up.m.right(1).add(down.m.right(uint(up.exp-down.exp) + 1))
	return num{m: m, exp: up.exp}.normal()
}

func tanh(x float64) num { return sinh(x).over(cosh(x)) }
