package libm

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

// function is a function of one or two numbers with all that is known of it. Those of one ignore y.
type function struct {
	name   string
	f      func(x, y float64) (float64, bool)
	first  func(x, y float64) num // its attempts, where it is not special
	hard   func(x, y float64) float64
	oracle func(x, y float64) *big.Float
	two    bool
	most   float64 // the largest magnitude of x to try, or 0
}

func one(f func(float64) (float64, bool)) func(x, y float64) (float64, bool) {
	return func(x, _ float64) (float64, bool) { return f(x) }
}

func firstOne(f func(float64) num) func(x, y float64) num {
	return func(x, _ float64) num { return f(x) }
}

func hardOne(f func(float64) float64) func(x, y float64) float64 {
	return func(x, _ float64) float64 { return f(x) }
}

func oracleOne(f func(x *big.Float) *big.Float) func(x, y float64) *big.Float {
	return func(x, _ float64) *big.Float { return f(wideOf(x)) }
}

var functions = []function{
	{"exp", one(Exp), firstOne(exponential), hardOne(hardExp), oracleOne(oracleExp), false, 800},
	{"log", one(Log), firstOne(func(x float64) num { return split(x).log() }),
		hardOne(hardLog), oracleOne(oracleLog), false, 0},
	{"log10", one(Log10), firstOne(func(x float64) num { return split(x).log10() }),
		hardOne(hardLog10), oracleOne(func(x *big.Float) *big.Float {
			return quo(oracleLog(x), oracleLog(wideOf(10)))
		}), false, 0},
	{"sin", one(Sin), firstOne(sine), hardOne(hardSin), oracleOne(func(x *big.Float) *big.Float {
		s, _ := oracleSinCos(x)
		return s
	}), false, 0},
	{"cos", one(Cos), firstOne(cosine), hardOne(hardCos), oracleOne(func(x *big.Float) *big.Float {
		_, c := oracleSinCos(x)
		return c
	}), false, 0},
	{"tan", one(Tan), firstOne(tangent), hardOne(hardTan), oracleOne(func(x *big.Float) *big.Float {
		s, c := oracleSinCos(x)
		return quo(s, c)
	}), false, 0},
	{"asin", one(Asin), firstOne(arcsine), hardOne(hardAsin),
		oracleOne(func(x *big.Float) *big.Float {
			return oracleAngle(x, float().Sqrt(sub(wideOf(1), mul(x, x))))
		}), false, 1},
	{"acos", one(Acos), firstOne(arccosine), hardOne(hardAcos),
		oracleOne(func(x *big.Float) *big.Float {
			return oracleAngle(float().Sqrt(sub(wideOf(1), mul(x, x))), x)
		}), false, 1},
	{"atan", one(Atan), firstOne(func(x float64) num { return arctangent(x, 1) }),
		hardOne(func(x float64) float64 { return hardAtan2(x, 1) }),
		oracleOne(oracleAtan), false, 0},
	{"sinh", one(Sinh), firstOne(sinh), hardOne(hardSinh), oracleOne(func(x *big.Float) *big.Float {
		s, _ := oracleSinhCosh(x)
		return s
	}), false, 800},
	{"cosh", one(Cosh), firstOne(cosh), hardOne(hardCosh), oracleOne(func(x *big.Float) *big.Float {
		_, c := oracleSinhCosh(x)
		return c
	}), false, 800},
	{"tanh", one(Tanh), firstOne(tanh), hardOne(hardTanh), oracleOne(func(x *big.Float) *big.Float {
		s, c := oracleSinhCosh(x)
		return quo(s, c)
	}), false, 20},
	{"pow", Pow, func(x, y float64) num { return power(math.Abs(x), y) },
		func(x, y float64) float64 { return hardPow(math.Abs(x), y) },
		func(x, y float64) *big.Float {
			return oracleExp(mul(wideOf(y), oracleLog(wideOf(math.Abs(x)))))
		}, true, 0},
	{"atan2", Atan2, arctangent, hardAtan2, func(y, x float64) *big.Float {
		return oracleAngle(wideOf(y), wideOf(x))
	}, true, 0},
}

// argument returns numbers of all magnitudes, and more of those near 1.
func argument(r *rand.Rand) float64 {
	x := math.Ldexp(1+r.Float64(), r.IntN(80)-40)
	switch r.IntN(8) {
	case 0:
		x = math.Float64frombits(r.Uint64() >> 1)
	case 1:
		x = 1 + math.Ldexp(r.Float64()-0.5, -r.IntN(53))
	case 2:
		x = float64(r.IntN(2000)) / float64(1+r.IntN(100))
	case 3:
		near := math.Float64bits(float64(1+r.IntN(12)) * math.Pi / 4)
		x = math.Float64frombits(near + r.Uint64N(16) - 8)
	case 4:
		x = math.Ldexp(float64(1+r.IntN(9)), r.IntN(2100)-1080)
	case 5:
		x = float64(r.Uint64()>>r.IntN(64)) / 8
	}
	if r.IntN(2) == 0 {
		x = -x
	}
	return x
}

// arguments returns arguments for which the result is a number that is not 0, with many in which
// little is certain in advance.
func (f *function) arguments(r *rand.Rand) (x, y float64) {
	for {
		x, y = argument(r), argument(r)
		if f.name == "pow" {
			x = math.Abs(x)
			switch r.IntN(4) {
			case 0: // any result
				y = (r.Float64()*2100 - 1060) / math.Log2(x)
			case 1:
				x, y = float64(1+r.IntN(4000))/math.Ldexp(1, r.IntN(30)), float64(r.IntN(100)-50)/4
			}
		}
		if f.most != 0 && r.IntN(2) == 0 {
			x = (2*r.Float64() - 1) * f.most
		}
		if f.most != 0 && math.Abs(x) > f.most {
			continue
		}
		if z, _ := f.f(x, y); z == z && z != 0 && !math.IsInf(z, 0) && !math.IsInf(x, 0) &&
			!math.IsInf(y, 0) && x != 0 && y != 0 && (!f.two || f.name == "atan2" || x != 1) {
			return x, y
		}
	}
}

// isExact reports whether the result may be a number or the middle of two, which the oracle does
// not tell from what is near.
func (f *function) isExact(x, y float64) bool {
	if f.name != "pow" {
		return false
	}
	_, exact := exactPower(math.Abs(x), y)
	return exact || y == 2
}

// Results are the exact ones, rounded; so are those of the second attempts; and the first ones are
// as precise as they are trusted to be.
func TestCorrectlyRounded(t *testing.T) {
	calls := 300
	if tier.Soaking() {
		calls = 3000
	}
	for i := range functions {
		f := &functions[i]
		t.Run(f.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seeds.Of(t), uint64(i)))
			worst := 0.0
			for n := range calls {
				x, y := f.arguments(r)
				exact := f.oracle(x, y)
				want, _ := exact.Float64()
				if z, _ := f.f(x, y); z != want && !f.isExact(x, y) {
					t.Fatalf("%s(%x, %x) = %x, want %x", f.name, x, y, z, want)
				}
				if math.Abs(x) < tiny || f.isExact(x, y) || f.most == 1 && math.Abs(x) == 1 ||
					f.name == "pow" && want == 1 {
					continue // there may be no first attempt
				}
				first := f.first(x, y)
				if worst = max(worst, wrongBy(first, exact)); worst > slack/8 {
					t.Fatalf("the first attempt at %s(%x, %x) is wrong by %.0f units", f.name, x, y,
						worst)
				}
				if n%10 != 0 {
					continue
				}
				if h := f.hard(x, y); h != want {
					t.Fatalf("the second attempt at %s(%x, %x) is %x, want %x", f.name, x, y, h,
						want)
				}
			}
			t.Logf("the first attempts were wrong by %.0f units of 2^-128 at most", worst)
		})
	}
}

// The numbers around powers of two, where fractions are just below 1, shifts end a word, and
// functions begin to be constant.
func TestAroundPowersOfTwo(t *testing.T) {
	for i := range functions {
		f := &functions[i]
		if f.two {
			continue
		}
		for e := -140; e <= 70; e++ {
			x := math.Ldexp(1, e)
			list := []float64{x, -x}
			if tier.Soaking() {
				up, down := math.Nextafter(x, 2*x), math.Nextafter(x, 0)
				list = append(list, up, -up, down, -down)
			}
			for _, x := range list {
				z, _ := f.f(x, 0)
				if z != z || z == 0 || math.IsInf(z, 0) || f.most != 0 && math.Abs(x) > f.most {
					continue
				}
				if want, _ := f.oracle(x, 0).Float64(); z != want {
					t.Errorf("%s(%x) = %x, want %x", f.name, x, z, want)
				}
			}
		}
	}
}

// wrongBy returns the error of a first attempt, in units of its last place.
func wrongBy(first num, exact *big.Float) float64 {
	m := sub(first.big(), exact)
	m.SetMantExp(m, 128-first.exp)
	e, _ := m.Float64()
	return math.Abs(e)
}

// Exact powers are exact, and rounded once where they are no normal numbers.
func TestExactPowers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		m, k := float64(1+r.IntN(1<<r.IntN(20))), r.IntN(6) // the base is m^(2^k)·2^e
		if m > 40 {
			k = min(k, 1)
		}
		n := 1 + r.IntN(40)
		e := r.IntN(60) - 30
		base := new(big.Float).SetPrec(4000).SetInt64(1)
		for range 1 << k {
			base.Mul(base, new(big.Float).SetFloat64(m))
		}
		x, accuracy := base.SetMantExp(base, e<<k).Float64()
		if accuracy != big.Exact || x == 1 || math.IsInf(x, 0) || x == 0 {
			continue
		}
		y := math.Ldexp(float64(n), -k)
		exact := new(big.Float).SetPrec(4000).SetInt64(1)
		for range n {
			exact.Mul(exact, new(big.Float).SetFloat64(m))
		}
		want, _ := exact.SetMantExp(exact, e*n).Float64()
		if z, hard := Pow(x, y); z != want || hard {
			t.Fatalf("%v^%v = %v, want %v; hard: %v", x, y, z, want, hard)
		}
	}
}

// hardPowers have results so near to the middle of two numbers that 128 bits do not round them.
var hardPowers = [][2]float64{
	{0x1.0000000000003p+00, 0x1.5555555555557p-03}, {0x1.0000000000006p+00, 0x1.5555555555559p-04},
	{0x1.0000000000007p+00, 0x1.2492492492496p-04}, {0x1.00000000000e5p+00, 0x1.1e2ef3b3fb8f4p-09},
}

func TestHardPowers(t *testing.T) {
	for _, p := range hardPowers {
		want, _ := oracleExp(mul(wideOf(p[1]), oracleLog(wideOf(p[0])))).Float64()
		if z, hard := Pow(p[0], p[1]); z != want || !hard {
			t.Errorf("%x^%x = %x, want %x; hard: %v", p[0], p[1], z, want, hard)
		}
		if _, ok := QuickPow(p[0], p[1]); ok {
			t.Errorf("%x^%x is said to be quick", p[0], p[1])
		}
	}
}

func BenchmarkFunctions(b *testing.B) {
	for i := range functions {
		f := &functions[i]
		r := rand.New(rand.NewPCG(1, 2))
		var list [1024][2]float64
		for i := range list {
			list[i][0], list[i][1] = f.arguments(r)
		}
		b.Run(f.name, func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				f.f(list[n%1024][0], list[n%1024][1])
			}
		})
	}
	b.Run("hard", func(b *testing.B) {
		for b.Loop() {
			Pow(hardPowers[0][0], hardPowers[0][1])
		}
	})
}
