// Random Lua programs run here and on a real redis-server, and the values that they record are
// compared. They test the compiler and the virtual machine: which variable has which value after
// which statement.

package script

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/tests/tier"
)

func TestRandomProgramsLikeRedis(t *testing.T) {
	real := commandtest.DialRedis(t)
	here := newNode()
	g := &programMaker{Rand: rand.New(rand.NewPCG(seeds.Of(t), 1))}
	programs := 150
	if tier.Soaking() {
		programs = 2000
	}
	for i := range programs {
		// small ones first, so that a failure is readable
		source := g.program(1 + i*12/programs)
		args := commandtest.Args("EVAL", source, "0")
		want, err := real.Do(args)
		if err != nil {
			t.Fatalf("%s\nredis-server: %v", source, err)
		}
		got, err := here.Do(args)
		if err != nil {
			t.Fatalf("%s\n%v", source, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s\n  redis  %q\n  coordd %q", source, want, got)
		}
	}
}

// programMaker makes programs. They end: loops have bounds, and functions call only earlier ones.
type programMaker struct {
	*rand.Rand
	out    strings.Builder
	locals []string // visible variables
	funcs  []string // visible functions
	depth  int      // of blocks
	vararg bool     // the innermost function has `...`
	names  int
}

// frame is the program around the random part. An error ends it, and what was recorded before
// counts.
const programFrame = `local log, plain = {}, tostring
local function tostring(v) -- the signs of NaN and of zero are not to be compared
  if v ~= v then return "nan" elseif v == 0 then return "0" elseif v == -1/0 then return "inf" end
  return type(v) == "table" and "T" or type(v) == "function" and "F" or plain(v):sub(1, 40)
end
local function show(v)
  if type(v) ~= "table" then return tostring(v) end
  local s = "{"
  for i = 1, 4 do s = s .. tostring(v[i]) .. " " end
  return s .. tostring(v.x) .. " " .. tostring(v.y) .. "}"
end
local function note(...)
  local s = select("#", ...) .. ":"
  for i = 1, select("#", ...) do s = s .. " " .. show((select(i, ...))) end
  log[#log + 1] = s
  return ...
end
local ok = pcall(function()
%s
end)
log[#log + 1] = tostring(ok)
return log`

func (g *programMaker) program(statements int) string {
	g.out.Reset()
	g.locals, g.funcs, g.depth, g.vararg, g.names = nil, nil, 0, false, 0
	for _, name := range []string{"a", "b", "c", "d"} {
		fmt.Fprintf(&g.out, "local %s = %s\n", name, g.constant())
		g.locals = append(g.locals, name)
	}
	g.out.WriteString("local t, u = {1, 2, 3, x = 'tx'}, {x = 5}\n")
	for range statements {
		g.statement()
	}
	g.out.WriteString("note(a, b, c, d, t, u)\n")
	return fmt.Sprintf(programFrame, g.out.String())
}

func (g *programMaker) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g *programMaker) constant() string {
	return g.pick("0", "1", "2", "3.5", "-4", "10", "'s'", "'7'", "''", "nil", "true", "false")
}

// variable is something that can be read and assigned.
func (g *programMaker) variable() string {
	if g.IntN(4) == 0 {
		return g.pick("t", "u") + g.pick("[1]", "[2]", "[3]", ".x", ".y", "["+g.small()+"]", "[#t]")
	}
	return g.pick(g.locals...)
}

// small returns an expression for an index.
func (g *programMaker) small() string { return g.pick("1", "2", "1 + 1", "(3)") }

func (g *programMaker) expr(depth int) string {
	if depth <= 0 {
		return g.pick(g.constant(), g.variable(), g.variable())
	}
	e := func() string { return g.expr(depth - 1) }
	switch g.IntN(16) {
	case 0, 1:
		return e() + " and " + e()
	case 2, 3:
		return e() + " or " + e()
	case 4:
		return "not " + e()
	case 5:
		return "(" + e() + ")"
	case 6:
		return "(" + e() + g.pick(" == ", " ~= ") + e() + ")"
	case 7:
		return "(" + g.number(depth-1) + g.pick(" < ", " <= ", " > ", " >= ") + g.number(depth-1) +
			")"
	case 8, 9:
		return g.number(depth)
	case 10:
		return "(tostring(" + e() + ") .. tostring(" + e() + ")" + g.pick("", " .. 'z'", " .. 1") +
			")"
	case 11:
		return g.call(depth - 1)
	case 12:
		return "note(" + e() + g.pick("", ", "+e()) + ")"
	case 13:
		if g.vararg {
			return g.pick("(...)", "select('#', ...)", "...")
		}
		return "{" + e() + ", x = " + e() + g.pick("", ", "+g.call(depth-1)) + "}"
	case 14:
		return "(" + g.closure(depth-1) + ")(" + e() + ")"
	}
	return g.pick(g.constant(), g.variable())
}

// number returns an expression that is usually a number.
func (g *programMaker) number(depth int) string {
	if depth <= 0 {
		return g.pick("1", "2.5", "-3", "(tonumber("+g.variable()+") or 4)", "#t")
	}
	left := g.number(depth - 1)
	if g.IntN(5) == 0 { // not by zero: its sign may be lost here
		return "(" + left + " / " + g.pick("2", "-4", "2.5") + ")"
	}
	return "(" + left + g.pick(" + ", " - ", " * ", " % ") + g.number(depth-1) + ")"
}

func (g *programMaker) list(depth int) string {
	parts := make([]string, 1+g.IntN(3))
	for i := range parts {
		parts[i] = g.expr(depth)
	}
	return strings.Join(parts, ", ")
}

func (g *programMaker) call(depth int) string {
	if len(g.funcs) == 0 {
		return "note(" + g.list(depth) + ")"
	}
	return g.pick(g.funcs...) + "(" + g.list(depth) + ")"
}

// closure returns a small function that reads and changes its surroundings.
func (g *programMaker) closure(depth int) string {
	vararg := g.vararg
	g.vararg = g.IntN(3) == 0
	parameters, body := "p", ""
	if g.vararg {
		parameters = "p, ..."
	}
	if g.IntN(2) == 0 {
		body = g.targets() + " = " + g.list(depth) + " "
	}
	body += "return " + g.pick("p", g.list(depth), "p, "+g.expr(depth))
	g.vararg = vararg
	return "function(" + parameters + ") " + body + " end"
}

// targets returns the left side of an assignment, with each variable once: C Lua does not define
// the order of assignments.
func (g *programMaker) targets() string {
	var list []string
	for range 1 + g.IntN(3) {
		if v := g.variable(); !strings.Contains(","+strings.Join(list, ",")+",", ","+v+",") &&
			!strings.Contains(v, "[") {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		return "a"
	}
	return strings.Join(list, ",")
}

func (g *programMaker) block() {
	locals, funcs := len(g.locals), len(g.funcs)
	g.depth++
	for range 1 + g.IntN(3) {
		g.statement()
	}
	g.depth--
	g.locals, g.funcs = g.locals[:locals], g.funcs[:funcs]
}

func (g *programMaker) name(prefix string) string {
	g.names++
	return fmt.Sprint(prefix, g.names)
}

func (g *programMaker) write(format string, args ...any) {
	fmt.Fprintf(&g.out, format+"\n", args...)
}

func (g *programMaker) statement() {
	if g.depth > 3 || g.IntN(2) == 0 {
		g.simple()
	} else {
		g.compound()
	}
}

// simple writes a statement without a block.
func (g *programMaker) simple() {
	w := g.write
	switch g.IntN(8) {
	case 0, 1, 2:
		w("%s = %s", g.targets(), g.list(2))
	case 3:
		v, value := g.variable(), g.expr(3)
		if strings.Contains(v, "[") {
			value = "(" + value + ") or 0" // no holes: the border of such a table is undefined
		}
		w("%s = %s", v, value)
	case 4:
		w("note(%s)", g.list(2))
	case 5:
		name := g.pick(g.name("v"), g.pick(g.locals...))
		w("local %s = %s", name, g.expr(2))
		g.locals = append(g.locals, name)
	case 6:
		one, two := g.name("v"), g.pick(g.locals...)
		w("local %s, %s = %s", one, two, g.list(2))
		g.locals = append(g.locals, one, two)
	case 7:
		w("table.insert(t, 1, %s)", g.pick("1", "'q'", "("+g.variable()+") or 0"))
	}
}

// compound writes a statement with blocks.
func (g *programMaker) compound() {
	w := g.write
	switch g.IntN(10) {
	case 0, 1:
		w("if %s then", g.expr(2))
		g.block()
		if g.IntN(2) == 0 {
			w("elseif %s then", g.expr(2))
			g.block()
		}
		if g.IntN(2) == 0 {
			w("else")
			g.block()
		}
		w("end")
	case 2:
		name := g.name("i")
		w("for %s = %s do", name, g.pick("1, 2", "3, 1, -1", "0, 1, 0.5", "1, 0"))
		g.loop(name)
		w("end")
	case 3:
		i, v := g.name("i"), g.name("e")
		w("for %s, %s in ipairs({%s}) do", i, v, g.list(1))
		g.loop(i, v)
		w("end")
	case 4:
		n := g.name("n")
		w("local %s = 0", n)
		if g.IntN(2) == 0 {
			w("while %s < 2 and (%s) do %s = %s + 1", n, g.pick("true", g.expr(1)), n, n)
			g.loop()
			w("end")
		} else {
			w("repeat %s = %s + 1", n, n)
			g.loop()
			w("until %s >= 2 or %s", n, g.expr(1))
		}
	case 5:
		name := g.name("f")
		if g.IntN(2) == 0 {
			w("local %s = %s", name, g.closure(2))
		} else {
			w("local function %s(...)", name)
			vararg := g.vararg
			g.vararg = true
			g.block()
			w("return %s end", g.list(1))
			g.vararg = vararg
		}
		g.funcs = append(g.funcs, name)
	case 6:
		w("do")
		g.block()
		w("end")
	case 7:
		w("note(pcall(function()")
		vararg := g.vararg
		g.vararg = false
		g.block()
		w("return %s end))", g.list(1))
		g.vararg = vararg
	case 8:
		v := g.name("e")
		w("for %s in coroutine.wrap(function()", v)
		vararg := g.vararg
		g.vararg = false
		g.block()
		w("note(coroutine.yield(%s))", g.list(1))
		g.block()
		g.vararg = vararg
		w("coroutine.yield(%s) end) do", g.expr(1))
		g.loop(v)
		w("end")
	case 9:
		k, e := g.name("k"), g.name("e")
		w("for %s, %s in pairs(setmetatable({%s}, {__index = %s})) do", k, e, g.list(1),
			g.closure(1))
		g.loop(k, e)
		w("end")
	}
}

func (g *programMaker) loop(names ...string) {
	n := len(g.locals)
	g.locals = append(g.locals, names...)
	switch g.IntN(8) {
	case 0:
		g.write("do break end")
	case 1:
		g.write("if %s then break else", g.expr(1))
		g.block()
		g.write("end")
	}
	g.block()
	if g.IntN(4) == 0 {
		fmt.Fprintf(&g.out, "if %s then break end\n", g.expr(1))
	}
	g.locals = g.locals[:n]
}
