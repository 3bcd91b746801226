// The struct library of Redis's Lua (struct 0.2): C values in strings, one format letter per value.

package script

import (
	"math"
	"strconv"
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

const (
	maxIntegerSize   = 32 // bytes of one integer, as in the original
	defaultAlignment = 8  // what "!" without a number means, as on 64-bit Linux
)

// openStruct returns the table of the struct library. The caller makes it the global `struct`.
func openStruct(L *lua.LState) *lua.LTable {
	return newLibrary(L, []libraryFunction{
		{"pack", structPack},
		{"unpack", structUnpack},
		{"size", structSize},
	})
}

// structFormat walks over a format. Byte order and alignment hold until they are set again.
type structFormat struct {
	L         *lua.LState
	text      string // up to the first zero byte
	next      int    // index of the next option
	bigEndian bool
	alignment int64 // bytes, a power of two
}

// newStructFormat takes argument 1 as the format and charges for reading it.
func newStructFormat(L *lua.LState) *structFormat {
	text := cString(checkString(L, 1))
	budgetOf(L).Charge(L, 5+2*int64(len(text)))
	return &structFormat{L: L, text: text, alignment: 1}
}

// option returns the next option letter and the size of its value in bytes. ok is false at the end.
func (f *structFormat) option() (letter byte, size int64, ok bool) {
	if f.next >= len(f.text) {
		return 0, 0, false
	}
	letter = f.text[f.next]
	f.next++
	switch letter {
	case 'b', 'B', 'x':
		size = 1
	case 'h', 'H':
		size = 2
	case 'l', 'L', 'T', 'd':
		size = 8
	case 'f':
		size = 4
	case 'c':
		size = f.number(1)
	case 'i', 'I':
		size = f.number(4)
		if size > maxIntegerSize {
			raise(f.L, "integral size "+strconv.FormatInt(size, 10)+" is larger than limit of "+
				strconv.Itoa(maxIntegerSize))
		}
	}
	return letter, size, true
}

// number returns the number that follows an option, or absent if there is none.
func (f *structFormat) number(absent int64) int64 {
	if f.next >= len(f.text) || !isDigit(f.text[f.next]) {
		return absent
	}
	n := int64(0)
	for f.next < len(f.text) && isDigit(f.text[f.next]) {
		n = n*10 + int64(f.text[f.next]-'0')
		if n > math.MaxInt32 {
			raise(f.L, "integral size overflow")
		}
		f.next++
	}
	return n
}

// padding returns how many bytes precede a value of the given size at position.
func (f *structFormat) padding(position int64, letter byte, size int64) int64 {
	if size == 0 || letter == 'c' {
		return 0
	}
	a := min(size, f.alignment)
	return (a - position&(a-1)) & (a - 1)
}

// control handles an option that is not a value: byte order, alignment, a space.
func (f *structFormat) control(letter byte) {
	switch letter {
	case ' ':
	case '>':
		f.bigEndian = true
	case '<':
		f.bigEndian = false
	case '!':
		n := f.number(defaultAlignment)
		if n == 0 || n&(n-1) != 0 {
			raise(f.L, "alignment "+strconv.FormatInt(n, 10)+" is not a power of 2")
		}
		f.alignment = n
	default:
		argError(f.L, 1, "invalid format option '"+string([]byte{letter})+"'")
	}
}

// structPack is struct.pack(format, ...).
func structPack(L *lua.LState) int {
	f := newStructFormat(L)
	out := text{L: L}
	arg := 2
	// the original keeps a nil there: a missing argument reads as nil, not as "no value"
	L.Push(lua.LNil)
	for {
		letter, size, ok := f.option()
		if !ok {
			return push(L, out.done())
		}
		for n := f.padding(int64(out.size), letter, size); n > 0; n-- {
			out.addByte(0)
		}
		switch letter {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			f.appendInteger(&out, checkNumber(L, arg), int(size))
		case 'x':
			out.addByte(0)
			continue
		case 'f':
			f.appendUint(&out, uint64(float32bits(checkNumber(L, arg))), 4)
		case 'd':
			f.appendUint(&out, math.Float64bits(canonical(checkNumber(L, arg))), 8)
		case 'c', 's':
			s := checkString(L, arg)
			if size == 0 {
				size = int64(len(s))
			}
			if int64(len(s)) < size {
				argError(L, arg+1, "string too short") // the original increments before it checks
			}
			out.write(s[:size])
			if letter == 's' {
				out.addByte(0)
			}
		default:
			f.control(letter)
			continue
		}
		arg++
	}
}

// float32bits returns the bits of f as a 32-bit float, the same for every NaN.
func float32bits(f float64) uint32 {
	if f != f {
		return nanBits >> 32 & 0xFFC00000
	}
	return math.Float32bits(float32(f))
}

// appendInteger appends the low size bytes of n in two's complement; past the eighth byte they are
// zero, even for a negative n, as in the original.
func (f *structFormat) appendInteger(out *text, n float64, size int) {
	value := truncateUnsigned(n)
	if n < 0 {
		value = uint64(truncate(n))
	}
	f.appendUint(out, value, size)
}

// appendUint appends the low size bytes of value in the current byte order.
func (f *structFormat) appendUint(out *text, value uint64, size int) {
	var room [maxIntegerSize]byte
	bytes := room[:size]
	for i := range bytes {
		at := i
		if f.bigEndian {
			at = size - 1 - i
		}
		bytes[at] = byte(value)
		value >>= 8
	}
	out.addBytes(bytes)
}

// structUnpack is struct.unpack(format, data [, position]): the values, and the position after the
// last one.
func structUnpack(L *lua.LState) int {
	f := newStructFormat(L)
	data := checkString(L, 2)
	// unsigned, as in the original: positions below 0 are past any end
	position := uint64(optInteger(L, 3, 1))
	if position == 0 {
		argError(L, 3, "offset must be 1 or greater")
	}
	position--
	results := 0
	for {
		letter, size, ok := f.option()
		if !ok {
			L.Push(lua.LNumber(int64(position + 1)))
			return results + 1
		}
		position += uint64(f.padding(int64(position), letter, size))
		f.checkData(data, position, uint64(size))
		if !hasStack(L, 2) {
			raise(L, "stack overflow (too many results)")
		}
		if letter == 'c' && size == 0 {
			n := f.previousSize(results)
			f.checkData(data, position, n)
			results--
			size = int64(n)
		}
		value, size := f.read(letter, data[position:], size)
		if value != nil {
			L.Push(value)
			results++
		}
		position += uint64(size)
	}
}

// checkData raises an error if data has fewer than size bytes at position.
func (f *structFormat) checkData(data string, position, size uint64) {
	if length := uint64(len(data)); size > length || position > length-size {
		argError(f.L, 2, "data string too short")
	}
}

// previousSize pops the last of the results: it is the size of a "c0".
func (f *structFormat) previousSize(results int) uint64 {
	if results > 0 {
		if n, ok := f.L.ToNumber(f.L.Get(-1)); ok {
			f.L.Pop(1)
			return truncateUnsigned(n)
		}
	}
	raise(f.L, "format 'c0' needs a previous size")
	return 0
}

// read returns the value of the option letter at the start of data, and its size; a nil value if
// the option has none.
func (f *structFormat) read(letter byte, data string, size int64) (lua.LValue, int64) {
	switch letter {
	case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
		return lua.LNumber(f.integer(data[:size], isLower(letter))), size
	case 'f':
		return lua.LNumber(math.Float32frombits(uint32(f.uint(data[:size])))), size
	case 'd':
		return lua.LNumber(math.Float64frombits(f.uint(data[:size]))), size
	case 'c':
		return lua.LString(data[:size]), size
	case 's':
		end := strings.IndexByte(data, 0)
		if end < 0 {
			budgetOf(f.L).Charge(f.L, int64(len(data))/16)
			raise(f.L, "unfinished string in data")
		}
		budgetOf(f.L).Charge(f.L, int64(end)/16)
		return lua.LString(data[:end]), int64(end) + 1
	case 'x':
	default:
		f.control(letter)
	}
	return nil, size
}

// uint reads data as an unsigned integer in the current byte order; of more than eight bytes the
// low eight count.
func (f *structFormat) uint(data string) uint64 {
	var value uint64
	for i := range len(data) {
		at := i
		if !f.bigEndian {
			at = len(data) - 1 - i
		}
		value = value<<8 | uint64(data[at])
	}
	return value
}

// integer reads data as a signed or unsigned integer of its length. Past eight bytes the sign is
// where x86-64 puts it: the original shifts by more than 64 bits, and that count is taken modulo
// 64.
func (f *structFormat) integer(data string, signed bool) float64 {
	value := f.uint(data)
	if !signed {
		return float64(value)
	}
	if sign := ^uint64(0) << ((8*len(data) - 1) & 63); value&sign != 0 {
		value |= sign
	}
	return float64(int64(value))
}

// structSize is struct.size(format): the length of pack's result, if the format fixes it.
func structSize(L *lua.LState) int {
	f := newStructFormat(L)
	position := int64(0)
	for {
		letter, size, ok := f.option()
		if !ok {
			L.Push(lua.LNumber(position))
			return 1
		}
		position += f.padding(position, letter, size)
		switch {
		case letter == 's':
			argError(L, 1, "option 's' has no fixed size")
		case letter == 'c' && size == 0:
			argError(L, 1, "option 'c0' has no fixed size")
		case !isAlnum(letter):
			f.control(letter)
		}
		position += size
	}
}
