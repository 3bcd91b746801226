// The functions of math and the operator ^: from LevelSecond on the exact result, rounded.

package script

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/libm"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// elementary are the functions of package libm by their names in math, and how many numbers they
// take.
var elementary = map[string]int{"acos": 1, "asin": 1, "atan": 1, "atan2": 2, "cos": 1, "cosh": 1,
	"exp": 1, "log": 1, "log10": 1, "pow": 2, "sin": 1, "sinh": 1, "tan": 1, "tanh": 1}

func elementaryNames() (names []string) {
	for name := range elementary {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mathArgument returns a number as a script has it: a round one, or any.
func mathArgument(r *rand.Rand, i int) float64 {
	x := float64(r.IntN(2000)-1000) / float64(1+r.IntN(16))
	switch i % 4 {
	case 1:
		x = float64(r.IntN(200) - 100)
	case 2:
		x = math.Float64frombits(r.Uint64()&^(0x7ff<<52) | (1013+r.Uint64N(16))<<52)
	case 3:
		x = (r.Float64()*2 - 1) * []float64{1, 10, 700, 1e6}[r.IntN(4)]
	}
	return x
}

// numbers shows the results of a function for a list of arguments, with all digits, in one state.
func numbers(t testing.TB, L *lua.LState, name string, list []float64) []string {
	t.Helper()
	L.Begin(lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
	v, err := evalHere(L, numbersSource(name, list))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(showValue(v))
}

func numbersSource(name string, list []float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "local f, n, t, r = math.%s, %d, {", name, elementary[name])
	for _, x := range list {
		fmt.Fprintf(&b, "%s,", strconv.FormatFloat(x, 'g', 17, 64))
	}
	b.WriteString("}, {} for i = 1, #t, 2 do r[#r + 1] = string.format('%.17g', n == 1 and " +
		"f(t[i]) or f(t[i], t[i + 1])) end return (table.concat(r, ' '):gsub('%-nan', 'nan'))")
	return b.String()
}

// The bits of every function in scripts are the same for ever, on every processor.
func TestMathDigest(t *testing.T) {
	h := fnv.New64a()
	for _, name := range elementaryNames() {
		var list []float64
		r := rand.NewPCG(1, 2)
		for range 1000 {
			b := r.Uint64()
			list = append(list, math.Float64frombits(b&^(0x7ff<<52)|(1018+b>>52&0xf)<<52))
		}
		for _, s := range numbers(t, libraryState(t), name, list) {
			h.Write([]byte(s))
		}
	}
	if got := h.Sum64(); got != 0x2c29d4a66b81b597 {
		t.Errorf("%#x", got)
	}
}

// Results do not depend on what the processor can do.
func TestMathWithoutProcessorFeatures(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: other processors may be emulated, which a second process is not")
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestMathDigest$", "-test.count", "1")
	cmd.Env = append(os.Environ(), "GODEBUG=cpu.fma=off,cpu.avx2=off,cpu.sse41=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// What people expect of round numbers, and get from Redis.
func TestMathOfRoundNumbers(t *testing.T) {
	const source = `return table.concat({math.floor(8^(1/3)), math.ceil(math.log(9)/math.log(3)), ` +
		`tostring(10^-28 == 1e-28), tostring(1.05^40), math.log10(1000), 10^22 == 1e22 and 1 or 0, ` +
		`string.format('%.17g', math.exp(1)), string.format('%.17g', 2^0.5)}, ' ')`
	want := "2 2 true 7.0399887121247 3 1 2.7182818284590451 1.4142135623730951"
	v, err := evalHere(libraryState(t), source)
	if err != nil || showValue(v) != want {
		t.Errorf("%v, %v, want %s", showValue(v), err, want)
	}
	if redis := startRedis(t); redis.eval(t, source) != want {
		t.Errorf("on Redis: %s", redis.eval(t, source))
	}
}

// Scripts that hard powers are given pay for them.
func TestHardPowersAreCharged(t *testing.T) {
	const hard = `0x1.0000000000003p+00, 0x1.5555555555557p-03`
	for _, source := range []string{
		`local x, y = tonumber('%s'), tonumber('%s') return x ^ y`,
		`local x, y = '%s', '%s' return x ^ y`,
		`local x, y = tonumber('%s'), tonumber('%s') return math.pow(x, y)`,
		`return 1.0000000000000006661338147750939242541790008544921875 ^ ` +
			`0.166666666666666712925959359381522517651319503784179687500 -- %s%s`,
	} {
		x, y, _ := strings.Cut(hard, ", ")
		L := libraryState(t)
		L.Begin(lua.Budget{Instructions: 1 << 40, Bytes: 1 << 40})
		if _, err := evalHere(L, fmt.Sprintf(source, x, y)); err != nil {
			t.Fatal(err)
		}
		used := 1<<40 - L.G.Budget.Instructions
		if used < lua.HardUnits || used > 2*lua.HardUnits {
			t.Errorf("%s: charged %d units", source, used)
		}
	}
}

// At each level a script has the powers of that level, also the constant ones, and also a script
// that an earlier level has compiled.
func TestPowersOfLevels(t *testing.T) {
	x, y := 1.0, 0.3
	for differs := false; !differs; {
		x += 0.0625
		z, _ := libm.Pow(x, y)
		differs = z != math.Pow(x, y)
	}
	rounded, _ := libm.Pow(x, y)
	source := fmt.Sprintf("local x = %v return string.format('%%.17g %%.17g %%.17g %%.17g', "+
		"x ^ 0.3, %v ^ 0.3, math.pow(x, 0.3), 2 * (%v ^ 0.3 + 0))", x, x, x)
	show := func(z float64) string {
		s := strconv.FormatFloat(z, 'g', 17, 64)
		return s + " " + s + " " + s + " " + strconv.FormatFloat(2*z, 'g', 17, 64)
	}
	for _, compiled := range []uint64{commands.LevelFirst, commands.LevelSecond} {
		p, err := compileScript([]byte(source), compiled)
		if err != nil {
			t.Fatal(err)
		}
		for _, now := range []bool{false, true} {
			if !now && strict(compiled) {
				continue // levels never fall
			}
			L := newInterpreter(testTable(), now).L
			L.PushMain(p.proto)
			if err := L.PCall(0, 1); err != nil {
				t.Fatal(err)
			}
			want := show(math.Pow(x, y))
			if now {
				want = show(rounded)
			}
			if got := showValue(L.Get(-1)); got != want {
				t.Errorf("compiled at level %d, at LevelSecond: %v: %s, want %s", compiled, now,
					got, want)
			}
		}
	}
}

// Redis's results are those of its C library, which are the nearest number or, now and then, a
// neighbor. COORDD_MATH is how many arguments of each function to try.
func TestMathAsRedis(t *testing.T) {
	calls := 2000
	if n, _ := strconv.Atoi(os.Getenv("COORDD_MATH")); n > 0 {
		calls = n
	}
	redis := startRedis(t)
	r := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for _, name := range elementaryNames() {
		differ, worst, round := 0, int64(0), 0
		for n := 0; n < calls; n += 1000 {
			list := make([]float64, 2000)
			for i := range list {
				list[i] = mathArgument(r, i/2)
			}
			here := numbers(t, redis.here, name, list)
			there := strings.Fields(redis.eval(t, numbersSource(name, list)))
			for i := range here {
				if here[i] == there[i] {
					continue
				}
				a, _ := strconv.ParseFloat(here[i], 64)
				b, _ := strconv.ParseFloat(there[i], 64)
				apart := int64(math.Float64bits(a) - math.Float64bits(b))
				differ++
				if worst = max(worst, apart, -apart); i%4 < 2 {
					round++
				}
				if apart > 2 || apart < -2 {
					t.Errorf("%s(%v, %v) = %s, on Redis %s", name, list[2*i], list[2*i+1], here[i],
						there[i])
				}
			}
		}
		t.Logf("%s: %d of %d differ, %d of them of round numbers, by %d units at most", name,
			differ, calls, round, worst)
	}
}
