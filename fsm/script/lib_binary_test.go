// The libraries for bytes and bits (struct, cmsgpack, bit) compared with Redis's, and with hostile
// input.

package script

import (
	"fmt"
	"github.com/coordd/coordd/internal/tests/detector"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestStructLikeRedis(t *testing.T) {
	var cases []string
	for _, v := range []string{"0", "1", "-1", "127.9", "-1.5", "300", "65535", "2^31", "-2^31",
		"2^32-1", "2^53", "-2^53", "2^63", "-2^63", "9.3e18", "1.8446744073709550e19",
		"2^64", "1e300", "-1e300", "1/0", "-1/0", "0/0", "0.1", "'12'", "'x'", "nil", "{}",
		"1e-310", "1e39"} {
		for _, f := range []string{"b", "B", "h", "H", "l", "L", "T", "i", "I", "i3", "I7", "i8",
			"i9", "i16", "i32", "i1", "i0", "f", "d", "c1", "s"} {
			cases = append(cases,
				fmt.Sprintf(`return struct.pack('<%s', %s), struct.pack('>%s', %s)`, f, v, f, v))
		}
	}
	for _, data := range []string{`''`, `'\1'`,
		`'\255\254\253\252\251\250\249\248\247\246\245\244\243\242\241\240\239'`,
		`string.rep('\128', 40)`, `'\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\1'`,
		`'\128\0\0\0\0\0\0\0\0\0\0'`, `'abc\0def\0'`} {
		for _, f := range []string{"b", "B", "h", "H", "l", "L", "T", "i", "I", "i3", "I7", "i8",
			"i9", "i11", "i16", "I16", "i32", "i0", "f", "d", "c1", "c", "c3", "s", "ss", "bc0",
			"Bc0", "x", "", "!4bi", "<i>i", "i8x", "c0", "Bsc0", "dc0"} {
			cases = append(cases, fmt.Sprintf(`return struct.unpack('<%s', %s)`, f, data),
				fmt.Sprintf(`return struct.unpack('>%s', %s, 2)`, f, data))
		}
	}
	for _, f := range []string{"", "b", "bhliTfdx", "!bd", "!4bd", "!2bi3", "!1bd", "!8bhb", "c5",
		"c0", "s", "i33", "i32", "I3", "q", "bz", "!3", "!0", "!16bd", "!99999999999",
		"i99999999999",
		"c2147483647", "c2147483648", "> < b", "a", "?", "b\\nb", "b\\0b", "=",
		"c2147483647c2147483647", "!2147483648", "!1073741824l", "i4294967297"} {
		cases = append(cases, fmt.Sprintf(`return struct.size('%s')`, f))
	}
	cases = append(cases,
		`return struct.pack('Bc0', 3, 'abc'), struct.pack('c5', 'abcdefg'), struct.pack('s', 'a\0b'), struct.pack('bxxb', 1, 2), struct.pack('', 1), struct.pack(' b > h < h', 1, 2, 3)`,
		`return struct.pack('!4bi', 1, 2), struct.pack('!bd', 1, 2), struct.pack('!8bxl', 1, 2), struct.pack('!2bi3', 1, 2), struct.pack('!4bi3', 1, 2), struct.pack('!4bc3i', 1, 'abc', 2)`,
		`return struct.pack('c5', 'abc')`, `return struct.pack('bc5', 1, 'abc')`,
		`return struct.pack('i')`, `return struct.pack('ii', 1)`, `return struct.pack('s')`,
		`return struct.pack('iii', 1)`, `return struct.pack('bbbbb', 1, 2)`, `return struct.pack()`,
		`return struct.pack(nil)`,
		`return struct.pack('z', 1)`, `return struct.pack('!3')`, `return struct.pack('i33', 1)`,
		`return struct.unpack('z', 'abc')`, `return struct.unpack('b')`, `return struct.unpack()`,
		`return struct.unpack('b', {})`, `return struct.unpack('b', 'abc', 'x')`,
		`return struct.size()`, `return struct.size({})`,
		`return struct.unpack('b', 'abc', 0)`, `return struct.unpack('b', 'abc', -1)`,
		`return struct.unpack('b', 'abc', 3)`, `return struct.unpack('b', 'abc', 4)`,
		`return struct.unpack('', 'abc', 4)`, `return struct.unpack('', 'abc', 5)`,
		`return struct.unpack('', 'abc', -7)`, `return struct.unpack('<', 'abc', 5)`,
		`return struct.unpack('b', 'abc', '2')`, `return struct.unpack('!8l', 'abcdefgh', -1)`,
		`return struct.unpack('Bc0', '\5abcd')`, `return struct.unpack('Bc0', '\0abcd')`,
		`return struct.unpack('bc0', '\255abcd')`, `return struct.unpack('sc0', '2\0abcd')`,
		`return struct.unpack('Bc0c0', '\1\65bcd')`, `return struct.unpack('Bc0c0', '\0011abcd')`,
		`return struct.unpack('BBc0', '\1\2abcd')`,
		`return struct.unpack('dc0', struct.pack('d', 0/0) .. 'abc')`,
		`return struct.unpack('dc0', struct.pack('d', 1.7) .. 'abc')`,
		`return struct.unpack('dc0', struct.pack('d', -1) .. 'abc')`,
		`return struct.unpack('dc0', struct.pack('d', 1e300) .. 'abc')`,
		`return select('#', struct.unpack(string.rep('b', 7997), string.rep('a', 9000)))`,
		`return struct.unpack(string.rep('b', 7998), string.rep('a', 9000))`,
		`return struct.unpack('c2147483647', 'abc')`, `return struct.unpack('s', 'abc')`,
		`return struct.unpack('ss', 'abc\0d')`,
		`return pcall(struct.pack), pcall(struct.unpack, 'z', 'a')`,
		`return struct.pack('c', 'abc'), struct.pack('c2', 12345), struct.unpack('c', 'abc')`,
	)
	compare(t, cases)
}

func TestBitLikeRedis(t *testing.T) {
	values := []string{"0", "1", "-1", "0.5", "1.5", "2.5", "-0.5", "-1.5", "2^31", "2^31-1",
		"-2^31", "2^32", "2^32-1", "2^33+5", "2^51", "2^51+1", "2^52", "2^53", "-2^53", "2^60",
		"1e15", "1e100", "1/0", "-1/0", "0x12345678", "'0xff'", "'12'"}
	var cases []string
	for i, v := range values {
		for _, f := range []string{"tobit", "bnot", "bswap", "tohex", "band", "bor", "bxor"} {
			cases = append(cases, fmt.Sprintf(`return bit.%s(%s)`, f, v))
		}
		w := values[(i*7+3)%len(values)]
		for _, f := range []string{"band", "bor", "bxor", "lshift", "rshift", "arshift", "rol",
			"ror"} {
			cases = append(cases, fmt.Sprintf(`return bit.%s(%s, %s)`, f, v, w),
				fmt.Sprintf(`return bit.%s(0x87654321, %d)`, f, i*3-20))
		}
	}
	cases = append(cases,
		`return bit.tohex(255, 4), bit.tohex(255, -4), bit.tohex(-1, 2), bit.tohex(0x1234, 0), bit.tohex(1, 100), bit.tohex(0xabcdef01, -100), bit.tohex(5, '3')`,
		`return bit.tohex(1, nil)`, `return bit.band(1, 3, 7, 'x')`, `return bit.band(1, {}, 'x')`,
		`return bit.band('x', 'y')`, `return bit.band(15, 7, 3, 6)`, `return bit.bxor(1, 2, 4, 8)`,
		`return bit.bor(1, 2, nil)`,
		`return bit.tobit()`, `return bit.tobit(nil)`, `return bit.band()`, `return bit.lshift(1)`,
		`return bit.lshift(1, 'x')`, `return bit.bnot({})`, `return bit.tohex()`,
		`return bit.tobit(true)`, `return pcall(bit.tobit)`)
	compare(t, cases)
}

func TestCmsgpackLikeRedis(t *testing.T) {
	cases := []string{
		`return cmsgpack.pack(0), cmsgpack.pack(127), cmsgpack.pack(128), cmsgpack.pack(255), cmsgpack.pack(256), cmsgpack.pack(65535), cmsgpack.pack(65536), cmsgpack.pack(2^32-1), cmsgpack.pack(2^32), cmsgpack.pack(2^53), cmsgpack.pack(2^62), cmsgpack.pack(2^63), cmsgpack.pack(2^64)`,
		`return cmsgpack.pack(-1), cmsgpack.pack(-32), cmsgpack.pack(-33), cmsgpack.pack(-128), cmsgpack.pack(-129), cmsgpack.pack(-32768), cmsgpack.pack(-32769), cmsgpack.pack(-2^31), cmsgpack.pack(-2^31-1), cmsgpack.pack(-2^53), cmsgpack.pack(-2^63), cmsgpack.pack(-2^64)`,
		`return cmsgpack.pack(0.5), cmsgpack.pack(0.1), cmsgpack.pack(1/0), cmsgpack.pack(-1/0), cmsgpack.pack(0/0), cmsgpack.pack(1e300), cmsgpack.pack(1e-300), cmsgpack.pack(16777217.5), cmsgpack.pack(1e39)`,
		`return cmsgpack.pack(-0.0)`,
		`return cmsgpack.pack(true, false, nil, 'a', 1), cmsgpack.pack(cjson.null), cmsgpack.pack(string.len), cmsgpack.pack(nil), cmsgpack.pack('')`,
		`return cmsgpack.pack(string.rep('a', 31)), cmsgpack.pack(string.rep('a', 32)):sub(1, 5), cmsgpack.pack(string.rep('a', 255)):sub(1, 5), cmsgpack.pack(string.rep('a', 256)):sub(1, 5), cmsgpack.pack(string.rep('a', 65535)):sub(1, 5), cmsgpack.pack(string.rep('a', 65536)):sub(1, 7)`,
		`return cmsgpack.pack({}), cmsgpack.pack({1, 2, 3}), cmsgpack.pack({a = 1}), cmsgpack.pack({[2] = 1}), cmsgpack.pack({1, nil, 3}), cmsgpack.pack({[0] = 1}), cmsgpack.pack({[1.5] = 1}), cmsgpack.pack({[1] = 'x', [2] = 'y'})`,
		`return cmsgpack.pack({['1'] = 'x'})`, `return cmsgpack.pack({['2'] = 'x'})`,
		`return cmsgpack.pack({[2^31] = 'x'}), cmsgpack.pack({[2^31 - 1] = 'x'}), cmsgpack.pack({[1e300] = 'x'}), cmsgpack.pack({[1/0] = 1}), cmsgpack.pack({[true] = 1}), cmsgpack.pack({[-1] = 1})`,
		`local t = {} for i = 1, 15 do t[i] = i end local a = cmsgpack.pack(t) t[16] = 16 return a, cmsgpack.pack(t)`, `local t = {} for i = 1, 70000 do t[i] = 1 end return cmsgpack.pack(t):sub(1, 8)`, `return cmsgpack.pack({{1}, {a = {2}}}), cmsgpack.pack({1, {2, {3, {}}}})`,
		`local t = {} for i = 1, 30 do t = {t} end return cmsgpack.pack(t)`,
		`local t = 5 for i = 1, 16 do t = {t} end local u = {t} return cmsgpack.pack(t), cmsgpack.pack(u)`, `local t = {} t[1] = t return cmsgpack.pack(t)`, `return cmsgpack.pack()`, `return pcall(cmsgpack.pack)`,
		`return cmsgpack.pack(setmetatable({1, 2}, {__index = function() return 9 end}))`,
		`local t = {1} t[3] = 3 t[2] = 2 return cmsgpack.pack(t)`,
		`return cmsgpack.pack(unpack({}, 1, 4000)) == string.rep('\192', 4000)`,
		`return cmsgpack.pack(unpack({}, 1, 4001))`,
		`return cmsgpack.unpack(cmsgpack.pack(1, 'a', true, false, nil, {1, 2}, {a = 1}, 1.5, -5, 2^40))`, `return cmsgpack.unpack('')`, `return cmsgpack.unpack()`, `return cmsgpack.unpack(nil)`, `return cmsgpack.unpack({})`, `return cmsgpack.unpack(5)`, `return cmsgpack.unpack('\1', 2, 3)`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3))`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 1)`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 2)`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 3)`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), 4)`,
		`return cmsgpack.unpack_one(cmsgpack.pack(1, 2, 3), -1)`, `return cmsgpack.unpack_one('')`,
		`return cmsgpack.unpack_one()`, `return cmsgpack.unpack_one('\1', 'x')`,
		`return cmsgpack.unpack_one('\1', '0')`, `return cmsgpack.unpack_one('abc', 2^32)`,
		`return cmsgpack.unpack_one({}, 'x')`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2, 1)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 0)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 0, 1)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 10)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), -1)`,
		`return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3))`,
		`return cmsgpack.unpack_limit('\1', 'x')`, `return cmsgpack.unpack_limit()`,
		`return cmsgpack.unpack_limit('\1', 1, 'x')`, `return cmsgpack.unpack_limit('\1\2', 1.9)`,
		`return cmsgpack.unpack_limit('\1\2', 1, -3)`,
		`return cmsgpack.unpack('\129\192\1')`,
		`return cmsgpack.unpack('\129\203\255\248\0\0\0\0\0\0\1')`,
		`return cmsgpack.unpack('\130\1\2\1\3')`, `return cmsgpack.unpack('\129\1\192')`,
		`return cmsgpack.unpack('\146\192\1')`, `return cmsgpack.unpack('\147\1\192\192')`,
		`return cmsgpack.unpack('\129\129\1\2\3')`, `return pcall(cmsgpack.unpack, '\129\192\1')`,
		`return cmsgpack.unpack(string.rep('\145', 3998) .. '\144') ~= nil`,
		`return cmsgpack.unpack(string.rep('\145', 3999) .. '\144')`,
		`return cmsgpack.unpack(string.rep('\129\1', 3999) .. '\128') ~= nil`,
		`return cmsgpack.unpack(string.rep('\129\1', 4000) .. '\128')`,
		`return select('#', cmsgpack.unpack(string.rep('\1', 7999)))`,
		`return cmsgpack.unpack(string.rep('\1', 8000))`,
		`return select('#', cmsgpack.unpack_limit(string.rep('\1', 9000), 7998))`,
		`return cmsgpack.unpack_limit(string.rep('\1', 9000), 7999)`,
		`return select('#', cmsgpack.unpack_limit(string.rep('\1', 9000), 7997))`,
		`return cmsgpack.unpack('\217\3ab')`, `return cmsgpack.unpack('\221\255\255\255\255\1\2')`,
		`return cmsgpack.unpack('\223\255\255\255\255\1\2')`,
		`return cmsgpack.unpack('\219\255\255\255\255ab')`,
		`return cmsgpack.unpack('\207\255\255\255\255\255\255\255\255')`,
		`return cmsgpack.unpack('\211\128\0\0\0\0\0\0\0')`,
		`return cmsgpack.unpack('\202\127\192\0\0')`,
	}
	for c := range 256 {
		cases = append(cases, fmt.Sprintf(`return cmsgpack.unpack('\%d')`, c),
			fmt.Sprintf(`return cmsgpack.unpack('\%d' .. string.rep('\2', 40))`, c),
			fmt.Sprintf(`return cmsgpack.unpack('\%d\0\0\2\1\162ab')`, c))
	}
	compare(t, cases)
}

func TestRandomBytesLikeRedis(t *testing.T) {
	detector.Skip(t)
	redis := startRedis(t)
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	literal := func(b []byte) string {
		var s strings.Builder
		for _, c := range b {
			fmt.Fprintf(&s, `\%03d`, c)
		}
		return s.String()
	}
	heads := []byte{0x80, 0x81, 0x82, 0x90, 0x91, 0x92, 0x93, 0xa0, 0xa1, 0xa2, 0xc0, 0xc1, 0xc2,
		0xc3, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3, 0xd9, 0xda, 0xdb, 0xdc,
		0xdd, 0xde, 0xdf, 0, 1, 2, 0xff}
	letters := []string{"b", "B", "h", "H", "l", "L", "T", "i", "I", "i3", "I5", "i12", "f", "d",
		"x", "c2", "c0", "s", "<", ">", "!4", "!", " "}
	for range 60 {
		var code strings.Builder
		code.WriteString("local r = {} ")
		for range 15 {
			data := make([]byte, rnd.IntN(24))
			for i := range data {
				if data[i] = heads[rnd.IntN(len(heads))]; rnd.IntN(4) == 0 {
					data[i] = byte(rnd.IntN(256))
				}
			}
			format := ""
			for range rnd.IntN(6) {
				format += letters[rnd.IntN(len(letters))]
			}
			fmt.Fprintf(&code, `r[#r + 1] = {pcall(cmsgpack.unpack, '%s')} `, literal(data))
			fmt.Fprintf(&code, `r[#r + 1] = {pcall(struct.unpack, '%s', '%s', %d)} `, format,
				literal(data), 1+rnd.IntN(3))
			fmt.Fprintf(&code, `r[#r + 1] = {pcall(struct.pack, '%s', %s, %s, 'abc', %s)} `, format,
				randomNumber(rnd), randomNumber(rnd), randomNumber(rnd))
			fmt.Fprintf(&code, `r[#r + 1] = {pcall(cmsgpack.pack, %s, {%s}, {a = %s})} `,
				randomNumber(rnd), randomNumber(rnd), randomNumber(rnd))
		}
		snippet := code.String() + "return r"
		redis.compare(t, snippet)
	}
}

func TestHostileLengthsCostNothing(t *testing.T) {
	for _, c := range []struct{ code, want string }{
		{`return cmsgpack.unpack('\221\255\255\255\255\1')`, "Missing bytes in input."},
		{`return cmsgpack.unpack('\223\255\255\255\255\1')`, "Missing bytes in input."},
		{`return cmsgpack.unpack('\219\255\255\255\255x')`, "Missing bytes in input."},
		{`return struct.unpack('c2147483647', 'x')`, "data string too short"},
		{`return struct.pack('c2147483647', 'x')`, "string too short"},
		{`return cmsgpack.unpack(string.rep('\221\0\1\0\0', 100000))`, "stack overflow"},
	} {
		L := boundedState(t, 10_000_000, 1<<24)
		err := doString(L, c.code)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.code, err, c.want)
		}
		if used := 1<<24 - L.G.Budget.Bytes; c.want != errScriptMemory && used > 4<<20 {
			t.Errorf("%s: %d bytes", c.code, used)
		}
	}
}
