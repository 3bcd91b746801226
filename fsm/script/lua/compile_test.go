package lua

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// fill concatenates lines until the source has n bytes.
func fill(n int, line func(i int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(line(i))
	}
	return b.String()
}

// largeSources returns sources of about n bytes, each of which is hard for some part of a compiler.
func largeSources(n int) map[string]string {
	same := func(s string) func(int) string { return func(int) string { return s } }
	nested := strings.Repeat("do local a = 1 ", 300)
	wide := strings.Repeat("local a = 1 ", 150)
	return map[string]string{
		"constants":   fill(n, func(i int) string { return fmt.Sprintf("x(%d.5)", i) }),
		"strings":     fill(n, func(i int) string { return fmt.Sprintf("x'%d'", i) }),
		"globals":     fill(n, func(i int) string { return fmt.Sprintf("x%d()", i) }),
		"calls":       fill(n, same("a()")),
		"ifs":         fill(n, same("if a then end ")),
		"functions":   fill(n, same("f(function()end)")),
		"closures":    "local a " + fill(n, same("f(function()a=1 end)")),
		"table":       "x={" + fill(n, same("1,")) + "}",
		"keyed table": "x={" + fill(n, same("a=1,")) + "}",
		"nested table": "x={" +
			fill(n, same(strings.Repeat("{", 400)+strings.Repeat("}", 400)+",")) + "}",
		"sums":          fill(n, same("x("+strings.Repeat("1+a+", 400)+"1)")),
		"constant sums": fill(n, same("x("+strings.Repeat("1+", 800)+"1)")),
		"concats":       fill(n, same("x("+strings.Repeat("a..", 190)+"a)")),
		"conditions":    fill(n, same("x("+strings.Repeat("a and b or ", 200)+"c)")),
		"names":         fill(n, same("a.b.c.d.e.f.g()")),
		"in blocks":     nested + fill(n, same("b()")) + strings.Repeat(" end", 300),
		"in functions": strings.Repeat("f(function() "+wide, 200) + fill(n, same("b()")) +
			strings.Repeat(" end)", 200),
		"upvalues": strings.Repeat("local x1,x2,x3,x4,x5,x6,x7,x8 f(function() ", 200) +
			fill(n/2, same("x1=x2 ")) + strings.Repeat(" end)", 200),
		"comments":    fill(n, same("--[[x]]")),
		"line breaks": fill(n, same("\n")),
		"long string": "x='" + fill(n, same("y")) + "'",
		"escapes":     "x='" + fill(n, same(`\n`)) + "'",
		"brackets":    fill(n, same("(")),
		"braces":      fill(n, same("{")),
		"nots":        "x=" + fill(n, same("not ")),
		"powers":      "x=" + fill(n, same("a^")),
		"elseifs":     "if a then " + fill(n, same("elseif a then ")) + " end",
		"assignments": fill(n, same("x,y,z=a,b,c ")),
		"parameters":  fill(n, same("f(function(a,b,c,d,e,f,g)end)")),
		"do":          fill(n, same("do ")),
		"function f":  fill(n, same("function f() ")),
		"equals":      "x=[" + fill(n, same("=")),
		"numbers":     "x=" + fill(n, same("1")),
	}
}

// Allocation is proportional to the source, whatever it contains, and nothing makes the compiler
// panic or overflow Go's stack.
func TestCompileIsLinear(t *testing.T) {
	allocated := func(source string) (bytes uint64, err error) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = compile(source, "x")
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, err
	}
	const n = 1 << 16
	large := largeSources(4 * n)
	for name, source := range largeSources(n) {
		small, errSmall := allocated(source)
		times4, errLarge := allocated(large[name])
		if (errSmall == nil) != (errLarge == nil) {
			t.Logf("%s: %v, then %v", name, errSmall, errLarge)
			continue
		}
		if times4 > 6*small+1<<20 {
			t.Errorf("%s: %d bytes for %d of source, %d for %d", name, small, len(source), times4,
				len(large[name]))
		}
		if most := uint64(300*len(large[name]) + 64<<20); times4 > most {
			t.Errorf("%s: %d bytes for %d of source", name, times4, len(large[name]))
		}
	}
}

// A number that is slow to read counts for more than one token.
func TestNumeralsCount(t *testing.T) {
	for numeral, least := range map[string]int{"1": 3, "1.5e22": 3, "0xffffffffffffffffffff": 3,
		"1e-310": 33, "2.2250738585072011e-308": 33, strings.Repeat("1", 800): 133} {
		_, tokens, err := Compile("return "+numeral, "x", Limits{})
		if err != nil || tokens < least || least == 3 && tokens > 3 {
			t.Errorf("%s: %d tokens, want %d; %v", numeral, tokens, least, err)
		}
	}
}

// A variable that is used in nested functions counts in each of them.
func TestLinksCount(t *testing.T) {
	const depth, variables = 50, 20
	names, uses := make([]string, variables), make([]string, variables)
	for i := range names {
		names[i] = fmt.Sprintf("a%d", i)
		uses[i] = names[i] + "()"
	}
	source := "local " + strings.Join(names, ",") + strings.Repeat(" f(function()", depth) +
		strings.Join(uses, " ") + strings.Repeat(" end)", depth)
	proto, tokens, err := Compile(source, "x", Limits{Released: true})
	if err != nil {
		t.Fatal(err)
	}
	_, all, err := Compile(source, "x", Limits{})
	if err != nil || all != tokens+depth*variables {
		t.Errorf("%d tokens, with links %d: %v", tokens, all, err)
	}
	for limit, ok := range map[int]bool{all: true, all - 1: false, tokens: false} {
		_, got, err := Compile(source, "x", Limits{Tokens: limit})
		if (err == nil) != ok || got > limit+1 {
			t.Errorf("%d allowed: %d, %v", limit, got, err)
		}
	}
	runtime.KeepAlive(proto)
}

// A limit stops the compiler at that token.
func TestTokenLimit(t *testing.T) {
	for tokens, ok := range map[int]bool{4: false, 5: true, 6: true} {
		_, got, err := Compile("return 1 + a", "x", Limits{Tokens: tokens})
		if (err == nil) != ok || ok && got != 5 {
			t.Errorf("%d tokens allowed: %d, %v", tokens, got, err)
		}
	}
}
