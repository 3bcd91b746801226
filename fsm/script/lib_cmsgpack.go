// The cmsgpack library of Redis's Lua (lua-cmsgpack 0.4.0): packing, which writes map keys in
// insertion order. Unpacking is in lib_cmsgpack_unpack.go.

package script

import (
	"encoding/binary"
	"math"

	"github.com/coordd/coordd/fsm/script/lua"
)

// maxPackNesting is how deep tables are packed; deeper ones become nil.
const maxPackNesting = 16

// openCmsgpack returns the table of the cmsgpack library. The caller makes it the global
// `cmsgpack`.
func openCmsgpack(L *lua.LState) *lua.LTable {
	t := newLibrary(L, []libraryFunction{
		{"pack", msgpackPack},
		{"unpack", msgpackUnpack},
		{"unpack_one", msgpackUnpackOne},
		{"unpack_limit", msgpackUnpackLimit},
	})
	t.RawSetString("_NAME", lua.LString("cmsgpack"))
	t.RawSetString("_VERSION", lua.LString("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", lua.LString("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", lua.LString("MessagePack C implementation for Lua"))
	return t
}

// msgpackEncoder builds the result of one pack.
type msgpackEncoder struct {
	L       *lua.LState
	b       *lua.Budget
	out     text
	charged int // bytes of out that are paid for
	head    [9]byte
}

// msgpackPack is cmsgpack.pack(...): the arguments, one after another.
func msgpackPack(L *lua.LState) int {
	n := L.GetTop()
	if n == 0 {
		argError(L, 0, "MessagePack pack needs input.")
	}
	if !hasStack(L, int64(n)) {
		argError(L, 0, "Too many arguments for MessagePack pack.")
	}
	e := msgpackEncoder{L: L, b: budgetOf(L), out: text{L: L}}
	for i := 1; i <= n; i++ {
		e.value(L.Get(i), 0)
	}
	e.chargeElement()
	return push(L, e.out.done())
}

// chargeElement charges for one element and for the bytes written since the last charge.
func (e *msgpackEncoder) chargeElement() {
	n := e.out.size - e.charged
	e.charged = e.out.size
	chargeWork(e.L, n)
}

// value appends v; level is the number of enclosing tables. What MessagePack lacks becomes nil.
func (e *msgpackEncoder) value(v lua.LValue, level int) {
	e.chargeElement()
	switch v := v.(type) {
	case lua.LString:
		e.string(string(v))
	case lua.LBool:
		if v {
			e.out.addByte(0xc3)
		} else {
			e.out.addByte(0xc2)
		}
	case lua.LNumber:
		if n := truncate(float64(v)); lua.LNumber(n) == v && v < 1<<63 {
			e.integer(n)
		} else {
			e.float(float64(v))
		}
	case *lua.LTable:
		if level == maxPackNesting {
			e.out.addByte(0xc0)
		} else if e.isArray(v) {
			e.array(v, level)
		} else {
			e.object(v, level)
		}
	default:
		e.out.addByte(0xc0)
	}
}

// float appends f in four bytes where they hold it exactly, in eight otherwise.
func (e *msgpackEncoder) float(f float64) {
	if single := float32(f); float64(single) == f {
		e.out.addBytes(binary.BigEndian.AppendUint32(append(e.head[:0], 0xca),
			math.Float32bits(single)))
	} else {
		bits := math.Float64bits(canonical(f))
		e.out.addBytes(binary.BigEndian.AppendUint64(append(e.head[:0], 0xcb), bits))
	}
}

// integer appends n in its shortest form.
func (e *msgpackEncoder) integer(n int64) {
	switch {
	case n >= -32 && n <= 127:
		e.out.addByte(byte(n))
	case n >= 0 && n <= math.MaxUint8:
		e.out.addBytes(append(e.head[:0], 0xcc, byte(n)))
	case n >= 0 && n <= math.MaxUint16:
		e.out.addBytes(binary.BigEndian.AppendUint16(append(e.head[:0], 0xcd), uint16(n)))
	case n >= 0 && n <= math.MaxUint32:
		e.out.addBytes(binary.BigEndian.AppendUint32(append(e.head[:0], 0xce), uint32(n)))
	case n >= 0:
		e.out.addBytes(binary.BigEndian.AppendUint64(append(e.head[:0], 0xcf), uint64(n)))
	case n >= math.MinInt8:
		e.out.addBytes(append(e.head[:0], 0xd0, byte(n)))
	case n >= math.MinInt16:
		e.out.addBytes(binary.BigEndian.AppendUint16(append(e.head[:0], 0xd1), uint16(n)))
	case n >= math.MinInt32:
		e.out.addBytes(binary.BigEndian.AppendUint32(append(e.head[:0], 0xd2), uint32(n)))
	default:
		e.out.addBytes(binary.BigEndian.AppendUint64(append(e.head[:0], 0xd3), uint64(n)))
	}
}

func (e *msgpackEncoder) string(s string) {
	switch n := len(s); {
	case n < 32:
		e.out.addByte(0xa0 | byte(n))
	case n <= math.MaxUint8:
		e.out.addBytes(append(e.head[:0], 0xd9, byte(n)))
	case n <= math.MaxUint16:
		e.out.addBytes(binary.BigEndian.AppendUint16(append(e.head[:0], 0xda), uint16(n)))
	default:
		e.out.addBytes(binary.BigEndian.AppendUint32(append(e.head[:0], 0xdb), uint32(n)))
	}
	e.out.add(s)
}

// collection appends the head of an array or map of n entries.
func (e *msgpackEncoder) collection(short, medium, long byte, n int) {
	switch {
	case n <= 15:
		e.out.addByte(short | byte(n))
	case n <= math.MaxUint16:
		e.out.addBytes(binary.BigEndian.AppendUint16(append(e.head[:0], medium), uint16(n)))
	default:
		e.out.addBytes(binary.BigEndian.AppendUint32(append(e.head[:0], long), uint32(n)))
	}
}

// isArray applies the original's rule: every key is a positive number that an int holds exactly,
// and the largest is the number of keys.
func (e *msgpackEncoder) isArray(t *lua.LTable) bool {
	count, largest := 0, int32(0)
	chargeWalk(e.L, t)
	for key := range t.Pairs() {
		e.b.Charge(e.L, 1)
		n, ok := key.(lua.LNumber)
		if !ok || n <= 0 || lua.LNumber(truncate32(float64(n))) != n {
			return false
		}
		largest = max(largest, truncate32(float64(n)))
		count++
	}
	return int(largest) == count
}

// array appends t[1] to t[#t], and honors metamethods.
func (e *msgpackEncoder) array(t *lua.LTable, level int) {
	n := e.L.Length(t)
	e.collection(0x90, 0xdc, 0xdd, n)
	for i := 1; i <= n; i++ {
		v := e.L.RawGetInt(t, i)
		if v == lua.LNil {
			v = e.L.GetField(t, lua.LNumber(i))
		}
		e.value(v, level+1)
	}
}

// object appends all pairs of t.
func (e *msgpackEncoder) object(t *lua.LTable, level int) {
	n := 0
	chargeWalk(e.L, t)
	chargeWalk(e.L, t) // once more, for the second walk
	for range t.Pairs() {
		e.b.Charge(e.L, 1)
		n++
	}
	e.collection(0x80, 0xde, 0xdf, n)
	// An __index of an inner table may change t: never write more pairs than announced.
	next := t.Next
	if e.L.G.Strict {
		next = func(key lua.LValue) (lua.LValue, lua.LValue) {
			k, v, _ := e.L.Next(t, key)
			return k, v
		}
	}
	key, value := next(lua.LNil)
	for ; n > 0; n-- {
		e.value(key, level+1)
		e.value(value, level+1)
		key, value = next(key)
	}
}
