// Sine, cosine and tangent.

package libm

import (
	"math"
	"math/bits"
)

// Sin returns the sine of x radians.
func Sin(x float64) (z float64, hard bool) {
	if z, special := specialSin(x); special {
		return z, false
	}
	return settle(sine(x), x, hardSin)
}

// Cos returns the cosine of x radians.
func Cos(x float64) (z float64, hard bool) {
	if math.Abs(x) < tiny {
		return 1, false
	}
	if z, special := specialSin(x); special {
		return z, false
	}
	return settle(cosine(x), x, hardCos)
}

// Tan returns the tangent of x radians.
func Tan(x float64) (z float64, hard bool) {
	if z, special := specialSin(x); special {
		return z, false
	}
	return settle(tangent(x), x, hardTan)
}

// specialSin has the sine and the tangent of the arguments that need no computation.
func specialSin(x float64) (z float64, special bool) {
	switch {
	case x != x, math.Abs(x) < tiny:
		return x, true
	case math.IsInf(x, 0):
		return math.NaN(), true
	}
	return 0, false
}

// sine, cosine and tangent are for finite x of at least tiny magnitude.

func sine(x float64) (s num) {
	r := reduce(x)
	if part := r.rest.part(); r.quarters&1 == 0 {
		s = part.sine()
	} else {
		s = part.cosine()
	}
	s.neg = s.neg != (r.quarters&2 != 0)
	s.neg = s.neg != (x < 0)
	return s
}

func cosine(x float64) (c num) {
	r := reduce(x)
	if part := r.rest.part(); r.quarters&1 == 0 {
		c = part.cosine()
	} else {
		c = part.sine()
		c.neg = !c.neg
	}
	c.neg = c.neg != (r.quarters&2 != 0)
	return c
}

func tangent(x float64) num {
	r := reduce(x)
	part := r.rest.part()
	s, c := part.sine(), part.cosine()
	if r.quarters&1 != 0 {
		s, c = c, s
		c.neg = !c.neg
	}
	s.neg = s.neg != (x < 0)
	return s.over(c)
}

// reduced is a number of quarter turns, modulo 4, and the rest, at most half of one.
type reduced struct {
	quarters int
	rest     num
}

// reduce reduces |x|.
func reduce(x float64) reduced {
	x = math.Abs(x)
	a := split(x)
	if x < 0.78 {
		return reduced{rest: a}
	}
	// x·2/π/4 modulo 1, with 256 bits. x is m·2^e; the bits of 2/π before the place e-2 make
	// multiples of four.
	m, e := a.m.hi>>11, a.exp-53
	p := product(m, twoOverPiAt(uint(max(e-2, 0))), uint(max(2-e, 0)))
	quarters := int(p[0]>>61+1) >> 1
	p[0] = p[0]<<2 | p[1]>>62
	p[1] = p[1]<<2 | p[2]>>62
	p[2] = p[2]<<2 | p[3]>>62
	p[3] <<= 2
	var r num
	if p[0]>>63 != 0 { // the next quarter is nearer
		r.neg = true
		var borrow uint64
		for i := 3; i >= 0; i-- {
			p[i], borrow = bits.Sub64(0, p[i], borrow)
		}
	}
	if p[0] == 0 { // never twice: no float64 is that near to a multiple of π/2
		p[0], p[1], p[2], r.exp = p[1], p[2], p[3], -64
	}
	n := uint(bits.LeadingZeros64(p[0]))
	r.m = fix{p[0]<<n | p[1]>>(64-n), p[1]<<n | p[2]>>(64-n)}.mul(quarterPi)
	r.exp += 1 - int(n)
	return reduced{quarters, r.normal()}
}

// twoOverPiAt returns 256 bits of 2/π, after so many.
func twoOverPiAt(skip uint) (w [4]uint64) {
	from, n := skip/64, skip%64
	for i := range uint(4) {
		w[i] = twoOverPi[from+i]<<n | twoOverPi[from+i+1]>>(64-n)
	}
	return w
}

// product returns m·w/2^shift modulo 2^256, for shift below 64 and m below 2^(64-shift) if shift is
// not 0.
func product(m uint64, w [4]uint64, shift uint) (p [4]uint64) {
	carry := uint64(0)
	for i := 3; i >= 0; i-- {
		hi, lo := bits.Mul64(m, w[i])
		var c uint64
		p[i], c = bits.Add64(lo, carry, 0)
		carry = hi + c
	}
	for i := 3; i > 0; i-- {
		p[i] = p[i]>>shift | p[i-1]<<(64-shift)
	}
	p[0] = p[0]>>shift | carry<<(64-shift)
	return p
}

// part is a reduced argument as the sum of i/64 and ±d.
type part struct {
	i     uint
	minus bool
	d     fix // sin d
	e     fix // 1 - cos d
	r     num // the argument, and its sine if i is 0
}

// part splits an argument of at most π/4.
func (a num) part() part {
	f := a.fraction()
	n := f.hi >> 57
	p := part{i: uint(n+1) / 2, minus: n&1 != 0, r: a}
	if nearest := (fix{uint64(p.i) << 58, 0}); p.minus {
		p.d = nearest.sub(f)
	} else {
		p.d = f.sub(nearest)
	}
	scaled := p.d.left(6)
	square := scaled.mul(scaled) // d²·2^12
	s := square.mul(series(sinSeries[:], square, true))
	p.e = square.mul(series(cosSeries[:], square, true))
	p.d = p.d.sub(p.d.mul(s))
	p.r.m = a.m.sub(a.m.mul(s))
	return p
}

func (p *part) sine() num {
	if p.i == 0 {
		return p.r.normal()
	}
	s, c := sinCosOf[p.i].sin, sinCosOf[p.i].cos
	y := s.sub(s.mul(p.e))
	if p.minus {
		y = y.sub(c.mul(p.d))
	} else {
		y = y.add(c.mul(p.d))
	}
	return num{m: y, neg: p.r.neg}.normal()
}

func (p *part) cosine() num {
	if p.i == 0 {
		if p.e == (fix{}) {
			return num{m: fix{1 << 63, 0}, exp: 1}
		}
		return num{m: p.e.negative()}
	}
	s, c := sinCosOf[p.i].sin, sinCosOf[p.i].cos
	y := c.sub(c.mul(p.e))
	if p.minus {
		y = y.add(s.mul(p.d))
	} else {
		y = y.sub(s.mul(p.d))
	}
	return num{m: y}.normal()
}
