// Sines, cosines and arcsines with an error below 2^-63, rounded once at the end.

package geo

import "math"

// sum is a number as a sum of two, of which lo is the smaller one by far.
type sum struct{ hi, lo float64 }

func (x sum) rounded() float64 { return x.hi + x.lo }

func (x sum) negative() sum { return sum{-x.hi, -x.lo} }

// halfPi is π/2.
var halfPi = sum{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54}

// add returns a+b exactly.
func add(a, b float64) sum {
	s := a + b
	t := s - a
	return sum{s, (a - (s - t)) + (b - t)}
}

// multiply returns a·b exactly.
func multiply(a, b float64) sum {
	p := float64(a * b)
	return sum{p, math.FMA(a, b, -p)}
}

// sine returns sin x for |x| <= 5π/4.
func sine(x float64) float64 {
	quarters, r := reduce(math.Abs(x))
	y := r.sine()
	switch quarters {
	case 1:
		y = r.cosine()
	case 2:
		y = y.negative()
	}
	if x < 0 {
		y = y.negative()
	}
	return y.rounded()
}

// cosine returns cos x for |x| <= 5π/4.
func cosine(x float64) float64 {
	quarters, r := reduce(math.Abs(x))
	switch quarters {
	case 0:
		return r.cosine().rounded()
	case 1:
		return -r.sine().rounded()
	}
	return -r.cosine().rounded()
}

// reduce returns how many quarters of a turn, at most 2, are nearest to x, and the rest, which is
// at most an eighth.
func reduce(x float64) (quarters int, rest sum) {
	switch {
	case x <= math.Pi/4:
		return 0, sum{x, 0}
	case x <= 3*math.Pi/4:
		return 1, add(x-halfPi.hi, -halfPi.lo)
	}
	return 2, add(x-float64(2*halfPi.hi), float64(-2*halfPi.lo))
}

// sine returns sin x for |x| <= π/4.
func (x sum) sine() sum {
	if x.hi < 0 {
		return x.negative().sine().negative()
	}
	k := x.nearest()
	return x.turn(k, angles[k][0], angles[k][1])
}

// cosine returns cos x for |x| <= π/4.
func (x sum) cosine() sum {
	if x.hi < 0 {
		x = x.negative()
	}
	k := x.nearest()
	return x.turn(k, angles[k][1], angles[k][0].negative())
}

// nearest returns the index of the angle that is nearest to x.
func (x sum) nearest() int { return int(float64(x.hi*perRadian) + 0.5) }

// turn returns a·cos d + b·sin d, where d is the difference of x to the angle k, the nearest one,
// by the first terms of their series.
func (x sum) turn(k int, a, b sum) sum {
	d := x.hi - float64(float64(k)/perRadian)
	dd := float64(d * d)
	// cos d - 1 and sin d - d
	cos := float64(dd * (float64(dd*(1./24-float64(dd/720))) - 0.5))
	sin := float64(float64(d*dd) * (float64(dd*(1./120-float64(dd/5040))) - 1./6))
	p := multiply(b.hi, d)
	y := add(a.hi, p.hi)
	y.lo += (p.lo + a.lo) + float64(b.lo*d) + float64((b.hi-float64(a.hi*d))*x.lo) +
		float64(a.hi*cos) + float64(b.hi*sin)
	return y
}

// arcsine returns asin y for 0 <= y <= 1.
func arcsine(y float64) float64 {
	const steep = 0.7
	if y <= steep {
		return sum{y, 0}.arcsine().rounded()
	}
	// asin y = π/2 - 2 asin √((1-y)/2)
	square := float64((1 - y) / 2) // exact
	root := sum{hi: math.Sqrt(square)}
	if root.hi == 0 {
		return halfPi.hi
	}
	root.lo = math.FMA(-root.hi, root.hi, square) / float64(2*root.hi)
	half := root.arcsine()
	z := add(halfPi.hi, float64(-2*half.hi))
	return z.hi + (z.lo + (halfPi.lo - float64(2*half.lo)))
}

// arcsine returns asin x for 0 <= x <= √½: the start of the series, made exact by Newton's method.
func (x sum) arcsine() sum {
	const exact = 0x1p-33 // a step that is as small leaves an error of its square
	xx := float64(x.hi * x.hi)
	cosine := math.Sqrt(1 - xx)
	y := x.hi + float64(float64(x.hi*xx)*(1./6+float64(xx*(3./40+float64(xx*(15./336))))))
	for {
		sine := sum{y, 0}.sine()
		step := ((x.hi - sine.hi) - sine.lo + x.lo) / cosine
		if math.Abs(step) <= float64(y*exact) {
			return sum{y, step}
		}
		y += step
	}
}
