// Tests of what the fork changed.

package lua

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

func newTestState(b Budget) *LState {
	L := NewState(Options{CallFrames: 2000, Registers: 256, MaxRegisters: 1 << 17,
		ThreadFrames: 200, ThreadRegisters: 1 << 16})
	set := func(name string, f LGFunction) { L.G.Global.RawSetString(name, L.NewFunction(f)) }
	set("setmetatable", func(L *LState) int {
		t, _ := L.Get(1).(*LTable)
		t.Metatable, _ = L.Get(2).(*LTable)
		L.SetTop(1)
		return 1
	})
	set("next", func(L *LState) int {
		k, v := L.Get(1).(*LTable).Next(L.Get(2))
		L.Push(k)
		L.Push(v)
		return 2
	})
	set("select", func(L *LState) int { return L.GetTop() - int(L.Get(1).(LNumber)) })
	set("count", func(L *LState) int { L.PushNumber(float64(L.GetTop())); return 1 })
	set("pcall", func(L *LState) int {
		if err := L.PCall(L.GetTop()-1, MultRet); err != nil {
			L.Push(LFalse)
			L.Push(err.Object)
			return 2
		}
		L.Insert(LTrue, 1)
		return L.GetTop()
	})
	set("create", func(L *LState) int { L.Push(L.NewCoroutine(L.Get(1).(*LFunction))); return 1 })
	set("resume", func(L *LState) int {
		n, err := L.Resume(L.Get(1).(*LState), L.GetTop()-1)
		if err != nil {
			L.Push(err.Object)
			return 1
		}
		return n
	})
	set("yield", func(L *LState) int {
		if !L.CanYield() {
			L.RaiseError("cannot yield")
		}
		return L.Yield()
	})
	L.Opened()
	L.Begin(b)
	return L
}

func plenty() Budget { return Budget{Instructions: 1 << 40, Bytes: 1 << 40} }

// run runs a source and returns its first result as text.
func run(L *LState, source string) string {
	p, err := compile(source, "x")
	if err != nil {
		return err.Error()
	}
	L.SetTop(0)
	L.Push(L.NewFunctionFromProto(p))
	if err := L.PCall(0, 1); err != nil {
		return "error " + err.Error()
	}
	switch v := L.Get(-1).(type) {
	case LString:
		return string(v)
	case LNumber:
		return FormatNumber(float64(v))
	case LBool:
		return fmt.Sprint(bool(v))
	}
	return L.Get(-1).Type().String()
}

func TestLanguage(t *testing.T) {
	long := "local t = {" + strings.Repeat("true,", 30_000) + "} return #t"
	for _, c := range []struct{ source, want string }{
		// Constructors.
		{long, "30000"},
		{"local t = {" + strings.Repeat("7,", 30_000) + "count(1, 2)} return #t + t[30001]",
			"30003"},
		{"local function f() return 1, 2, 3 end local t = {" + strings.Repeat("0,", 50) +
			"f()} return #t * 10 + t[51]", "531"},
		{"local t = {" + strings.Repeat("0,", 50) + "a = 1, b = 2} return t[1] .. t.a .. t.b .. #t",
			"01250"},
		{"local function f() return 1, 2 end local t = {f(), x = f()} return #t .. t.x", "11"},
		{"local function f() return 1, 2 end local t = {f(), f(), nil, 5, nil} return #t", "4"},
		// Numbers.
		{"return 010", "10"}, {"return 1e400", "inf"}, {"return 0x10", "16"},
		{"return 5 % 0.3 == 5 - 16 * 0.3", "true"}, {"return -2 ^ 2", "-4"},
		{"return 1e15 .. ' ' .. 0.1 .. ' ' .. -0.0", "1e+15 0.1 -0"},
		{"local n = 0 for i = '1', '0x3' do n = n + i end return n", "6"},
		{"for i = 1, {} do end", "error x:1: 'for' limit must be a number"},
		{"local z = 0 return (z * -1) .. ' ' .. -z .. ' ' .. ('0' * -1)", "0 -0 -0"},
		{"return '10' + 5", "15"}, {"return {} + 1",
			"error x:1: attempt to perform arithmetic on a table value"},
		{"return 2 + ('a')", "error x:1: attempt to perform arithmetic on a string value"},
		// Assignments read before they write.
		{"local a, b = 1, 2 a, b = b, a return a .. b", "21"},
		{"local t, i = {}, 1 i, t[i] = 2, 5 return t[1]", "5"},
		{"local a = 1 a = false and a return a", "false"},
		{"local function f() return nil end local a = 1 a = f() and a return a", "nil"},
		{"local function f() return 3, 4 end local a, b = 1 a, b = (f()) return a .. (b and 1 or " +
			"'n')", "3n"},
		{"local a, b, c = 0 a, b, c = count(1), select(1, 9, 8, 7) return a .. b .. c", "19" + "8"},
		{"local function f(a) local b = 1 a = (count(2)) return a + b end return f(0)", "2"},
		// Loops.
		{"local function f(s, i) if i < 3 then return i + 1 end end local n = 0 for i in f, nil, " +
			"0 do n = n + i end return n", "6"},
		{"local function it() return 0 end local n = 0 for i in function(s, c) return s and nil " +
			"end, it() do n = n + 1 end return n", "0"},
		{"local n = 0 while true do n = n + 1 if n > 5 then break end end return n", "6"},
		{"local n = 0 repeat local x = n n = n + 1 until x == 3 return n", "4"},
		{"local i = 0 while i < 3 do while false do end i = i + 1 end return i", "3"},
		{"local i = 0 repeat if nil then i = 9 end i = i + 1 until i == 2 or false return i", "2"},
		// Upvalues.
		{"local fs = {} for i = 1, 3 do fs[i] = function() i = i + 1 return i end end return " +
			"fs[1]() .. fs[1]() .. fs[2]() .. fs[3]()", "2334"},
		{"local f while true do do local y = 1 f = function() return y end break end end local z " +
			"= 2 return f()", "1"},
		{"local f for i = 1, 2 do local a = i do local b = i * 10 f = function() return a + b " +
			"end if i == 2 then break end end end local p, q = 5, 6 return f()", "22"},
		{"local function f(n) local a = n local g = function() a = a + 1 return a end if n == 0 " +
			"then return g end local h = f(n - 1) return function() return g() + h() end end " +
			"return f(3)()", "10"},
		{"local a = 1 local f = function() return a end a = 2 return f()", "2"},
		{"local function f() local a = 1 local get, set = function() return a end, function(v) a " +
			"= v end return get, set end local g, s = f() s(7) return g()", "7"},
		{"local x = 1 local co = create(function() x = x + 1 yield() x = x * 10 end) resume(co) " +
			"x = x + 1 resume(co) return x", "30"},
		{"local x = 1 local f pcall(function() local y = 5 f = function() y = y + 1 return y end " +
			"nothing() end) return f() + f()", "13"},
		// Calls.
		{"local function f(...) return count(...) end return f(1, nil, nil)", "3"},
		{"local function f(...) local a, b = ... return a .. b end return f(1, 2, 3)", "12"},
		{"local function f(...) return arg.n end return f(1, 2)", "2"},
		{"local t = setmetatable({}, {__call = function(self, a, b) return a + b end}) return " +
			"t(1, 2)", "3"},
		{"local x = 5 x()", "error x:1: attempt to call a number value"},
		{"local t = {} function t.a() return 1 end function t:b() return self == t end return " +
			"t.a() .. (t:b() and 'y' or 'n')", "1y"},
		{"local function f(n) if n == 0 then return 'deep' end return f(n - 1) end return f(1900)",
			"deep"},
		{"local function f() return f() + 1 end return f()", "error x:1: stack overflow"},
		// Coroutines.
		{"local co = create(function(a) local b = yield(a + 1) return b * 2 end) return " +
			"resume(co, 1) .. resume(co, 10)", "220"},
		{"local co = create(function() setmetatable({}, {__index = function() yield() end}).x = " +
			"nil local y = setmetatable({}, {__index = function() yield() end}).x end) return " +
			"resume(co)", "x:1: cannot yield"},
		{"local co = create(function() pcall(yield, 1) return 'on' end) return resume(co)", "on"},
		// Tables.
		{"local t = {} t[3] = 1 t[2] = 1 t[1] = 1 t[3] = nil return #t", "2"},
		{"local t = {} t.z = 1 t.a = 2 t.z = nil t.m = 3 t.z = 4 local s = '' for k, v in next, " +
			"t do s = s .. k end return s", "zam"},
		{"local t = {1, 2, 3, x = 1} local n = 0 for k in next, t do t[k] = nil n = n + 1 end " +
			"return n", "4"},
		{"local t = {} for i = 1, 100 do t['k' .. i] = i end for i = 1, 99 do t['k' .. i] = nil " +
			"end local k = next(t) return k", "k100"},
		{"local t = {} t[0/0] = 1", "error x:1: table index is NaN"},
		{"local t = {} t[nil] = 1", "error x:1: table index is nil"},
		{"x = 1", "error x:1: Attempt to modify a readonly table"},
		{"local a, b = setmetatable({}, {__eq = function() return true end}), setmetatable({}, " +
			"{}) return a == b", "false"},
		{"local m = {__lt = function(a, b) return a.v < b.v end} local a, b = setmetatable({v = " +
			"1}, m), setmetatable({v = 2}, m) return (a < b) == (b > a) and a <= b", "true"},
		{"return {} < {}", "error x:1: attempt to compare two table values"},
		{"return 1 < 'a'", "error x:1: attempt to compare number with string"},
		{"return 'a' .. {}", "error x:1: attempt to concatenate a table value"},
		// Conditions.
		{"local function f(x) return x and 1 or 2 end return f(true) .. f(false) .. f(nil)", "122"},
		{"local a = nil return not (a and a.b) == true", "true"},
		{"return (nil or false) == false", "true"},
		{"local n = 0 for i = 1, 4 do if i == 2 or i == 3 and true then n = n + i end end return n",
			"5"},
		{"local a, b = 1 return (a and b or 'c') .. tostring",
			"error x:1: attempt to concatenate a nil value"},
	} {
		if got := run(newTestState(plenty()), c.source); got != c.want {
			t.Errorf("%.120s: %q, want %q", c.source, got, c.want)
		}
	}
}

// A function may have as many constants as an instruction can name; more are an error.
func TestManyConstants(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "s=%d.5 ", i)
		}
		return "local s = 0 " + b.String() + "return s"
	}
	if got := run(newTestState(plenty()), many(100_000)); got != "99999.5" {
		t.Error(got)
	}
	if _, err := compile(many(1<<18+1), "x"); err == nil ||
		!strings.Contains(err.Error(), "too many constants") {
		t.Error(err)
	}
}

// There may be more labels than a jump could name; a loop longer than a jump is an error.
func TestManyJumps(t *testing.T) {
	if got := run(newTestState(plenty()), "local n, a = 0, true "+
		strings.Repeat("if a then n = n + 1 end ", 20_000)+"return n"); got != "20000" {
		t.Error(got)
	}
	if _, err := compile("while true do "+strings.Repeat("a() ", 70_000)+" end", "x"); err == nil ||
		!strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
	if _, err := compile("for i = 1, 2 do "+strings.Repeat("a() ", 70_000)+" end",
		"x"); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Error(err)
	}
}

func TestUpvaluesHaveALimit(t *testing.T) {
	source := func(functions int) string {
		var b strings.Builder
		b.WriteString("return 1 + (function() ")
		names := ""
		for f := range functions {
			for i := range 100 {
				fmt.Fprintf(&b, "local v%d_%d = 1 ", f, i)
				names += fmt.Sprintf("v%d_%d + ", f, i)
			}
			b.WriteString("return (function() ")
		}
		b.WriteString("return " + names + "0 " + strings.Repeat("end)() ", functions) + "end)()")
		return b.String()
	}
	if got := run(newTestState(plenty()), source(2)); got != "201" {
		t.Error(got)
	}
	if got := run(newTestState(plenty()), source(3)); !strings.Contains(got,
		"more than 255 upvalues") {
		t.Error(got)
	}
}

// No pcall outlives a spent budget.
func TestBudgetEndsAll(t *testing.T) {
	for _, c := range []struct {
		b    Budget
		want string
	}{{Budget{Instructions: 10_000, Bytes: 1 << 30}, ErrInstructions},
		{Budget{Instructions: 1 << 40, Bytes: 100_000}, ErrMemory}} {
		L := newTestState(c.b)
		got := run(L,
			"while true do pcall(function() local t = {} while true do t[#t + 1] = {} end end) end")
		if !strings.HasSuffix(got, c.want) || L.G.Budget.Spent() != c.want {
			t.Errorf("%q, spent %q", got, L.G.Budget.Spent())
		}
	}
}

// States that run concurrently share compiled functions.
func TestPrototypesAreShared(t *testing.T) {
	p, err := compile(
		"local t = {} for i = 1, 1000 do t[i] = function() return i .. 'x' end end return "+
			"t[1000]()", "x")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	for range 4 {
		go func() {
			L := newTestState(plenty())
			L.Push(L.NewFunctionFromProto(p))
			if err := L.PCall(0, 1); err != nil {
				done <- err.Error()
				return
			}
			s, _ := L.Get(-1).(LString)
			done <- string(s)
		}()
	}
	for range 4 {
		if got := wait.Receive(t, 30*time.Second, "a result", done); got != "1000x" {
			t.Error(got)
		}
	}
}

// compile compiles a source of any number of tokens.
func compile(source, name string) (*FunctionProto, error) {
	p, _, err := Compile(source, name, Limits{Released: true})
	return p, err
}

// TestEndForgetsFrames: a state keeps nothing of a run that has ended, however deep it called.
func TestEndForgetsFrames(t *testing.T) {
	L := NewState(Options{CallFrames: 200, Registers: 256, MaxRegisters: 1 << 12})
	proto, _, err := Compile("local function f(n) if n > 0 then f(n - 1) end return 1 end f(150)",
		"test", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	L.Push(L.NewFunctionFromProto(proto))
	if err := L.PCall(0, 0); err != nil {
		t.Fatal(err.Object)
	}
	L.End()
	for i := range L.frames {
		if L.frames[i].fn != nil {
			t.Fatalf("frame %d is kept", i)
		}
	}
}
