---- 0
local function f(a, b, ...) return select("#", ...), a, b, ... end return {f(1), f(1, 2), f(1, 2, 3, 4)}
---- 0
local function f() return 1, 2, 3 end local a, b, c, d = f() return {a, b, c, d == nil, (f()), {f(), f()}, {f(), 10}}
---- 0
local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end return fact(15)
---- 0
local function loop(n, acc) if n == 0 then return acc end return loop(n - 1, acc + n) end return loop(1000, 0)
---- 0
local function counter() local n = 0 return function() n = n + 1 return n end end local a, b = counter(), counter() return {a(), a(), b(), a()}
---- 0
local fs = {} for i = 1, 3 do fs[i] = function() return i end end return {fs[1](), fs[2](), fs[3]()}
---- 0
local fs = {} local i = 1 while i <= 3 do local j = i fs[i] = function() j = j + 1 return j end i = i + 1 end return {fs[1](), fs[1](), fs[2](), fs[3]()}
---- 0
local a = 1 do local a = 2 do local a = 3 end a = a + 10 end return a
---- 0
local a, b = 1, 2 a, b = b, a return {a, b}
---- 0
local a, b, c = 1, 2, 3 a, b, c = c, a, b return {a, b, c}
---- 0
local a, b = 1, 2 a, b = b, a + b return {a, b}
---- 0
local a, t = 1, {} a, t.x = 5, a return {a, t.x}
---- 0
local a, t = 1, {} t.x, a = a, 5 return {a, t.x}
---- 0
local i, t = 1, {10, 20} i, t[i] = i + 1, i + 5 return {i, t[1], t[2]}
---- 0
local t = {} local u = t t, t.x = 1, 2 return {t, u.x}
---- 0
local t = {} local u = t t.x, t = 2, 1 return {t, u.x}
---- 0
local a, b, c = 1, 2, 3 a, b, c = (function() return c, a end)() return {a, b, c == nil}
---- 0
local a, b = 1, 2 local function swap() a, b = b, a end swap() return {a, b}
---- 0
local a, b = 1, 2 a, b = b return {a, b == nil}
---- 0
local a, b = 1, 2 a, b = b, a, error return {a, b}
---- 0
local order = {} local function f(n) order[#order + 1] = n return n end local t, x = {}, 0 x, t[f(1)], t[f(2)] = f(3), f(4), f(5) return {x, t[1], t[2], order}
---- 0
local x, t = 0, setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v) end}) local log = {} local p = setmetatable({}, {__newindex = function(_, k) log[#log + 1] = k end}) x, p.a, p.b = 1, 2, 3 return log
---- 0
local a, b = 10, 3 while b ~= 0 do a, b = b, a % b end return a
---- 0
local x, y = 0, 1 for i = 1, 20 do x, y = y, x + y end return x
---- 0
local t = {1, 2, 3, 4} local i, j = 1, #t while i < j do t[i], t[j] = t[j], t[i] i, j = i + 1, j - 1 end return t
---- 0
local a, b, c = 1 return {a, b == nil, c == nil}
---- 0
local t = {1, 2} local i = 1 i, t[i] = i + 1, 20 return {i, t[1], t[2]}
---- 0
if nil then return 1 elseif false then return 2 elseif 0 then return 3 else return 4 end
---- 0
do return "early" end return "late"
---- 0
return
---- 0
return nil, 1
---- 0
return 1, 2, 3
---- 0
return (function(...) return ... end)(1, 2)
---- 0
return {pcall(function() return 1, 2, 3 end)}
---- 0
return {pcall(error, "msg")}
---- 0
return {pcall(error, "msg", 0)}
---- 0
return {pcall(error, {err = "TABLE err"})}
---- 0
return {pcall(5)}
---- 0
return {pcall({})}
---- 0
return {pcall("x", 1)}
---- 0
return {xpcall(5, function(m) return "got " .. m end)}
---- 0
return {pcall(setmetatable({}, {__call = function(_, a) return a end}), 9)}
---- 0
return {pcall(error, nil)}
---- 0
return {pcall(error, 42)}
---- 0
return {pcall(error, true)}
---- 0
local ok, e = pcall(function() error({code = 7}) end) return {tostring(ok), type(e), e.code}
---- 0
local ok, e = pcall(function() local x = nil return x.y end) return {tostring(ok), (e:gsub("local 'x' %(a nil value%)", "a nil value"))}
---- 0
local ok, e = pcall(function() return 1 + {} end) return {tostring(ok), e}
---- 0
local ok, e = pcall(function() return "a" + 1 end) return {tostring(ok), e}
---- 0
local ok, e = pcall(function() return {} < {} end) return {tostring(ok), e}
---- 0
local ok, e = pcall(function() return 1 < "2" end) return {tostring(ok), e}
---- 0
local ok, e = pcall(function() return nil > 1 end) return {tostring(ok), e}
---- 0
local ok, e = pcall(function() return "x" .. {} end) return {tostring(ok), e}
---- 0
local ok, e = pcall(nil) return {tostring(ok), e}
---- 0
return {pcall()}
---- 0
return {pcall(pcall)}
---- 0
return {pcall(pcall, error)}
---- 0
return {pcall(pcall, error, "x")}
---- 0
return {xpcall(function() error("x") end, function(m) return "handled: " .. m end)}
---- 0
return {xpcall(function() return "fine" end, error)}
---- 0
return {xpcall(function() error({err = "E x"}) end, function(m) return m.err end)}
---- 0
return {xpcall(error, function(m) return type(m) end)}
---- 0
return xpcall()
---- 0
return {xpcall(function() end)}
---- 0
return {pcall(xpcall)}
---- 0
local r = {} for i = 1, 5 do local ok, e = pcall(function() if i % 2 == 0 then error("even " .. i, 0) end return i end) r[i] = ok and e or "failed: " .. e end return r
---- 0
local function nest(n) if n == 0 then error("deep", 0) end local ok, e = pcall(nest, n - 1) error(e .. n, 0) end local ok, e = pcall(nest, 5) return e
---- 0
error("a\nb")
---- 0
error("")
---- 0
error(("x"):rep(200))
---- 0
error({err = "WITH code"})
---- 0
error({err = "WITH\r\nbreaks"})
---- 0
error({err = 5})
---- 0
return {err = "CODE message"}
---- 0
return {err = ""}
---- 0
return {ok = ""}
---- 0
return redis.error_reply("")
---- 0
return redis.error_reply("A b c")
---- 0
return redis.error_reply("nocode")
---- 0
return redis.status_reply("A b c")
---- 0
assert(false, "assertion text")
---- 0
assert(nil)
---- 0
assert(1 == 2, {err = "X y"})
---- 0
return {assert(1, 2), assert("x")}
---- 0
local c = coroutine.create(function(a, b) local x = coroutine.yield(a + b) local y, z = coroutine.yield(x * 2) return y + z, "end" end) return {coroutine.resume(c, 1, 2), {coroutine.resume(c, 10)}, {coroutine.resume(c, 3, 4)}, {coroutine.resume(c)}, coroutine.status(c)}
---- 0
local c = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end) return {c(), c(), c(), c() == nil}
---- 0
local c = coroutine.wrap(function() return 1 end) c() c()
---- 0
local c = coroutine.wrap(function() error("inside") end) return {pcall(c)}
---- 0
local c = coroutine.wrap(function() error({err = "E in"}) end) c()
---- 0
local c = coroutine.create(function() error({code = 3}) end) local ok, e = coroutine.resume(c) return {tostring(ok), e.code, coroutine.status(c)}
---- 0
local states = {} local c c = coroutine.create(function() states[#states + 1] = coroutine.status(c) coroutine.yield() end) states[#states + 1] = coroutine.status(c) coroutine.resume(c) states[#states + 1] = coroutine.status(c) coroutine.resume(c) states[#states + 1] = coroutine.status(c) return states
---- 0
local outer outer = coroutine.create(function() local inner = coroutine.create(function() return coroutine.status(outer) end) local ok, s = coroutine.resume(inner) return s end) return {coroutine.resume(outer)}
---- 0
local c c = coroutine.create(function() return coroutine.resume(c) end) return {coroutine.resume(c)}
---- 0
return {tostring(coroutine.running()), type(coroutine.create(function() end))}
---- 0
return coroutine.create(1)
---- 0
return coroutine.resume(1)
---- 0
return coroutine.status()
---- 0
return coroutine.wrap("x")
---- 0
local function gen(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end) end local s = 0 for v in gen(10) do s = s + v end return s
---- 0
local c = coroutine.wrap(function() redis.call("set", "co", "1") coroutine.yield(redis.call("get", "co")) return redis.call("incr", "co") end) return {c(), c()}
---- 0
local c = coroutine.wrap(function() return redis.call("nosuch") end) return {pcall(c)}
---- 0
local c = coroutine.wrap(function() return pcall(function() coroutine.yield(1) end) end) return {c(), c()}
---- 0
local c = coroutine.wrap(function() table.sort({2, 1}, function(a, b) coroutine.yield("from sort") return a < b end) end) c()
---- 0
return loadstring("return 1 + 1")()
---- 0
return {loadstring("return ...")("a", "b")}
---- 0
local f, e = loadstring("return nosuch") return {type(f), pcall(f)}
---- 0
local f = loadstring("local a = ... return a * 2") return f(21)
---- 0
local n = 0 local f = load(function() n = n + 1 return ({"return ", "4", "2"})[n] end) return f()
---- 0
return {type(load), type(loadstring), type(dofile)}
---- 0
return {type(nil), type(1), type("x"), type({}), type(print == nil), type(type), type(coroutine.create(function() end))}
---- 0
local b = "old" local function none() return nil end b = none() and 1 return tostring(b)
---- 0
local b = "old" local function some() return 1 end b = some() and not b and 2 return tostring(b)
---- 0
local b = "old" local t = {} b = t.x and t.x.y or nil return tostring(b)
---- 0
local ok = true ok = redis.call("get", "nokey") and 1 return tostring(ok)
---- 0
local ok = "old" ok = redis.call("exists", "nokey") == 1 and "yes" or "no" return ok
---- 0
local function h(p) p = p .. "x" return p end return h("a")
---- 0
local function h(q, p) p = (p:upper()) return p .. q end return h("1", "x")
---- 0
local function h(p) p = #p return p end return h("abc")
---- 0
local function h(p) p = p % 3 p = {p, p + 1} return p end return h(5)
---- 0
local function h(p) p = (tostring(p)) p = tonumber(p) return p + 1 end return h(5)
---- 0
local function two() return 1, 2 end local t = {9, x = two()} return {#t, t[1], t.x, tostring(t[2])}
---- 0
local t = {x = tostring(5)} return {#t, t.x}
---- 0
local t = {10, ["k"] = select(2, "a", "b", "c")} return {#t, t.k}
---- 0
local d for i, v in ipairs({1}) do d = true or v end return tostring(d)
---- 0
local n = 0 for i, v in ipairs({1, 2, 3}) do if false then n = 100 end n = n + v end return n
---- 0
local n = 0 repeat local x = nil and 1 n = n + 1 until n == 3 or x return n
---- 0
local n = 0 while true do if nil then n = 50 else n = n + 1 end if n > 3 then break end end return n
---- 0
local n = 0 while not nil do n = n + 1 if n == 5 then break end end return n
---- 0
local n = 0 for k in pairs({a = 1, b = 2}) do local x = "s" or k n = n + #x end return n
---- 0
local function f(...) local v = 1 for i, e in ipairs({"x", "y"}) do v = (...) end return v end return {f(5, 6), f(7)}
---- 0
local function f(...) local a, b = 1, 2 a, b = (...) return {a, tostring(b)} end return f(5, 6)
---- 0
local function f(...) local a, b, c = ... a, b, c = c, ... return {a, b, c} end return f(1, 2, 3)
---- 0
local a, t = 1, {} local function change() a = 2 return 0 end t.x, t.y = a, change() return {t.x, t.y, a}
---- 0
local a = 1 local function change() a = 2 return 0 end local b, c = a, change() return {b, c}
---- 0
local a = 1 local function change() a = 2 return 0 end a = 5, change() return a
---- 0
local a = nil a = a or {} a.x = a.x or 5 a = a.x and a.x + 1 or 0 return a
---- 0
local x = 5 x = x > 3 and x < 10 and "in" or "out" return x
---- 0
local x = 15 x = x > 3 and x < 10 and "in" or "out" return x
---- 0
local x = false x = x == nil or x == false return tostring(x)
---- 0
return {1 and 2, nil and 2 or 3, false or nil or 4, tostring(nil or false), tostring(false and nil), 1 == 1 and "eq", not 1 == false}
---- 0
goto done
---- 0
local n = 0 for i = "1", "3" do n = n + i end return n
---- 0
local n = 0 for i = 1, "10", "0x2" do n = n + i end return n
---- 0
for i = 1, "x" do end
---- 0
for i = {}, 2 do end
---- 0
for i = 1, 2, true do end
---- 0
for i = nil, 2 do end
---- 0 3
local n = 0 for i = 1, ARGV[1] do n = n + i end return n
---- 0
local t = {1, 2, 3} for i, v in ipairs(t) do t[i], t[#t - i + 1] = t[#t - i + 1], v end return t
---- 0
local n = 0 for k in pairs({1, 2, 3}) do break end for k in pairs({1, 2, 3}) do do break end end for k in pairs({1, 2, 3}) do while true do break end n = n + k end return n
---- 0
for i = 1, 3 do break end for k in pairs({1, 2, 3}) do if k then break else return 9 end end return 1
---- 0
local a = 1 local a, b = 2, function() return a end return b()
---- 0
local function f(n) return n == 0 and 1 or n * f(n - 1) end return f(5)
---- 0
local r = {} for _, n in ipairs({25549, 25550, 25551, 25600, 25650}) do r[#r + 1] = loadstring("return #{" .. ("7,"):rep(n) .. "}")() end return r
---- 0
local r = {} for _, n in ipairs({25549, 25550, 25551, 25600, 25650}) do r[#r + 1] = loadstring("return ({" .. ("7,"):rep(n) .. "})[" .. n .. "]")() end return r
---- 0
local r = {} for _, n in ipairs({25549, 25550, 25551, 25600, 25650}) do r[#r + 1] = loadstring("return (not {" .. ("7,"):rep(n) .. "}) == false and " .. n)() end return r
---- 0
--[==x is no long comment
return 1
---- 0
--[= nor is this
return 2
---- 0
--[==[ this is
one ]=] ]==] return 3
---- 0
local goto = 1 return goto
---- 0
return {tostring(loadstring("return '\\255'")() == "\255"), select("#", loadstring("return '\\256'")), tostring((loadstring("return '\\300'")))}
---- 0
return {(loadstring("return\f1\v+\f2"))()}
---- 0
return {tostring((loadstring("return 1e"))), tostring((loadstring("return 1e+")))}
---- 0
local o = {} function o:f() return pcall(function() self.s:rep({1, 2, 3}) end) end o.s = "x" return {o:f()}
