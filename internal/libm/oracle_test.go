package libm

import "math/big"

// The oracle: the functions with 500 bits, by methods that have nothing in common with those of the
// package but the series of e^x and sin x.

const oracleBits = 500

func float() *big.Float                        { return new(big.Float).SetPrec(oracleBits) }
func wideOf(x float64) *big.Float              { return float().SetFloat64(x) }
func add(a, b *big.Float) *big.Float           { return float().Add(a, b) }
func sub(a, b *big.Float) *big.Float           { return float().Sub(a, b) }
func mul(a, b *big.Float) *big.Float           { return float().Mul(a, b) }
func quo(a, b *big.Float) *big.Float           { return float().Quo(a, b) }
func ratio(a *big.Float, n float64) *big.Float { return quo(a, wideOf(n)) }

// small reports whether adding a to b changes nothing.
func small(a, b *big.Float) bool {
	return a.Sign() == 0 || a.MantExp(nil) < b.MantExp(nil)-oracleBits
}

// oraclePi returns π with n bits, by Machin's formula in integers.
func oraclePi(n uint) *big.Float {
	guard := n + 64
	arctan := func(x int64) *big.Int { // of 1/x
		term := new(big.Int).Lsh(big.NewInt(1), guard)
		term.Div(term, big.NewInt(x))
		sum := new(big.Int).Set(term)
		for i := int64(3); term.Sign() != 0; i += 2 {
			term.Div(term, big.NewInt(x*x)).Neg(term)
			sum.Add(sum, new(big.Int).Quo(term, big.NewInt(i)))
		}
		return sum
	}
	pi := new(big.Int).Mul(arctan(5), big.NewInt(16))
	pi.Sub(pi, new(big.Int).Mul(arctan(239), big.NewInt(4)))
	f := new(big.Float).SetPrec(n).SetInt(pi)
	return f.SetMantExp(f, -int(guard))
}

// oracleExp returns e^x.
func oracleExp(x *big.Float) *big.Float {
	n := max(x.MantExp(nil), 0) + 20
	r := float().SetMantExp(x, -n)
	r.SetPrec(oracleBits + 64)
	one := new(big.Float).SetPrec(oracleBits + 64).SetInt64(1)
	sum, term := new(big.Float).Copy(one), new(big.Float).Copy(one)
	for i := int64(1); term.Sign() != 0 && term.MantExp(nil) > -oracleBits-64; i++ {
		term.Mul(term, r)
		term.Quo(term, new(big.Float).SetInt64(i))
		sum.Add(sum, term)
	}
	for range n {
		sum.Mul(sum, sum)
	}
	return float().Set(sum)
}

// oracleSinhCosh returns the hyperbolic sine and cosine of x.
func oracleSinhCosh(x *big.Float) (sinh, cosh *big.Float) {
	up := oracleExp(x)
	down := quo(wideOf(1), up)
	sinh, cosh = ratio(sub(up, down), 2), ratio(add(up, down), 2)
	if x.MantExp(nil) > -20 {
		return sinh, cosh
	}
	sinh = float()
	for term, n := float().Set(x), 1.0; n < 60; n += 2 {
		sinh = add(sinh, term)
		term = ratio(mul(term, mul(x, x)), (n+1)*(n+2))
	}
	return sinh, cosh
}

// oracleLog returns ln x = 2^(n+1)·atanh((r-1)/(r+1)) where r is the 2^n-th root of x.
func oracleLog(x *big.Float) *big.Float {
	const prec = 2 * oracleBits
	n := 0
	r := new(big.Float).SetPrec(prec).Set(x)
	one := new(big.Float).SetPrec(prec).SetInt64(1)
	for d := new(big.Float).Sub(r, one); d.Sign() != 0 && d.MantExp(nil) > -20; n++ {
		r.Sqrt(r)
		d.Sub(r, one)
	}
	t := new(big.Float).SetPrec(prec).Sub(r, one)
	t.Quo(t, new(big.Float).SetPrec(prec).Add(r, one))
	square := new(big.Float).SetPrec(prec).Mul(t, t)
	sum, power := new(big.Float).SetPrec(prec), new(big.Float).SetPrec(prec).Set(t)
	for i := int64(1); power.Sign() != 0 && !(sum.Sign() != 0 &&
		power.MantExp(nil) < sum.MantExp(nil)-oracleBits-64); i += 2 {
		sum.Add(sum, new(big.Float).SetPrec(prec).Quo(power, new(big.Float).SetInt64(i)))
		power.Mul(power, square)
	}
	return float().SetMantExp(sum, n+1)
}

// oracleSinCos returns the sine and the cosine of x.
func oracleSinCos(x *big.Float) (sin, cos *big.Float) {
	prec := uint(oracleBits + 1200)
	pi := oraclePi1700
	turns := new(big.Float).SetPrec(prec).Quo(x, pi)
	n, _ := turns.Int(nil) // half turns
	r := new(big.Float).SetPrec(prec).SetInt(n)
	r.Sub(x, r.Mul(r, pi))
	r.SetPrec(oracleBits + 64)
	square := new(big.Float).Mul(r, r)
	s := func(term *big.Float, i int64) *big.Float {
		sum := new(big.Float).Copy(term)
		for term.Sign() != 0 && term.MantExp(nil) > sum.MantExp(nil)-oracleBits-64 {
			term.Mul(term, square)
			term.Quo(term, new(big.Float).SetInt64(-(i+1)*(i+2)))
			sum.Add(sum, term)
			i += 2
		}
		return sum
	}
	sin = s(new(big.Float).Copy(r), 1)
	cos = s(new(big.Float).SetPrec(oracleBits+64).SetInt64(1), 0)
	if n.Bit(0) != 0 {
		sin.Neg(sin)
		cos.Neg(cos)
	}
	return float().Set(sin), float().Set(cos)
}

var oraclePi1700 = oraclePi(oracleBits + 1200)

// oracleAtan returns atan x by halving the angle: atan x = 2·atan(x/(1+√(1+x²))).
func oracleAtan(x *big.Float) *big.Float {
	const halvings = 12
	one := wideOf(1)
	for range halvings {
		x = quo(x, add(one, float().Sqrt(add(one, mul(x, x)))))
	}
	square, sum, power := mul(x, x), float(), float().Set(x)
	for i := 1.0; power.Sign() != 0 && (sum.Sign() == 0 || !small(power, sum)); i += 2 {
		sum = add(sum, ratio(power, i))
		power = mul(power, square)
		power.Neg(power)
	}
	return float().SetMantExp(sum, halvings)
}

// oracleAngle returns the angle of the point (x, y).
func oracleAngle(y, x *big.Float) *big.Float {
	pi := float().Set(oraclePi1700)
	if x.Sign() == 0 {
		pi.SetMantExp(pi, -1)
		if y.Sign() < 0 {
			pi.Neg(pi)
		}
		return pi
	}
	a := oracleAtan(quo(y, x))
	switch {
	case x.Sign() > 0:
		return a
	case y.Sign() < 0:
		return sub(a, pi)
	}
	return add(a, pi)
}
