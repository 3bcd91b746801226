package geo

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// precision is that of the numbers that the tests compare with, in bits.
const precision = 200

func wide(f float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(f) }

// series returns x - x³/3! + x⁵/5! … or 1 - x²/2! + x⁴/4! …
func series(x *big.Float, odd bool) *big.Float {
	term, n := wide(1), int64(0)
	if odd {
		term, n = new(big.Float).Set(x), 1
	}
	sum := new(big.Float).Set(term)
	square := new(big.Float).Mul(x, x)
	for term.MantExp(nil) > -precision && term.Sign() != 0 {
		term.Mul(term, square)
		term.Quo(term, wide(float64(-(n+1)*(n+2))))
		sum.Add(sum, term)
		n += 2
	}
	return sum
}

// inverse returns asin y by Newton's method.
func inverse(y float64) *big.Float {
	x := wide(math.Asin(y))
	for range 3 {
		step := new(big.Float).Sub(wide(y), series(x, true))
		if step.Sign() != 0 {
			x.Add(x, step.Quo(step, series(x, false)))
		}
	}
	return x
}

// A result is the exact one, rounded, or a neighbor of it in few cases.
func TestTrigonometry(t *testing.T) {
	const calls = 6000
	r := rand.New(rand.NewPCG(1, 2))
	wrong := map[string]int{}
	check := func(name string, x, got float64, exact *big.Float) {
		t.Helper()
		want, _ := exact.Float64()
		if got == want {
			return
		}
		wrong[name]++
		if got != math.Nextafter(want, got) {
			t.Errorf("%s(%x) = %x, want %x", name, x, got, want)
		}
	}
	for i := range calls {
		x := (r.Float64()*2 - 1) * 5 * math.Pi / 4
		switch i % 4 {
		case 0: // as near places have them
			x = math.Pow(2, -40*r.Float64())
		case 1:
			x = float64(r.IntN(201)-100) / perRadian
		}
		check("sine", x, sine(x), series(wide(x), true))
		check("cosine", x, cosine(x), series(wide(x), false))
		y := math.Abs(math.Sin(x))
		check("arcsine", y, arcsine(y), inverse(y))
	}
	t.Log("not the nearest number:", wrong)
	for name, n := range wrong {
		if n > calls/1000 {
			t.Errorf("%s: %d of %d results are not the nearest number", name, n, calls)
		}
	}
}

// Every processor must compute these bits.
func TestSameBitsEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	h := fnv.New64a()
	// Not fused here, either.
	between := func(low, high float64) float64 { return low + float64(r.Float64()*(high-low)) }
	place := func() Place { return Place{between(-180, 180), between(-85, 85)} }
	for range 100_000 {
		a, b := place(), place()
		if r.IntN(2) == 0 {
			b = Place{a.Lon + between(-0.02, 0.02), a.Lat + between(-0.02, 0.02)}
		}
		d := Distance(PlaceOf(a.Score()), b)
		var bits [8]byte
		for i := range bits {
			bits[i] = byte(math.Float64bits(d) >> (8 * i))
		}
		h.Write(bits[:])
	}
	if got := h.Sum64(); got != 0xc290f7c806b53eba {
		t.Errorf("%#x", got)
	}
}
