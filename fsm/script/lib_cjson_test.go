// cjson compared with Redis's, and with hostile input.

package script

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/coordd/coordd/fsm/script/lua"
	"github.com/coordd/coordd/internal/tests/seeds"
)

func TestCJSONEncodeLikeRedis(t *testing.T) {
	compare(t, []string{
		`return cjson.encode(1), cjson.encode(1.5), cjson.encode(-0.0), cjson.encode(1e15), cjson.encode(0.1), cjson.encode(1e100), cjson.encode(2^53), cjson.encode(123456789012345), cjson.encode(5e-324)`,
		`return cjson.encode('a'), cjson.encode(true), cjson.encode(nil), cjson.encode(cjson.null), cjson.encode({}), cjson.encode({{}}), cjson.encode({1, 2, 3}), cjson.encode({a = 1}), cjson.encode({1, {2, {3}}})`,
		`return cjson.encode('"\\/\b\f\n\r\t\0\1\31\127\128\255é')`,
		`return cjson.encode({[1] = 1, [2] = 2, [4] = 4}), cjson.encode({[3] = 3}), cjson.encode({[10] = 1}), cjson.encode({1, nil, 3})`, `return cjson.encode({[11] = 1})`, `return cjson.encode({[100] = 1})`,
		`local t = {} for i = 1, 10 do t[i] = i end t[20] = 1 return cjson.encode(t)`,
		`local t = {} for i = 1, 10 do t[i] = i end t[23] = 1 return cjson.encode(t)`,
		`return cjson.encode({[0] = 1}), cjson.encode({[-1] = 1}), cjson.encode({[1.5] = 1}), cjson.encode({[2^31 - 1] = 1, a = 1})`,
		`return cjson.encode({[2^31 - 1] = 1})`, `return cjson.encode({[2^31] = 1})`,
		`return cjson.encode({[3e9] = 1})`, `return cjson.encode({[1e300] = 1})`,
		`return cjson.encode({[1/0] = 1})`, `return cjson.encode({[-1/0] = 1})`,
		`return cjson.encode({[2^53] = 'x'})`,
		`return cjson.encode({[true] = 1})`, `return cjson.encode({[{}] = 1})`,
		`return cjson.encode({[cjson.null] = 1})`, `return cjson.encode(string.len)`,
		`return cjson.encode({string.len})`, `return cjson.encode({a = {b = string.len}})`,
		`return cjson.encode(0/0)`, `return cjson.encode(1/0)`, `return cjson.encode({-1/0})`,
		`return cjson.encode()`, `return cjson.encode(1, 2)`, `return pcall(cjson.encode)`,
		`return cjson.encode({['1'] = 1}), cjson.encode({['a"b'] = 1})`,
		`local t = {} for i = 2, 1000 do t = {t} end return #cjson.encode(t)`,
		`local t = {} for i = 2, 1001 do t = {t} end return cjson.encode(t)`,
		`local t = {} t[1] = t return cjson.encode(t)`,
		`local t = {} t.a = t return cjson.encode(t)`,
		`return cjson.encode_max_depth(), cjson.encode_max_depth(3), cjson.encode_max_depth(nil), cjson.encode({{{}}}), pcall(cjson.encode, {{{{}}}})`, `cjson.encode_max_depth(1000) return cjson.encode_max_depth(0)`, `return cjson.encode_max_depth(-1)`, `return cjson.encode_max_depth('x')`, `return cjson.encode_max_depth(2^31)`, `return cjson.encode_max_depth(1, 2)`, `return cjson.encode_max_depth('1000'), 1`, `return cjson.encode_max_depth({})`, `return cjson.decode_max_depth(0)`,
		`local c = cjson.new() c.encode_max_depth(2^31 - 1) local t = {} for i = 2, 7997 do t = {t} end local u = {t} return #c.encode(t), c.encode(u)`, `local c = cjson.new() c.encode_max_depth(2^31 - 1) local t = {} for i = 2, 3999 do t = {a = t} end local u = {a = t} return #c.encode(t), c.encode(u)`,
		`local c = cjson.new() return c.encode_sparse_array(), pcall(c.encode_sparse_array, true, 3, 4, 5), c.encode_sparse_array(true, 3, 4), c.encode_sparse_array(), c.encode({[20] = 1}), c.encode_sparse_array('off', 0), c.encode({[20] = 1})`,
		`local c = cjson.new() return pcall(c.encode_sparse_array, 'x')`,
		`local c = cjson.new() return pcall(c.encode_sparse_array, nil, -1)`,
		`local c = cjson.new() return pcall(c.encode_sparse_array, nil, nil, -1)`,
		`local c = cjson.new() return c.encode_sparse_array(nil, 1, 1), pcall(c.encode, {[3] = 1})`,
		`local c = cjson.new() return pcall(c.encode_sparse_array, 1)`,
		`local c = cjson.new() return c.encode_number_precision(), c.encode_number_precision(3), c.encode(3.14159), c.encode(123456), c.encode_number_precision(1), c.encode(15), c.encode_number_precision(14), c.encode(0.1)`, `return cjson.encode_number_precision(15)`, `return cjson.encode_number_precision(0)`, `local c = cjson.new() return pcall(c.encode_number_precision, 17)`,
		`local c = cjson.new() return c.encode_keep_buffer(), c.encode_keep_buffer(false), c.encode_keep_buffer('on'), c.encode_keep_buffer('off'), pcall(c.encode_keep_buffer, 1)`, `return cjson.encode_keep_buffer({})`, `return cjson.encode_keep_buffer(true, true)`,
		`local c = cjson.new() return c.encode_invalid_numbers(), c.encode_invalid_numbers(true), c.encode({0/0, 1/0, -1/0, -(0/0)}), c.encode_invalid_numbers('null'), c.encode({0/0, 1/0, -1/0}), c.encode_invalid_numbers(), c.encode_invalid_numbers('off'), pcall(c.encode, 0/0)`, `return cjson.encode_invalid_numbers('x')`, `return cjson.encode_invalid_numbers(5)`,
		`local c = cjson.new() return c.decode_invalid_numbers(), c.decode_invalid_numbers(false), pcall(c.decode, '[0x10]'), pcall(c.decode, 'nan'), pcall(c.decode, '-inf'), pcall(c.decode, '01'), pcall(c.decode, '+1'), pcall(c.decode, '[1, 0]'), pcall(c.decode, '-0.5e3'), pcall(c.decode, '-')`, `return cjson.decode_invalid_numbers('null')`,
		`local c = cjson.new() return c.decode_max_depth(), c.decode_max_depth(2), c.decode('[[]]'), pcall(c.decode, '[[[]]]'), pcall(c.decode, '{"a":{"b":{}}}')`, `local c = cjson.new() return c.null == cjson.null, c._NAME, c._VERSION, c.new().null == cjson.null, cjson.new(5) ~= nil`, `return type(cjson.null), tostring(cjson.null)`,
		`local c = cjson.new() c.decode_max_depth(2^31 - 1) return c.decode(('['):rep(7998) .. (']'):rep(7998)) ~= nil, pcall(c.decode, ('['):rep(7999) .. (']'):rep(7999))`, `local c = cjson.new() c.decode_max_depth(2^31 - 1) return c.decode(('{"a":'):rep(3998) .. '{}' .. ('}'):rep(3998)) ~= nil, pcall(c.decode, ('{"a":'):rep(4000))`,
		`return cjson.encode(setmetatable({}, {__index = function() return 1 end})), cjson.encode(setmetatable({1}, {__pairs = function() end}))`, `local t = {1, 2, 3} t[2] = nil return cjson.encode(t)`, `local t = {1, 2, 3} t[3] = nil return cjson.encode(t)`, `local t = {1, 2} t[1], t[2] = nil, nil return cjson.encode(t)`,
	})
}

func TestCJSONDecodeLikeRedis(t *testing.T) {
	texts := []string{
		``, ` `, `1`, `-1`, `1.5e3`, `"a"`, `true`, `false`, `null`, `[]`, `{}`, `[1,2,3]`,
		`{"a":1,"b":[true,null]}`, ` [ 1 , 2 ] `, "\t\n\r 1 \n", `[1,]`, `[,1]`, `[1 2]`, `[1`, `[`,
		`]`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1`, `{a:1}`, `{1:2}`, `{"a":1 "b":2}`,
		`{"a" 1}`, `,`, `:`,
		`{"a":1}x`, `1 2`, `truex`, `tru`, `nul`, `fals`, `True`, `NULL`, `"`, `"a`, `"a\`, `"\"`,
		`"\q"`, `"\u"`, `"\u12"`, `"\u12g4"`, `"\u00e9"`, `"\u20ac"`, `"\ud83d\ude00"`, `"\ud83d"`,
		`"\ud83dx"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ud83d\n"`, `"\u0000"`, `"\b\f\n\r\t\/\\\""`,
		`"\'"`, `"\x41"`,
		"\"a\nb\"", "\"a\x00b\"", "1\x00", "\x001", "a\x00", "[1]\x00x", "\xef\xbb\xbf1",
		"\"\xff\"", `inf`, `-inf`, `Infinity`, `-Infinity`, `nan`, `NaN`, `-nan`, `nano`, `i`, `n`,
		`N`, `I`, `in`, `infx`, `+1`, `+`, `-`, `--1`, `- 1`, `.5`, `-.5`, `5.`, `1e`, `1e+`, `1e5`,
		`1E-2`, `01`, `0x10`, `0xg`, `0x`, `-0x1p3`, `0x1.8`, `1e400`, `-1e400`, `1e-400`, `0`,
		`-0`, `00`, `1.2.3`, `1_000`, `12345678901234567890`, `0.1`, `3.141592653589793238`,
		`{"a":1,"a":2}`, `{"":1}`, `{"1":1}`, `[null]`, `[null,1]`, `[1,null]`, `{"a":null}`,
		`[[[]]]`, `[{}]`, `{"a":{"b":{"c":[1,{"d":2}]}}}`, `/* */1`, `1//`, `'a'`, `[1;2]`,
		`{"a"=1}`, `{"a":1;}`, `(`, `[}`, `{]`, `["a":1]`, `{"a",1}`, `@`, `#`, `é`,
		`[nan,inf,-inf,0x1F]`, `{"k":tru}`, `["x`, `{"x`, `{"x":"y`, `[1,2`, `{"a":1,`, `{"a":1,1}`,
		`{null:1}`,
	}
	var cases []string
	for _, s := range texts {
		cases = append(cases, fmt.Sprintf(`return cjson.decode('%s')`, luaBytes(s)),
			fmt.Sprintf(
				`local c = cjson.new() c.decode_invalid_numbers(false) return c.decode('%s')`,
				luaBytes(s)))
	}
	cases = append(cases, `return cjson.decode()`, `return cjson.decode(nil)`,
		`return cjson.decode({})`, `return cjson.decode(5)`, `return cjson.decode(1.5)`,
		`return cjson.decode('1', '2')`, `return cjson.decode(true)`,
		`return pcall(cjson.decode, '{')`,
		`return cjson.decode(('['):rep(1000) .. (']'):rep(1000)) ~= nil`,
		`return cjson.decode(('['):rep(1001))`, `return cjson.decode(('['):rep(1000))`,
		`return cjson.decode(('{"a":'):rep(1001))`, `return cjson.decode(('[ '):rep(1001))`)
	compare(t, cases)
}

// luaBytes writes s as a Lua literal with exactly its bytes.
func luaBytes(s string) string {
	var out strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&out, `\%03d`, s[i])
	}
	return out.String()
}

func TestRandomJSONLikeRedis(t *testing.T) {
	redis := startRedis(t)
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	pieces := []string{"[", "]", "{", "}", ",", ":", `"a"`, `"b`, `"\u00e9"`, `"\n"`, `\`, `"`, "1",
		"-2.5", "1e3", "0x1f", "nan", "inf", "true", "false", "null", " ", "[1,2]", `{"a":1}`,
		`{"k":[`, "]}", "\x00", "é", "t", "+", "-", "."}
	for range 80 {
		var code strings.Builder
		code.WriteString("local r = {} ")
		for range 15 {
			text := randomJSON(rnd, 0)
			if rnd.IntN(2) == 0 { // broken somewhere
				at := rnd.IntN(len(text) + 1)
				text = text[:at] + pieces[rnd.IntN(len(pieces))] +
					text[min(at+rnd.IntN(3), len(text)):]
			}
			fmt.Fprintf(&code, `r[#r + 1] = {pcall(cjson.decode, '%s')} `, luaBytes(text))
		}
		snippet := code.String() + "return r"
		redis.compare(t, snippet)
	}
}

// randomJSON returns a valid text.
func randomJSON(rnd *rand.Rand, depth int) string {
	kind := rnd.IntN(8)
	if depth > 3 {
		kind = rnd.IntN(5)
	}
	switch kind {
	case 0:
		return fmt.Sprint(rnd.IntN(2000) - 1000)
	case 1:
		return fmt.Sprintf("%.*g", 1+rnd.IntN(17), rnd.NormFloat64())
	case 2:
		return []string{`"x"`, `""`, `"a\tb"`, `"\u0041\ud83d\ude00"`, `"é"`}[rnd.IntN(5)]
	case 3:
		return []string{"true", "false", "null"}[rnd.IntN(3)]
	case 4:
		return []string{"[]", "{}", " [ ] ", "{ }"}[rnd.IntN(4)]
	case 5, 6:
		var parts []string
		for range rnd.IntN(4) {
			parts = append(parts, randomJSON(rnd, depth+1))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	var parts []string
	for range rnd.IntN(4) {
		parts = append(parts, fmt.Sprintf(`"%c": %s`, 'a'+rnd.IntN(5), randomJSON(rnd, depth+1)))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func TestCJSONKeysInInsertionOrder(t *testing.T) {
	const snippet = `local t = {z = 1, y = 2} t.x = 3 t[5] = 4 t.a = 5 t.y = nil t.b = 6 t.y = 7 ` +
		`return cjson.encode(t):gsub('"', ''), cjson.encode(cjson.decode('{"q":1,"c":2,"m":3}')):gsub('"', '')`
	got := runHere(t, snippet)
	if want := `true "{z:1,y:7,x:3,5:4,a:5,b:6}" "{q:1,c:2,m:3}" 6`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for range 20 {
		if again := runHere(t, snippet); again != got {
			t.Fatalf("%s, then %s", got, again)
		}
	}
}

func TestCJSONSettingsLastForOneRun(t *testing.T) {
	L := boundedState(t, 1_000_000, 1<<24)
	if err := doString(L,
		`cjson.encode_number_precision(3) assert(cjson.encode(3.14159) == '3.14')`); err != nil {
		t.Fatal(err)
	}
	L.Begin(lua.Budget{Instructions: 1_000_000, Bytes: 1 << 24})
	if err := doString(L, `assert(cjson.encode(3.14159) == '3.14159')`); err != nil {
		t.Fatal(err)
	}
}

func TestCJSONChargesTheBudget(t *testing.T) {
	for _, c := range []struct {
		instructions int64
		code, want   string
	}{
		{1 << 40, `local t = {} for i = 1, 1000 do t[i] = string.rep('x', 100) end while true do cjson.encode(t) end`, errScriptMemory},
		{1 << 40, `cjson.encode_sparse_array(false, 0) local s = {} for i = 1, 1000 do s[i] = 1 end s[100001] = 1 while true do cjson.encode(s) end`, errScriptMemory},
		{1 << 40, `local s = '[' .. string.rep('1,', 10000) .. '1]' while true do cjson.decode(s) end`, errScriptMemory},
		{300_000, `local s = string.rep(' ', 100000) while true do pcall(cjson.decode, s) end`,
			errScriptInstructions},
		{300_000, `local t = {} for i = 1, 100 do t[i] = i end while true do cjson.encode(t) cmsgpack.pack(t) end`, errScriptInstructions},
	} {
		L := boundedState(t, c.instructions, 1<<22)
		err := doString(L, c.code)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.code, err, c.want)
		}
	}
}
