// cmsgpack.unpack, unpack_one and unpack_limit. Announced lengths are not trusted: a table grows
// with the elements that are present, and a string is copied from the input.

package script

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/coordd/coordd/fsm/script/lua"
)

const (
	errMsgpackShort   = "Missing bytes in input."
	errMsgpackFormat  = "Bad data format in input."
	errMsgpackResults = "stack overflow (too many return values at once; use unpack_one or " +
		"unpack_limit instead.)"
	errMsgpackNoRoom   = "stack overflow (in function mp_unpack_full)"
	errMsgpackTooDeep  = "stack overflow (in function mp_decode_to_lua_array)"
	errTableIndexIsNil = "table index is nil"
	errTableIndexIsNaN = "table index is NaN"
)

// msgpackDecoder reads one string.
type msgpackDecoder struct {
	L    *lua.LState
	b    *lua.Budget
	data string // unread
}

func msgpackUnpack(L *lua.LState) int { return unpackMessages(L, 0, 0) }

func msgpackUnpackOne(L *lua.LState) int {
	return unpackMessages(L, 1, optInteger(L, 2, 0))
}

func msgpackUnpackLimit(L *lua.LState) int {
	limit := checkInteger(L, 2)
	return unpackMessages(L, limit, optInteger(L, 3, 0))
}

// unpackMessages pushes at most limit values of argument 1, read from offset, and before them the
// offset of what follows (-1 at the end). If limit and offset are 0, it pushes all values and no
// offset.
func unpackMessages(L *lua.LState, limit, offset int64) int {
	data := checkString(L, 1)
	length := int64(len(data))
	if offset < 0 || limit < 0 {
		// The original prints the length of the input as the limit.
		raise(L, "Invalid request to unpack with offset of "+int32Text(offset)+" and limit of "+
			int32Text(length)+".")
	}
	if offset > length {
		raise(L, "Start offset "+int32Text(offset)+" greater than input length "+int32Text(length)+
			".")
	}
	all := limit == 0 && offset == 0
	if all {
		limit = math.MaxInt32
	}
	d := msgpackDecoder{L: L, b: budgetOf(L), data: data[offset:]}
	var values []lua.LValue
	for len(d.data) > 0 && int64(len(values)) < limit {
		values = append(values, d.value(1+len(values)))
		if L.G.Strict { // slots of a list that grows
			d.b.ChargeBytes(L, 2*slotOverhead)
		}
	}
	L.SetTop(1)
	if !all {
		next := -1
		if len(d.data) > 0 {
			next = len(data) - len(d.data)
		}
		if 1+len(values)+1 > maxStackSlots {
			raise(L, errMsgpackNoRoom)
		}
		L.Push(lua.LNumber(next))
	}
	for _, v := range values {
		L.Push(v)
	}
	return L.GetTop() - 1
}

// int32Text formats n as the original's "%d" does: only the low half of a 64-bit number.
func int32Text(n int64) string { return strconv.Itoa(int(int32(n))) }

// need raises an error if fewer than n bytes are left.
func (d *msgpackDecoder) need(n uint64) {
	if uint64(len(d.data)) < n {
		raise(d.L, errMsgpackShort)
	}
}

// next returns the next n bytes.
func (d *msgpackDecoder) next(n uint64) string {
	d.need(n)
	s := d.data[:n]
	d.data = d.data[n:]
	return s
}

// uint takes a big-endian unsigned integer of size bytes.
func (d *msgpackDecoder) uint(size uint64) uint64 {
	var room [8]byte
	copy(room[8-size:], d.next(size))
	return binary.BigEndian.Uint64(room[:])
}

// value takes one value. slots is how full C Lua's stack would be, which bounds the nesting.
func (d *msgpackDecoder) value(slots int) lua.LValue {
	d.need(1)
	if slots+1 > maxStackSlots {
		raise(d.L, errMsgpackResults)
	}
	d.b.Charge(d.L, 1)
	c := d.data[0]
	d.data = d.data[1:]
	switch {
	case c <= 0x7f || c >= 0xe0:
		return lua.LNumber(int8(c))
	case c <= 0x8f:
		return d.object(uint64(c&0x0f), slots)
	case c <= 0x9f:
		return d.array(uint64(c&0x0f), slots)
	case c <= 0xbf:
		return d.string(uint64(c & 0x1f))
	}
	switch c {
	case 0xc0:
		return lua.LNil
	case 0xc2, 0xc3:
		return lua.LBool(c == 0xc3)
	case 0xca:
		return lua.LNumber(math.Float32frombits(uint32(d.uint(4))))
	case 0xcb:
		return lua.LNumber(math.Float64frombits(d.uint(8)))
	case 0xcc, 0xcd, 0xce:
		return lua.LNumber(d.uint(1 << (c - 0xcc)))
	case 0xcf:
		return lua.LNumber(int64(d.uint(8))) // negative from 2^63 on, as in the original
	case 0xd0:
		return lua.LNumber(int8(d.uint(1)))
	case 0xd1:
		return lua.LNumber(int16(d.uint(2)))
	case 0xd2:
		return lua.LNumber(int32(d.uint(4)))
	case 0xd3:
		return lua.LNumber(int64(d.uint(8)))
	case 0xd9, 0xda, 0xdb:
		return d.string(d.uint(1 << (c - 0xd9)))
	case 0xdc, 0xdd:
		return d.array(d.uint(2<<(c-0xdc)), slots)
	case 0xde, 0xdf:
		return d.object(d.uint(2<<(c-0xde)), slots)
	}
	raise(d.L, errMsgpackFormat)
	return lua.LNil
}

// string takes a string of n bytes.
func (d *msgpackDecoder) string(n uint64) lua.LValue {
	s := d.next(n)
	d.L.ChargeString(len(s))
	return lua.LString([]byte(s)) // a copy: a small string must not keep the whole input alive
}

// array takes n values as a table.
func (d *msgpackDecoder) array(n uint64, slots int) lua.LValue {
	if slots+1+1 > maxStackSlots {
		raise(d.L, errMsgpackTooDeep)
	}
	t := d.L.NewRoom(4, 0)
	for i := uint64(1); i <= n; i++ {
		v := d.value(slots + 2)
		d.L.RawSetInt(t, int(i), v)
	}
	return t
}

// object takes n pairs as a table.
func (d *msgpackDecoder) object(n uint64, slots int) lua.LValue {
	t := d.L.NewRoom(0, 4)
	for range n {
		key := d.value(slots + 1)
		value := d.value(slots + 2)
		if key == lua.LNil {
			raiseBare(d.L, errTableIndexIsNil)
		}
		if f, ok := key.(lua.LNumber); ok && f != f {
			raiseBare(d.L, errTableIndexIsNaN)
		}
		d.L.RawSet(t, key, value)
	}
	return t
}
