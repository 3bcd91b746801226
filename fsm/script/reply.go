// A command's reply as Lua values. answer.go does the reverse.

package script

import (
	"strconv"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/fsm/script/lua"
)

// luaReply is the commands.Reply that builds Lua values, as redis.call returns them.
type luaReply struct {
	L      *lua.LState
	resp   int // 2 or 3
	result lua.LValue
	err    string // not empty: the reply is this error
	stack  []openReply

	interned *interned
}

// openReply is an array, a map or a set that awaits more elements.
type openReply struct {
	table *lua.LTable
	kind  byte // *, % or ~
	left  int  // elements, or keys and values, to come
	at    int  // elements, or keys and values, received
	key   lua.LValue
}

// start prepares for the reply of a command.
func (r *luaReply) start(L *lua.LState, resp int) {
	r.L, r.resp = L, resp
	r.result, r.err, r.stack = lua.LNil, "", r.stack[:0]
}

// put adds a value at the next position. Once the budget is spent, values are dropped: the script
// stops after the command, not during it.
func (r *luaReply) put(v lua.LValue) {
	r.L.G.Budget.Instructions--
	n := len(r.stack)
	if n == 0 {
		r.result = v
		return
	}
	top := &r.stack[n-1]
	top.left--
	top.at++
	switch {
	case top.kind == '*':
		r.L.Put(top.table, lua.Number(float64(top.at)), v)
	case top.kind == '~':
		r.L.Put(top.table, v, lua.LTrue)
	case top.left%2 == 1:
		top.key = v
	default:
		r.L.Put(top.table, top.key, v)
	}
	for n > 0 && r.stack[n-1].left == 0 {
		n--
	}
	r.stack = r.stack[:n]
}

// charge charges for n bytes and reports whether they may be built.
func (r *luaReply) charge(n int) bool {
	b := &r.L.G.Budget
	b.Take(int64(n/64), int64(n))
	return b.Spent() == ""
}

// What a string and a table take besides bytes and elements.
const (
	stringOverhead = 32
	tableOverhead  = 128
	entryOverhead  = 32
	slotOverhead   = 16
)

func (r *luaReply) text(s string) lua.LValue {
	if !r.charge(stringOverhead + len(s)) {
		return lua.LFalse
	}
	return lua.LString(s)
}

// field puts a table with one field.
func (r *luaReply) field(name string, v lua.LValue) *lua.LTable {
	r.charge(tableOverhead + entryOverhead)
	t := r.L.CreateTable(0, 1)
	t.RawSetString(name, v)
	r.put(t)
	return t
}

// open puts a table that takes the following values as its elements.
func (r *luaReply) open(kind byte, elements int, wrap string) {
	room := elements
	if kind != '*' {
		room = 0
	}
	if !r.charge(tableOverhead + slotOverhead*room) {
		room, elements = 0, 0
	}
	t := r.L.CreateTable(room, 0)
	if wrap != "" {
		r.field(wrap, t)
	} else {
		r.put(t)
	}
	if elements > 0 {
		r.stack = append(r.stack, openReply{table: t, kind: kind, left: elements})
	}
}

// Status builds a table with the field ok.
func (r *luaReply) Status(s string) { r.field("ok", r.text(s)) }

// Error at the top makes the command fail; inside an array it is a table with the field err.
func (r *luaReply) Error(msg string) {
	msg = commands.ErrorLine(msg)
	if len(r.stack) == 0 {
		r.err = msg
		return
	}
	r.field("err", r.text(msg))
}

// Int builds a number.
func (r *luaReply) Int(n int64) { r.put(lua.Number(float64(n))) }

// Bulk builds a string.
func (r *luaReply) Bulk(b []byte) {
	if !r.charge(len(b)) {
		r.put(lua.LFalse)
		return
	}
	r.put(r.interned.value(b))
}

// BulkString builds a string.
func (r *luaReply) BulkString(s string) { r.put(r.text(s)) }

// Null builds false, or nil after redis.setresp(3).
func (r *luaReply) Null() {
	if r.resp == 3 {
		r.put(lua.LNil)
		return
	}
	r.put(lua.LFalse)
}

// NullArray is like Null.
func (r *luaReply) NullArray() { r.Null() }

// Array builds an array.
func (r *luaReply) Array(n int) { r.open('*', n, "") }

// Map builds a table in the field map; with RESP2 an array of keys and values.
func (r *luaReply) Map(pairs int) {
	if r.resp == 3 {
		r.open('%', 2*pairs, "map")
		return
	}
	r.open('*', 2*pairs, "")
}

// Set builds a table with the elements as keys in the field set; with RESP2 an array.
func (r *luaReply) Set(n int) {
	if r.resp == 3 {
		r.open('~', n, "set")
		return
	}
	r.open('*', n, "")
}

// Push builds an array.
func (r *luaReply) Push(n int) { r.open('*', n, "") }

// Double builds a table with the field double; with RESP2 a string.
func (r *luaReply) Double(f float64) {
	if r.resp == 3 {
		r.field("double", lua.LNumber(f))
		return
	}
	r.BulkString(commands.FormatFloat(f))
}

// Decimal builds what Double does, of the decimals of its text.
func (r *luaReply) Decimal(f float64) {
	text := commands.FormatDecimal(f)
	if r.resp != 3 {
		r.BulkString(text)
		return
	}
	rounded, _ := strconv.ParseFloat(text, 64)
	r.Double(rounded)
}

// Bool builds a boolean; with RESP2 1 or 0.
func (r *luaReply) Bool(b bool) {
	switch {
	case r.resp == 3:
		r.put(lua.LBool(b))
	case b:
		r.Int(1)
	default:
		r.Int(0)
	}
}

// BigNumber builds a table with the field big_number; with RESP2 a string.
func (r *luaReply) BigNumber(digits string) {
	if r.resp == 3 {
		r.field("big_number", r.text(digits))
		return
	}
	r.BulkString(digits)
}

// Verbatim builds a table with format and string in the field verbatim_string; with RESP2 a string.
func (r *luaReply) Verbatim(format, text string) {
	if r.resp == 3 {
		r.charge(tableOverhead + 2*entryOverhead + stringOverhead)
		inner := r.L.CreateTable(0, 2)
		inner.RawSetString("string", r.text(text))
		inner.RawSetString("format", lua.LString(format))
		r.field("verbatim_string", inner)
		return
	}
	r.BulkString(text)
}

var _ commands.Reply = (*luaReply)(nil)
