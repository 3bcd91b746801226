---- 0
return {7 % 3, -7 % 3, 7 % -3, -7 % -3, 5.5 % 2, 2 ^ 10, 7 / 2, 1 / 3 * 3 == 1, -2 ^ 2}
---- 0
return {tostring(7 / 2), tostring(2 ^ 0.5), tostring(10 / 2), tostring(1e308 * 10), tostring(-1e308 * 10), tostring(5 % 0 ~= 5 % 0), tostring(0 / 0 ~= 0 / 0), tostring(5.3 % 1.1 == 0.9), ('%.17g'):format(5.3 % 1.1), ('%.17g'):format(-5.3 % 1.1), ('%.17g'):format(1e20 % 3), ('%.17g'):format(1e15 % 7), ('%.17g'):format(-7.5 % 2), ('%.17g'):format(2^53 % 10), ('%.17g'):format(1700000000123 % 60000)}
---- 0
return {1 < 2, 1 <= 1, 1 > 2, 1 >= 2, 1 == 1.0, "1" == 1, 0 == -0, 0/0 == 0/0}
---- 0
return {3.7, -3.7, 2^31, 2^53, -2^53, 1e18}
---- 0
return {2^63, -2^63, 2^64, 1e300, -1e300}
---- 0
return {1/0, -1/0}
---- 0
return {math.floor(3.7), math.floor(-3.7), math.ceil(3.2), math.ceil(-3.2), math.abs(-5), math.max(1, 5, 3), math.min(1, 5, 3), math.floor("7.9")}
---- 0
return {tostring(math.sqrt(2)), tostring(math.pi), tostring(math.huge), tostring(math.exp(1)), tostring(math.log(2)), tostring(math.log10(1000)), tostring(math.pow(2, 0.5)), tostring(math.deg(1)), tostring(math.rad(90))}
---- 0
return {tostring(math.fmod(7, 3)), tostring(math.fmod(-7, 3)), tostring(math.fmod(7, -3)), tostring(math.fmod(5.5, 2)), tostring(math.mod(7, 3))}
---- 0
local t = {} for i, v in ipairs({{math.modf(3.7)}, {math.modf(-3.7)}, {math.modf(5)}, {math.modf(1/0)}, {math.frexp(8)}, {math.frexp(0)}, {math.frexp(-0.3)}}) do t[i] = tostring(v[1]) .. "," .. tostring(v[2]) end return t
---- 0
return {tostring(math.ldexp(0.5, 4)), tostring(math.ldexp(1, -1074)), tostring(math.ldexp(1, 1024))}
---- 0
return {tostring(math.sin(0)), tostring(math.cos(0)), tostring(math.tan(0)), tostring(math.asin(1)), tostring(math.acos(1)), tostring(math.atan(1)), tostring(math.atan2(1, -1)), tostring(math.sinh(0)), tostring(math.cosh(0)), tostring(math.tanh(0))}
---- 0
return math.floor()
---- 0
return math.floor("x")
---- 0
return math.floor({})
---- 0
return math.floor(nil)
---- 0
return math.max()
---- 0
return math.min("a")
---- 0
return math.pow(2)
---- 0
return math.random(0)
---- 0
return math.random(5, 1)
---- 0
return math.random("x")
---- 0
for i = 1, 100 do local a, b, c = math.random(), math.random(6), math.random(-3, 3) if a < 0 or a >= 1 or b < 1 or b > 6 or b % 1 ~= 0 or c < -3 or c > 3 then return "out" end end return "in"
---- 0
math.randomseed(42) local a = {math.random(100), math.random(100)} math.randomseed(42) return {a[1] == math.random(100), a[2] == math.random(100)}
---- 0
math.randomseed()
---- 0
math.randomseed("x")
---- 0
local r = {} for i = 1, 3 do r[#r + 1] = i end for i = 3, 1, -1 do r[#r + 1] = i end for i = 1, 0 do r[#r + 1] = "never" end for i = 1, 2, 0.5 do r[#r + 1] = i * 10 end return r
---- 0
local n = 0 for i = 1, 3 do for j = 1, 3 do if j == 2 then break end n = n + 1 end end return n
---- 0
local n = 0 for i = 10, 1 do n = n + 1 end for i = 1, 10, 3 do n = n + 1 end return n
---- 0
local i, n = 0, 0 repeat local k = i i = i + 1 n = n + k until k == 5 return n
---- 0
local i = 0 while i < 10 do i = i + 1 if i == 5 then break end end return i
---- 0
return {bit.band(0xff, 0x0f), bit.bor(0xf0, 0x0f), bit.bxor(0xff, 0x0f), bit.bnot(0), bit.bnot(-1), bit.band(7, 6, 4), bit.bor(1, 2, 4, 8), bit.bxor(1, 3, 7)}
---- 0
return {bit.lshift(1, 4), bit.lshift(1, 31), bit.lshift(1, 32), bit.rshift(256, 4), bit.rshift(-1, 28), bit.arshift(-256, 4), bit.arshift(256, 4), bit.rol(0x12345678, 8), bit.ror(0x12345678, 8), bit.bswap(0x12345678)}
---- 0
return {bit.tobit(2^31), bit.tobit(2^32), bit.tobit(-1), bit.tobit(1.5), bit.tobit(2.5), bit.tobit(0xffffffff), bit.tobit(1e10)}
---- 0
return {bit.tohex(1), bit.tohex(-1), bit.tohex(0xffff, 4), bit.tohex(0xabcdef, -4), bit.tohex(0x21, 2), bit.tohex(255, 0), bit.tohex(255, 20)}
---- 0
return bit.band()
---- 0
return bit.band("x")
---- 0
return bit.band({})
---- 0
return bit.lshift(1)
---- 0
return {bit.band("12", 8), bit.tobit("0x10")}
---- 0
return bit.tohex()
---- 0
return {0x10, 0xff, 1e2, 1E-2 * 100, .5 * 2, 3., 0xA}
---- 0
return {10 == "10", 10 .. "" == "10", "10" + 0 == 10, "0x10" * 1, "1e1" * 1}
---- 0
return {not nil, not 0, not "", not false, nil == false, 1 and 2, nil and 1, false or "x", nil or false, 1 or error("never")}
---- 0
return {5 > 3 and "yes" or "no", nil and "yes" or "no", (1 == 2) == false}
---- 0
return {2 + 3 * 4, (2 + 3) * 4, 2 ^ 3 ^ 2, -2 ^ 2, not 1 == 2, 1 .. 2 == "12", 10 - 5 - 2, 100 / 10 / 2}
