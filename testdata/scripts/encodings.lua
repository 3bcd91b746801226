---- 0
return {cjson.encode({}), cjson.encode({1, 2, 3}), cjson.encode("x"), cjson.encode(1), cjson.encode(1.5), cjson.encode(true), cjson.encode(nil), cjson.encode(cjson.null), cjson.encode({a = 1}), cjson.encode({{}})}
---- 0
return {cjson.encode(0.1), cjson.encode(1/3), cjson.encode(1e15), cjson.encode(1e20), cjson.encode(123456789012345678), cjson.encode(-0.5), cjson.encode(2^53), cjson.encode(1e-10)}
---- 0
return cjson.encode('quote " backslash \\ slash / newline \n tab \t return \r zero \0 del \127 bell \7 utf \xc3\xa4 \b\f')
---- 0
return {cjson.encode({1, nil, 3}), cjson.encode({[1] = "a", [3] = "c"}), cjson.encode({[2] = "x"})}
---- 0
return cjson.encode({[1] = 1, [100] = 2})
---- 0
return cjson.encode({[1000] = 1})
---- 0
return {cjson.encode({["1"] = "s"}), cjson.encode({[1.5] = "f"})}
---- 0
return cjson.encode({[true] = 1})
---- 0
return cjson.encode({f = function() end})
---- 0
return cjson.encode(function() end)
---- 0
return cjson.encode(1/0)
---- 0
return cjson.encode(0/0)
---- 0
return cjson.encode({-1/0})
---- 0
return cjson.encode()
---- 0
return cjson.encode(1, 2)
---- 0
local t = {} for i = 1, 999 do t = {t} end return #cjson.encode(t)
---- 0
local t = {} for i = 1, 1001 do t = {t} end return #cjson.encode(t)
---- 0
local t = {} t[1] = t return cjson.encode(t)
---- 0
local v = cjson.decode('{"a": 1, "b": [1, 2, {"c": null}], "d": "x", "e": true, "f": false, "g": 1.5e3, "h": {}, "i": []}') return {v.a, v.b[3].c == cjson.null, v.d, tostring(v.e), tostring(v.f), v.g, type(v.h), #v.i, #v.b}
---- 0
return {cjson.decode("1"), cjson.decode('"x"'), cjson.decode("true"), cjson.decode("[]"), cjson.decode(" [ 1 , 2 ] "), cjson.decode("[-1, 0, 1e2, 1E+2, 0.5]")}
---- 0
return {cjson.decode('"\\u0041\\u00e4\\u20ac\\ud83d\\ude00\\n\\t\\\\\\/\\"\\b\\f\\r"')}
---- 0
return {type(cjson.decode("null")), tostring(cjson.decode("null") == cjson.null), tostring(cjson.null)}
---- 0
return cjson.decode("")
---- 0
return cjson.decode("{")
---- 0
return cjson.decode("[1, 2")
---- 0
return cjson.decode("[1 2]")
---- 0
return cjson.decode("[1,]")
---- 0
return cjson.decode('{"a" 1}')
---- 0
return cjson.decode('{a: 1}')
---- 0
return cjson.decode('{"a":1,}')
---- 0
return cjson.decode("nul")
---- 0
return cjson.decode("tru")
---- 0
return cjson.decode("[1] x")
---- 0
return cjson.decode('"abc')
---- 0
return cjson.decode('"\\x"')
---- 0
return cjson.decode('"\\u12"')
---- 0
return cjson.decode('"\\ud800"')
---- 0
return cjson.decode('["a\nb"]')
---- 0
return cjson.decode("01")
---- 0
return cjson.decode("-")
---- 0
return cjson.decode("1.")
---- 0
return {tostring(cjson.decode("[inf]")[1]), tostring(cjson.decode("-infinity")), cjson.decode("0x1F")}
---- 0
return cjson.decode("\239\187\191[]")
---- 0
return cjson.decode("\0[\0]\0")
---- 0
return cjson.decode(nil)
---- 0
return cjson.decode({})
---- 0
return cjson.decode(12)
---- 0
return #cjson.decode(("["):rep(1000) .. ("]"):rep(1000))
---- 0
return #cjson.decode(("["):rep(1001) .. ("]"):rep(1001))
---- 0
return cjson.decode(('{"a":'):rep(1001))
---- 0
local ok, e = pcall(cjson.decode, "[1, x]") return {tostring(ok), e}
---- 0
local v = cjson.decode('{"a":1,"a":2}') return v.a
---- 0
local v = cjson.decode('{"1":"x","2":"y"}') return {v["1"], v[1] == nil}
---- 0
return cjson.encode(cjson.decode('{"list":[1,2,[3]],"n":null}').list)
---- 0
return {cjson.encode(cjson.decode('[1.0, 2.50, 1e3, 12345678901234567890]'))}
---- 0
cjson.encode_max_depth(2) return cjson.encode({{{1}}})
---- 0
cjson.encode_max_depth(1000) cjson.decode_max_depth(1) local ok, e = pcall(cjson.decode, "[[1]]") cjson.decode_max_depth(1000) return {tostring(ok), e}
---- 0
cjson.encode_sparse_array(true) local s = cjson.encode({[1000] = 1}) cjson.encode_sparse_array(false, 2, 10) return s
---- 0
local a, b, c = cjson.encode_sparse_array() return {tostring(a), b, c}
---- 0
return {cjson.encode_max_depth(), cjson.decode_max_depth(), cjson.encode_number_precision(), tostring(cjson.encode_keep_buffer()), tostring(cjson.encode_invalid_numbers()), tostring(cjson.decode_invalid_numbers())}
---- 0
cjson.encode_number_precision(3) local s = cjson.encode(1/3) cjson.encode_number_precision(14) return s
---- 0
return cjson.encode_number_precision(99)
---- 0
return cjson.encode_max_depth(0)
---- 0
return cjson.encode_invalid_numbers("maybe")
---- 0
cjson.encode_invalid_numbers("null") local s = cjson.encode({0/0, 1/0}) cjson.encode_invalid_numbers(false) return s
---- 0
cjson.decode_invalid_numbers(false) local ok, e = pcall(cjson.decode, "[nan]") cjson.decode_invalid_numbers(true) return {tostring(ok), e}
---- 0
local new = cjson.new() return {type(new), new.encode({1}), type(new.null)}
---- 0
return {cjson._NAME, cjson._VERSION}
---- 0
local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end local t = {} for i, v in ipairs({1, -1, 127, 128, -32, -33, 255, 256, 65535, 65536, -128, -129, -32768, -32769, 2^31, 2^32, 2^53, -2^31, -2^53, 1.5, -0.1, 1e300, "", "a", ("x"):rep(31), ("x"):rep(32), true, false}) do t[i] = hex(cmsgpack.pack(v)) end return t
---- 0
local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end return {hex(cmsgpack.pack(nil)), hex(cmsgpack.pack({})), hex(cmsgpack.pack({1, 2, 3})), hex(cmsgpack.pack({a = 1})), hex(cmsgpack.pack({{}, {{}}})), hex(cmsgpack.pack(1, 2, 3)), hex(cmsgpack.pack({[1] = 1, [3] = 3}))}
---- 0
local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end local t = {} for i = 1, 20 do t[i] = i end return {hex(cmsgpack.pack(t)), #cmsgpack.pack(("x"):rep(300)), #cmsgpack.pack(("x"):rep(70000)), hex(cmsgpack.pack(("x"):rep(300)):sub(1, 5)), hex(cmsgpack.pack(("x"):rep(70000)):sub(1, 7))}
---- 0
return cmsgpack.pack()
---- 0
return #cmsgpack.pack(function() end)
---- 0
local t = {} for i = 1, 20 do t = {t} end return #cmsgpack.pack(t)
---- 0
local t = {} t[1] = t return #cmsgpack.pack(t)
---- 0
return {cmsgpack.unpack(cmsgpack.pack(1, "two", {3, {4}}, true, nil, 6))}
---- 0
return {cmsgpack.unpack("\x01\xa1x\x93\x01\x02\x03\xc3")}
---- 0
local t = cmsgpack.unpack("\129\161a\146\1\2") return {t.a[1], t.a[2]}
---- 0
local t = {} for i, s in ipairs({"\204\255", "\205\1\0", "\206\0\1\0\0", "\207\0\0\0\0\0\0\1\0", "\208\128", "\209\128\0", "\210\128\0\0\0", "\211\255\255\255\255\255\255\255\255", "\202\63\192\0\0", "\203\63\248\0\0\0\0\0\0", "\217\1a", "\218\0\1b", "\219\0\0\0\1c", "\196\1d", "\197\0\1e", "\198\0\0\0\1f", "\220\0\1\7", "\221\0\0\0\1\8", "\222\0\1\161k\9", "\223\0\0\0\1\161k\10", "\192", "\194", "\195", "\224", "\127"}) do local v = cmsgpack.unpack(s) t[i] = type(v) == "table" and "table" .. tostring(v[1] or v.k) or tostring(v) end return t
---- 0
return cmsgpack.unpack("")
---- 0
return cmsgpack.unpack("\193")
---- 0
return cmsgpack.unpack("\147\1\2")
---- 0
return cmsgpack.unpack("\162a")
---- 0
return cmsgpack.unpack("\199\1\2\3")
---- 0
return cmsgpack.unpack(nil)
---- 0
return cmsgpack.unpack({})
---- 0
return cmsgpack.unpack("\129\192\1")
---- 0
return {cmsgpack.unpack_one("\1\2\3"), cmsgpack.unpack_one("\1\2\3", 1), cmsgpack.unpack_one("\1\2\3", 2)}
---- 0
return {cmsgpack.unpack_limit("\1\2\3\4", 2), 99}
---- 0
return {cmsgpack.unpack_limit("\1\2\3\4", 2, 2)}
---- 0
return cmsgpack.unpack_one("\1", 5)
---- 0
return cmsgpack.unpack_one("\1", -1)
---- 0
return cmsgpack.unpack_limit("\1\2", 0)
---- 0
return {cmsgpack._NAME, cmsgpack._VERSION, type(cmsgpack.pack)}
---- 0
local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end return {hex(struct.pack("b", -1)), hex(struct.pack("B", 255)), hex(struct.pack("h", 1)), hex(struct.pack("H", 65535)), hex(struct.pack("i", -2)), hex(struct.pack("I", 7)), hex(struct.pack("l", 1)), hex(struct.pack("L", 1)), hex(struct.pack("f", 1.5)), hex(struct.pack("d", 1.5)), hex(struct.pack("s", "ab")), hex(struct.pack("c3", "abc")), hex(struct.pack("c0", "abc")), hex(struct.pack("x"))}
---- 0
local function hex(s) return (s:gsub(".", function(c) return ("%02x"):format(c:byte()) end)) end return {hex(struct.pack(">I", 1)), hex(struct.pack("<I", 1)), hex(struct.pack("=I", 1)), hex(struct.pack(">i2", 258)), hex(struct.pack(">I3", 66051)), hex(struct.pack(">i8", -1)), hex(struct.pack("<i1", 5)), hex(struct.pack("!4 b i", 1, 2)), hex(struct.pack("!8 b d", 1, 2)), hex(struct.pack(">HbH", 1, 2, 3))}
---- 0
return {struct.unpack("b", "\255"), struct.unpack("B", "\255"), struct.unpack("<h", "\1\2"), struct.unpack(">h", "\1\2"), struct.unpack("<I", "\1\0\0\0"), struct.unpack("s", "ab\0cd"), struct.unpack("c2", "abcd"), struct.unpack("Bc0", "\3abcd")}
---- 0
return {struct.unpack("<i4", "\255\255\255\255"), struct.unpack("d", struct.pack("d", 2.5)), struct.unpack("bb", "\1\2"), struct.unpack("b", "\1\2", 2)}
---- 0
return {struct.size("b"), struct.size("i"), struct.size("d"), struct.size("!8bd"), struct.size("c10"), struct.size("bxh"), struct.size("i3"), struct.size("<!4bi")}
---- 0
return struct.pack("y", 1)
---- 0
return struct.pack("i", "x")
---- 0
return struct.pack("i")
---- 0
return struct.pack("i33", 1)
---- 0
return struct.pack("c5", "abc")
---- 0
return struct.pack("!3i", 1)
---- 0
return struct.unpack("i", "ab")
---- 0
return struct.unpack("s", "abc")
---- 0
return struct.unpack("c0", "abc")
---- 0
return struct.unpack("c", "abc")
---- 0
return struct.unpack("b", "abc", 10)
---- 0
return struct.unpack("b", "abc", 0)
---- 0
return struct.size("s")
---- 0
return struct.size("c0")
---- 0
return struct.size("i99999999999")
---- 0
return struct.unpack("d", "short")
---- 0
return {redis.sha1hex(""), redis.sha1hex("abc"), redis.sha1hex(12.5), redis.sha1hex("a\0b"), redis.sha1hex(("x"):rep(1000))}
