// The second attempt, with numbers of 400 bits, for arguments whose results 128 bits do not round.
// The simplest methods do: series, and one step of Newton's method from the first attempt.

package libm

import (
	"math"
	"math/big"
)

// precision is that of the second attempt, in bits. Less than 60 of them are lost.
const precision = 400

func number() *big.Float { return new(big.Float).SetPrec(precision) }

func wide(x float64) *big.Float            { return number().SetFloat64(x) }
func plus(a, b *big.Float) *big.Float      { return number().Add(a, b) }
func minus(a, b *big.Float) *big.Float     { return number().Sub(a, b) }
func times(a, b *big.Float) *big.Float     { return number().Mul(a, b) }
func divide(a, b *big.Float) *big.Float    { return number().Quo(a, b) }
func scale(a *big.Float, n int) *big.Float { return number().SetMantExp(a, n) }

func nearest(a *big.Float) float64 {
	z, _ := a.Float64()
	return z
}

// words returns the number with these bits after the binary point.
func words(w []uint64) *big.Float {
	return scale(number().SetInt(integer(w)), -64*len(w))
}

func integer(w []uint64) *big.Int {
	n := new(big.Int)
	for _, x := range w {
		n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(x))
	}
	return n
}

// big returns the value of a first attempt.
func (a num) big() *big.Float {
	x := scale(words([]uint64{a.m.hi, a.m.lo}), a.exp)
	if a.neg {
		x.Neg(x)
	}
	return x
}

// bigExp returns e^x for |x| < 2000.
func bigExp(x *big.Float) *big.Float {
	const halvings = 16
	log2 := words(log2Words[:])
	k, _ := plus(divide(x, log2), wide(0.5)).Int64()
	r := scale(minus(x, times(log2, wide(float64(k)))), -halvings)
	sum, term := wide(1), wide(1)
	for n := 1.0; term.Sign() != 0 && term.MantExp(nil) > -precision; n++ {
		term = divide(times(term, r), wide(n))
		sum = plus(sum, term)
	}
	for range halvings {
		sum = times(sum, sum)
	}
	return scale(sum, int(k))
}

// bigLog returns ln x for x that is positive and not 1, by a step of Halley's method.
func bigLog(x float64) *big.Float {
	first := split(x).log().big()
	e := bigExp(first)
	step := divide(minus(wide(x), e), plus(wide(x), e))
	return plus(first, scale(step, 1))
}

// bigSinCos returns the sine and the cosine of r, |r| < 4.
func bigSinCos(r *big.Float) (sin, cos *big.Float) {
	sin, cos = number(), wide(1)
	term := wide(1)
	for n := 1.0; term.Sign() != 0 && term.MantExp(nil) > -precision; n++ {
		term = divide(times(term, r), wide(n))
		switch int(n) % 4 {
		case 1:
			sin = plus(sin, term)
		case 2:
			cos = minus(cos, term)
		case 3:
			sin = minus(sin, term)
		case 0:
			cos = plus(cos, term)
		}
	}
	return sin, cos
}

// bigReduce returns the sine and the cosine of finite x.
func bigReduce(x float64) (sin, cos *big.Float) {
	if math.Abs(x) < 0.78 {
		return bigSinCos(wide(x))
	}
	a := split(x)
	turns := new(big.Int).SetUint64(a.m.hi) // times 2/π; the point is before the last places
	turns.Mul(turns, integer(twoOverPi[:]))
	places := uint(64 + 64*len(twoOverPi) - a.exp)
	quarters := new(big.Int).Rsh(turns, places)
	turns.Sub(turns, new(big.Int).Lsh(quarters, places))
	if turns.Bit(int(places)-1) != 0 {
		quarters.Add(quarters, big.NewInt(1))
		turns.Sub(turns, new(big.Int).Lsh(big.NewInt(1), places))
	}
	rest := scale(number().SetInt(turns), -int(places))
	sin, cos = bigSinCos(divide(rest, words(twoOverPi[:])))
	if quarters.Bit(0) != 0 {
		sin, cos = cos, sin.Neg(sin)
	}
	if quarters.Bit(1) != 0 {
		sin.Neg(sin)
		cos.Neg(cos)
	}
	if x < 0 {
		sin.Neg(sin)
	}
	return sin, cos
}

// bigAngle returns the angle of the point (x, y), y >= 0, by a step from what is nearly it.
func bigAngle(y, x *big.Float, near num) *big.Float {
	first := near.big()
	sin, cos := bigSinCos(first)
	up := minus(times(y, cos), times(x, sin))
	down := plus(times(x, cos), times(y, sin))
	return plus(first, divide(up, down))
}

// bigOther returns √(1-x²).
func bigOther(x *big.Float) *big.Float {
	return number().Sqrt(minus(wide(1), times(x, x)))
}

func bigSinhCosh(x float64) (sinh, cosh *big.Float) {
	up := bigExp(wide(x))
	down := divide(wide(1), up)
	return scale(minus(up, down), -1), scale(plus(up, down), -1)
}

func hardExp(x float64) float64 { return nearest(bigExp(wide(x))) }

func hardLog(x float64) float64 { return nearest(bigLog(x)) }

func hardLog10(x float64) float64 { return nearest(divide(bigLog(x), bigLog(10))) }

// hardPow is for positive x.
func hardPow(x, y float64) float64 { return nearest(bigExp(times(wide(y), bigLog(x)))) }

func hardSin(x float64) float64 {
	sin, _ := bigReduce(x)
	return nearest(sin)
}

func hardCos(x float64) float64 {
	_, cos := bigReduce(x)
	return nearest(cos)
}

func hardTan(x float64) float64 {
	sin, cos := bigReduce(x)
	return nearest(divide(sin, cos))
}

func hardAsin(x float64) float64 {
	y := wide(math.Abs(x))
	return math.Copysign(nearest(bigAngle(y, bigOther(y), angle(split(x), other(x)))), x)
}

func hardAcos(x float64) float64 {
	a := split(x)
	a.neg = x < 0
	return nearest(bigAngle(bigOther(wide(x)), wide(x), angle(other(x), a)))
}

func hardAtan2(y, x float64) float64 {
	a := split(x)
	a.neg = x < 0
	return math.Copysign(nearest(bigAngle(wide(math.Abs(y)), wide(x), angle(split(y), a))), y)
}

func hardSinh(x float64) float64 {
	sinh, _ := bigSinhCosh(x)
	return nearest(sinh)
}

func hardCosh(x float64) float64 {
	_, cosh := bigSinhCosh(x)
	return nearest(cosh)
}

func hardTanh(x float64) float64 {
	sinh, cosh := bigSinhCosh(x)
	return nearest(divide(sinh, cosh))
}
