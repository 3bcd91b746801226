// A script's result as a reply.

package script

import (
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

// maxReplyDepth bounds tables in tables, which may contain themselves.
const maxReplyDepth = 100

var spaceForBreak = strings.NewReplacer("\r", " ", "\n", " ")

const errReplyDepth = "ERR reached lua stack limit"

// answer writes the script's result to x.Out. A table is measured first, with a reply that only
// counts: one that holds a long string, or another table, many times is small in memory but may be
// huge as a reply. The counted size is reserved, because a buffer that grows takes twice as much.
func (in *interpreter) answer(x *commands.Call, v lua.LValue) {
	if in.watch != nil { // what a script did last
		in.budget.Look()
	}
	if _, ok := v.(*lua.LTable); ok {
		in.measure.Begin(x.Tx.Proto)
		in.measuring = true
		in.write(in.measure, v, 0)
		in.measuring = false
		if why := in.budget.Spent(); why != "" {
			x.Out.Error("ERR " + why)
			return
		}
		x.Reserve(in.measure.Size())
	}
	if _, nobody := x.Out.(commands.Discard); nobody {
		return
	}
	in.write(x.Out, v, 0)
}

// measure is a reply that counts its bytes and charges for its texts.
type measure struct {
	*commands.ReplySizer
	b *lua.Budget
}

func (m *measure) charge(n int) { m.b.Take(0, int64(n)) }

func (m *measure) Status(s string) {
	m.charge(len(s))
	m.ReplySizer.Status(s)
}

func (m *measure) Error(msg string) {
	m.charge(len(msg))
	m.ReplySizer.Error(msg)
}

func (m *measure) BulkString(s string) {
	m.charge(len(s))
	m.ReplySizer.BulkString(s)
}

func (m *measure) BigNumber(digits string) {
	m.charge(len(digits))
	m.ReplySizer.BigNumber(digits)
}

func (m *measure) Verbatim(format, text string) {
	m.charge(len(format) + len(text))
	m.ReplySizer.Verbatim(format, text)
}

// walks charges for a walk over all pairs of a table while a reply is measured. It reports whether
// any budget is left.
func (in *interpreter) walks(t *lua.LTable) bool {
	if in.measuring {
		in.budget.Take(t.Walk(), 0)
	}
	return in.budget.Spent() == ""
}

// replyUnits is the cost of measuring and writing a value, a table without its elements. For a
// table with keys, seven fields are looked up.
func replyUnits(v lua.LValue) int64 {
	switch v := v.(type) {
	case lua.LString:
		return 4 + int64(len(v))/64
	case lua.LNumber:
		return 4
	case *lua.LTable:
		if v.HasKeys() {
			return 10
		}
	}
	return 3
}

func (in *interpreter) write(out commands.Reply, v lua.LValue, depth int) {
	if in.measuring {
		if !in.budget.TakeWatched(replyUnits(v), 0) {
			return
		}
	}
	switch v := v.(type) {
	case lua.LString:
		out.BulkString(string(v))
	case lua.LNumber:
		out.Int(truncate(float64(v)))
	case lua.LBool:
		switch {
		case in.resp == 3:
			out.Bool(bool(v))
		case bool(v):
			out.Int(1)
		default:
			out.Null()
		}
	case *lua.LTable:
		if depth > maxReplyDepth {
			out.Error(errReplyDepth)
			return
		}
		if !in.writeTyped(out, v, depth) {
			in.writeArray(out, v, depth)
		}
	default:
		out.Null()
	}
}

// writeTyped writes a table whose one special field gives its type. Redis's order of lookups
// decides if there are several.
func (in *interpreter) writeTyped(out commands.Reply, t *lua.LTable, depth int) bool {
	if !t.HasKeys() {
		return false
	}
	if s, ok := t.RawGetString("err").(lua.LString); ok {
		out.Error(string(s))
		return true
	}
	if s, ok := t.RawGetString("ok").(lua.LString); ok {
		out.Status(string(s))
		return true
	}
	if f, ok := t.RawGetString("double").(lua.LNumber); ok {
		out.Double(float64(f))
		return true
	}
	if m, ok := t.RawGetString("map").(*lua.LTable); ok {
		in.writePairs(out, m, depth, true)
		return true
	}
	if m, ok := t.RawGetString("set").(*lua.LTable); ok {
		in.writePairs(out, m, depth, false)
		return true
	}
	if s, ok := t.RawGetString("big_number").(lua.LString); ok {
		out.BigNumber(spaceForBreak.Replace(string(s)))
		return true
	}
	if v, ok := t.RawGetString("verbatim_string").(*lua.LTable); ok {
		text, ok := v.RawGetString("string").(lua.LString)
		format, ok2 := v.RawGetString("format").(lua.LString)
		if ok && ok2 {
			out.Verbatim((string(format[:min(len(format), 3)]) + "   ")[:3], string(text))
			return true
		}
	}
	return false
}

// writePairs writes a map, or the keys of a table as a set, in insertion order.
func (in *interpreter) writePairs(out commands.Reply, t *lua.LTable, depth int, values bool) {
	if !in.walks(t) {
		return
	}
	n := 0
	for range t.Pairs() {
		n++
	}
	if values {
		out.Map(n)
	} else {
		out.Set(n)
	}
	for key, value := range t.Pairs() {
		if in.measuring && in.budget.Spent() != "" {
			return
		}
		in.write(out, key, depth+1)
		if values {
			in.write(out, value, depth+1)
		}
	}
}

// slotsMeasured is how many elements one unit finds the end of an array in.
const slotsMeasured = 4

// element returns an element of a reply. The look-up is charged while the reply is measured, which
// every node does, and not where it is written, which only the client's node does.
func (in *interpreter) element(t *lua.LTable, i int) lua.LValue {
	if in.measuring {
		return in.L.RawGetInt(t, i)
	}
	return t.RawGetInt(i)
}

// writeArray writes the elements before the first nil.
func (in *interpreter) writeArray(out commands.Reply, t *lua.LTable, depth int) {
	n := 0
	for in.element(t, n+1) != lua.LNil {
		n++
	}
	if in.measuring && in.L.G.Strict {
		in.budget.Take(int64(n)/slotsMeasured, 0)
	}
	out.Array(n)
	for i := 1; i <= n; i++ {
		if in.measuring && in.budget.Spent() != "" {
			return
		}
		in.write(out, in.element(t, i), depth+1)
	}
}
