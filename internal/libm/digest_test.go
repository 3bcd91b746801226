package libm

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
)

// digests are hashes of the results for fixed arguments. They never change: nodes of every
// processor and release have these.
var digests = map[string]uint64{
	"exp":   0x5a2c3b4c6e881c28,
	"log":   0x2e48f3f795527f72,
	"log10": 0x179d09f4f63eff67,
	"sin":   0x4c5779123cd66bb5,
	"cos":   0x4ab5086306be207b,
	"tan":   0xa8c803105778c260,
	"asin":  0x3f7a2d79d47c6186,
	"acos":  0xf0a432e0cb03163d,
	"atan":  0xf6e552ebbbc70047,
	"sinh":  0xd24d33c22ce5c4cc,
	"cosh":  0xe9af5eddae5fbd79,
	"tanh":  0xe997afd43ea2a976,
	"pow":   0x149ba976e19e1c7e,
	"atan2": 0x14a6b763564ca772,
}

// fixedArgument returns a number, made of bits alone.
func fixedArgument(r *rand.PCG, i int) float64 {
	b := r.Uint64()
	switch i % 4 {
	case 0: // below 2^8 and from 2^-8 on, mostly
		return math.Float64frombits(b&^(0x7ff<<52) | (1015+b>>52&0xf)<<52)
	case 1: // near 1
		return math.Float64frombits(0x3ff<<52 ^ b>>(12+b&0x1f)<<(b&1))
	case 2:
		return float64(int64(b)>>(48+b&0xf)) / 8
	}
	return math.Float64frombits(b)
}

// digest returns the hash of a function's results.
func (f *function) digest() uint64 {
	h := fnv.New64a()
	r := rand.NewPCG(1, 2)
	for i := range 4000 {
		x, y := fixedArgument(r, i), fixedArgument(r, i/4)
		z, hard := f.f(x, y)
		b := math.Float64bits(z)
		if z != z {
			b = 0x7ff8 << 48
		}
		fmt.Fprintf(h, "%x %v\n", b, hard)
	}
	return h.Sum64()
}

// Every processor must compute these bits, and say of the same arguments that they are hard.
func TestDigests(t *testing.T) {
	for i := range functions {
		f := &functions[i]
		if got := f.digest(); got != digests[f.name] {
			t.Errorf("%q: %#016x,", f.name, got)
		}
	}
}

// The results are the same where the processor lacks what compilers and package math use.
func TestDigestsWithoutFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: other processors may be emulated, which a second process is not")
	}
	for _, lacking := range []string{"cpu.fma=off", "cpu.all=off"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestDigests$", "-test.count", "1")
		cmd.Env = append(slices.Clone(os.Environ()), "GODEBUG="+lacking)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("GODEBUG=%s: %v\n%s", lacking, err, out)
		}
	}
}

// specials are results that are no rounded numbers, as C's Annex F has them.
var specials = []struct {
	name       string
	x, y, want float64
}{
	{"exp", inf, 0, inf}, {"exp", -inf, 0, 0}, {"exp", nan, 0, nan},
	{"exp", 0, 0, 1}, {"exp", 709.8, 0, inf}, {"exp", -745.2, 0, 0}, {"exp", 1e308, 0, inf},
	{"exp", -745.1, 0, 0x1p-1074}, {"exp", 0x1p-1074, 0, 1}, {"exp", negZero, 0, 1},
	{"log", 0, 0, -inf}, {"log", negZero, 0, -inf}, {"log", -1, 0, nan}, {"log", -inf, 0, nan},
	{"log", inf, 0, inf}, {"log", 1, 0, 0}, {"log", nan, 0, nan},
	{"log10", 0, 0, -inf}, {"log10", -1, 0, nan}, {"log10", inf, 0, inf}, {"log10", 1, 0, 0},
	{"log10", 1000, 0, 3}, {"log10", 1e22, 0, 22}, {"log10", 10, 0, 1},
	{"sin", inf, 0, nan}, {"sin", negZero, 0, negZero}, {"sin", nan, 0, nan}, {"sin", 0, 0, 0},
	{"cos", -inf, 0, nan}, {"cos", 0, 0, 1}, {"cos", nan, 0, nan},
	{"tan", inf, 0, nan}, {"tan", negZero, 0, negZero}, {"tan", 0x1p-1074, 0, 0x1p-1074},
	{"asin", 1, 0, math.Pi / 2}, {"asin", -1, 0, -math.Pi / 2}, {"asin", 1.1, 0, nan},
	{"asin", negZero, 0, negZero}, {"asin", inf, 0, nan},
	{"acos", 1, 0, 0}, {"acos", -1, 0, math.Pi}, {"acos", 0, 0, math.Pi / 2}, {"acos", -2, 0, nan},
	{"atan", inf, 0, math.Pi / 2}, {"atan", -inf, 0, -math.Pi / 2}, {"atan", negZero, 0, negZero},
	{"atan", 1, 0, math.Pi / 4}, {"atan", nan, 0, nan}, {"atan", 1e308, 0, math.Pi / 2},
	{"sinh", inf, 0, inf}, {"sinh", -inf, 0, -inf}, {"sinh", negZero, 0, negZero},
	{"sinh", 710.5, 0, inf}, {"sinh", -711, 0, -inf}, {"sinh", nan, 0, nan},
	{"cosh", -inf, 0, inf}, {"cosh", 0, 0, 1}, {"cosh", 710.5, 0, inf}, {"cosh", nan, 0, nan},
	{"tanh", inf, 0, 1}, {"tanh", -inf, 0, -1}, {"tanh", negZero, 0, negZero}, {"tanh", 30, 0, 1},
	{"pow", nan, 0, 1}, {"pow", 1, nan, 1}, {"pow", 0, -1, inf}, {"pow", negZero, -3, -inf},
	{"pow", negZero, -2, inf}, {"pow", negZero, 3, negZero}, {"pow", negZero, 2.5, 0},
	{"pow", -1, inf, 1}, {"pow", -1, -inf, 1}, {"pow", 0.5, inf, 0}, {"pow", 0.5, -inf, inf},
	{"pow", 2, inf, inf}, {"pow", -2, -inf, 0}, {"pow", inf, 0.5, inf}, {"pow", inf, -0.5, 0},
	{"pow", -inf, 3, -inf}, {"pow", -inf, 2, inf}, {"pow", -inf, -3, negZero},
	{"pow", -inf, -0.5, 0}, {"pow", -8, 1. / 3, nan}, {"pow", -8, 3, -512}, {"pow", nan, 1, nan},
	{"pow", 2, 1023, 0x1p1023}, {"pow", 2, 1024, inf}, {"pow", 2, -1074, 0x1p-1074},
	{"pow", 2, -1075, 0}, {"pow", -2, -1075, negZero}, {"pow", -2, 1025, -inf},
	{"pow", 10, 308, 1e308}, {"pow", 10, 309, inf}, {"pow", 10, -400, 0}, {"pow", 1.5, 1e300, inf},
	{"pow", -1.5, 1e300, inf}, {"pow", 0x1p-1074, 0.5, 0x1p-537}, {"pow", 3, 0x1p-1074, 1},
	{"pow", 4, -0.5, 0.5}, {"pow", -inf, 0.5, inf}, {"pow", negZero, 0.5, 0},
	{"pow", -3, -1, -1. / 3},
	{"pow", -1, 1 << 53, 1}, {"pow", -1, 1<<53 - 1, -1}, {"pow", 0.5, 1 << 40, 0},
	{"pow", 6, -1074, 0}, {"pow", 3 * 0x1p-538, 2, 9 * 0x1p-1076},
	{"pow", 0x1.8p-537, 2, 0x1p-1073},
	{"atan2", 0, 1, 0}, {"atan2", negZero, 1, negZero}, {"atan2", 0, -1, math.Pi},
	{"atan2", negZero, -1, -math.Pi}, {"atan2", 0, 0, 0}, {"atan2", 0, negZero, math.Pi},
	{"atan2", negZero, negZero, -math.Pi}, {"atan2", 1, 0, math.Pi / 2},
	{"atan2", -1, negZero, -math.Pi / 2}, {"atan2", inf, inf, math.Pi / 4},
	{"atan2", inf, -inf, 3 * math.Pi / 4}, {"atan2", -inf, inf, -math.Pi / 4},
	{"atan2", -inf, -inf, -3 * math.Pi / 4}, {"atan2", inf, 5, math.Pi / 2},
	{"atan2", 5, inf, 0}, {"atan2", -5, inf, negZero}, {"atan2", 5, -inf, math.Pi},
	{"atan2", nan, 1, nan}, {"atan2", 1, nan, nan},
	// 1.5 times the smallest number, and a bit less
	{"atan2", 3 * 0x1p-1074, 2, 0x1p-1074}, {"atan2", -3 * 0x1p-1074, 2, -0x1p-1074},
	{"atan2", 0x1p-1074, 2, 0}, {"atan2", 0x1.8p-1000, 0x1p74, 0x1p-1074},
	{"atan2", 0x1p-1074, 0x1p1000, 0}, {"atan2", 0x1p-1022, -1, math.Pi},
}

var inf, nan, negZero = math.Inf(1), math.NaN(), math.Copysign(0, -1)

func TestSpecials(t *testing.T) {
	for _, s := range specials {
		i := slices.IndexFunc(functions, func(f function) bool { return f.name == s.name })
		z, hard := functions[i].f(s.x, s.y)
		same := math.Float64bits(z) == math.Float64bits(s.want) || z != z && s.want != s.want
		if !same || hard {
			t.Errorf("%s(%v, %v) = %v, want %v; hard: %v", s.name, s.x, s.y, z, s.want, hard)
		}
	}
}

// Arguments that are nearly multiples of π/2, and those that others found to be the worst.
func TestNearMultiples(t *testing.T) {
	for _, c := range []struct {
		f    func(float64) (float64, bool)
		x, z float64
	}{
		{Sin, 1e22, -0.8522008497671888}, {Cos, 1e22, 0.523214785395139},
		{Cos, math.Ldexp(6381956970095103, 797), -4.687165924254628e-19},
		{Sin, math.Pi, 1.2246467991473532e-16}, {Cos, math.Pi / 2, 6.123233995736766e-17},
		{Tan, math.Pi / 2, 1.633123935319537e+16}, {Sin, math.MaxFloat64, 0.004961954789184062},
	} {
		if z, _ := c.f(c.x); z != c.z {
			t.Errorf("of %v: %v, want %v", c.x, z, c.z)
		}
	}
}
