// The math library, with its own generator, and os.clock.

package script

import (
	"math"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/libm"
)

// luaRandom generates the numbers of math.random: splitmix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014).
type luaRandom struct{ state uint64 }

func (g *luaRandom) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float returns a number from 0 up to but not including 1.
func (g *luaRandom) float() float64 { return float64(float64(g.next()>>11) / (1 << 53)) }

func (in *interpreter) openMath() *lua.LTable {
	L := in.L
	list := []libraryFunction{
		{"abs", mathOf(math.Abs)}, {"acos", in.rounded(libm.Acos, releasedAcos)},
		{"asin", in.rounded(libm.Asin, releasedAsin)},
		{"atan", in.rounded(libm.Atan, releasedAtan)},
		{"atan2", in.roundedOfTwo(libm.Atan2, releasedAtan2)}, {"ceil", mathOf(math.Ceil)},
		{"cos", in.rounded(libm.Cos, releasedCos)}, {"cosh", in.rounded(libm.Cosh, releasedCosh)},
		{"deg", mathOf(func(f float64) float64 {
			return f / (math.Pi / 180)
		})}, {"exp", in.rounded(libm.Exp, releasedExp)}, {"floor", mathOf(math.Floor)},
		{"fmod", mathFmod}, {"frexp", mathFrexp}, {"ldexp", mathLdexp},
		{"log", in.rounded(libm.Log, releasedLog)},
		{"log10", in.rounded(libm.Log10, releasedLog10)},
		{"max", mathMax}, {"min", mathMin}, {"mod", mathFmod}, {"modf", mathModf},
		{"pow", in.roundedOfTwo(libm.Pow, releasedPow)},
		{"rad", mathOf(func(f float64) float64 {
			return float64(f * (math.Pi / 180))
		})}, {"random", in.mathRandom}, {"randomseed", in.mathRandomSeed},
		{"sin", in.rounded(libm.Sin, releasedSin)}, {"sinh", in.rounded(libm.Sinh, releasedSinh)},
		{"sqrt", mathOf(math.Sqrt)},
		{"tan", in.rounded(libm.Tan, releasedTan)}, {"tanh", in.rounded(libm.Tanh, releasedTanh)},
	}
	lib := newLibrary(L, list)
	lib.RawSetString("pi", lua.LNumber(math.Pi))
	lib.RawSetString("huge", lua.LNumber(math.Inf(1)))
	return lib
}

func pushNumber(L *lua.LState, f float64) int {
	L.PushNumber(f)
	return 1
}

// The cost of a function of one or two numbers, and of one of package libm, unless it is hard.
const (
	mathInstructions = 3
	libmInstructions = 8
)

// rounded returns a function of package libm, or what it was below LevelSecond.
func (in *interpreter) rounded(f func(x float64) (z float64, hard bool),
	released func(x float64) float64) lua.LGFunction {
	if !in.L.G.RoundsPowers {
		return mathOf(released)
	}
	return func(L *lua.LState) int {
		budgetOf(L).Charge(L, libmInstructions)
		z, hard := f(checkNumber(L, 1))
		return pushRounded(L, z, hard)
	}
}

// roundedOfTwo is rounded for functions of two numbers.
func (in *interpreter) roundedOfTwo(f func(x, y float64) (z float64, hard bool),
	released func(x, y float64) float64) lua.LGFunction {
	if !in.L.G.RoundsPowers {
		return mathOfTwo(released)
	}
	return func(L *lua.LState) int {
		budgetOf(L).Charge(L, libmInstructions)
		z, hard := f(checkNumber(L, 1), checkNumber(L, 2))
		return pushRounded(L, z, hard)
	}
}

func pushRounded(L *lua.LState, z float64, hard bool) int {
	if hard {
		budgetOf(L).Charge(L, lua.HardUnits)
	}
	return pushNumber(L, z)
}

func mathOf(f func(float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		budgetOf(L).Charge(L, mathInstructions)
		return pushNumber(L, f(checkNumber(L, 1)))
	}
}

func mathOfTwo(f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		budgetOf(L).Charge(L, mathInstructions)
		return pushNumber(L, f(checkNumber(L, 1), checkNumber(L, 2)))
	}
}

// mathFmod is fmod, which subtracts once for each power of two between its arguments.
func mathFmod(L *lua.LState) int {
	a, b := checkNumber(L, 1), checkNumber(L, 2)
	_, high := math.Frexp(a)
	_, low := math.Frexp(b)
	budgetOf(L).Charge(L, mathInstructions+int64(max(0, high-low)))
	return pushNumber(L, math.Mod(a, b))
}

func mathFrexp(L *lua.LState) int {
	fraction, exponent := math.Frexp(checkNumber(L, 1))
	L.Push(lua.LNumber(fraction))
	L.Push(lua.LNumber(exponent))
	return 2
}

func mathLdexp(L *lua.LState) int {
	return pushNumber(L, math.Ldexp(checkNumber(L, 1), checkInt(L, 2)))
}

func mathModf(L *lua.LState) int {
	f := checkNumber(L, 1)
	whole := math.Trunc(f)
	fraction := f - whole
	if math.IsInf(f, 0) {
		fraction = math.Copysign(0, f)
	}
	L.Push(lua.LNumber(whole))
	L.Push(lua.LNumber(fraction))
	return 2
}

func mathMax(L *lua.LState) int {
	best := checkNumber(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		if f := checkNumber(L, i); f > best {
			best = f
		}
	}
	return pushNumber(L, best)
}

func mathMin(L *lua.LState) int {
	best := checkNumber(L, 1)
	for i := 2; i <= L.GetTop(); i++ {
		if f := checkNumber(L, i); f < best {
			best = f
		}
	}
	return pushNumber(L, best)
}

// mathRandom returns a float below 1, or an integer from 1 to n, or from m to n.
func (in *interpreter) mathRandom(L *lua.LState) int {
	r := in.random.float()
	low, high := 1, 0
	switch L.GetTop() {
	case 0:
		return pushNumber(L, r)
	case 1:
		if high = checkInt(L, 1); high < 1 {
			argError(L, 1, "interval is empty")
		}
	case 2:
		low, high = checkInt(L, 1), checkInt(L, 2)
		if low > high {
			argError(L, 2, "interval is empty")
		}
	default:
		raise(L, "wrong number of arguments")
	}
	span := float64(high) - float64(low) + 1
	step := math.Floor(float64(r * span))
	return pushNumber(L, step+float64(low))
}

func (in *interpreter) mathRandomSeed(L *lua.LState) int {
	in.random.state = uint64(int64(checkInt(L, 1)))
	return 0
}

// instructionsPerSecond converts instructions into the seconds of os.clock.
const instructionsPerSecond = 20_000_000

// osClock derives the script's processor time from its instruction count: clocks differ between
// nodes.
func (in *interpreter) osClock(L *lua.LState) int {
	most := int64(scriptInstructions)
	if in.x != nil {
		most = int64(in.x.RequestWork())
	}
	return pushNumber(L, float64(most-in.budget.Instructions)/instructionsPerSecond)
}
