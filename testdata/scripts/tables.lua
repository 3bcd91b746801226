---- 0
local t = {1, 2, 3} table.insert(t, 4) table.insert(t, 1, 0) return t
---- 0
local t = {1, 2, 3} return {table.remove(t), table.remove(t, 1), #t, t[1], table.remove({}), 9}
---- 0
local t = {1, 2, 3} table.insert(t, 10, "x") return t[10]
---- 0
local t = {1, 2, 3} table.insert(t, -1, "x") return t
---- 0
local t = {1, 2, 3} return {table.remove(t, 10), #t}
---- 0
return table.insert({1})
---- 0
return table.insert({1}, 1, 2, 3)
---- 0
return table.insert(1, 2)
---- 0
return table.insert(nil, 2)
---- 0
return table.insert({}, "a", 2)
---- 0
return {table.concat({}), table.concat({1, 2, 3}), table.concat({1, 2, 3}, ", "), table.concat({"a", "b", "c"}, "-", 2), table.concat({"a", "b", "c"}, "-", 2, 2), table.concat({"a", "b"}, "-", 3), table.concat({1.5, "x", 1e20}, " ")}
---- 0
return table.concat({1, {}, 3})
---- 0
return table.concat({1, nil, 3}, ",", 1, 3)
---- 0
return table.concat({true})
---- 0
return table.concat({1, 2}, {})
---- 0
return table.concat(5)
---- 0
local t = {5, 2, 8, 1, 9, 3} table.sort(t) return t
---- 0
local t = {5, 2, 8, 1, 9, 3} table.sort(t, function(a, b) return a > b end) return t
---- 0
local t = {"pear", "apple", "fig", "Banana"} table.sort(t) return t
---- 0
local t = {{n=3,v="c"}, {n=1,v="a"}, {n=2,v="b"}} table.sort(t, function(a, b) return a.n < b.n end) local r = {} for i, e in ipairs(t) do r[i] = e.v end return r
---- 0
local t = {3, "x", 1} table.sort(t)
---- 0
local t = {3, {}, 1} table.sort(t)
---- 0
local t = {{}, {}} table.sort(t)
---- 0
local t = {1, nil, 3} table.sort(t, function(a, b) return (a or 0) < (b or 0) end) return #t > 0
---- 0
table.sort({3, 2, 1}, 5)
---- 0
table.sort({1, 2, 3, 4, 5, 6, 7, 8}, function() return true end) return "done"
---- 0
table.sort({3, 1, 2}, function(a, b) error("in compare") end)
---- 0
local calls = 0 local t = {} for i = 1, 50 do t[i] = (i * 37) % 50 end table.sort(t, function(a, b) calls = calls + 1 return a < b end) return {calls, t[1], t[25], t[50]}
---- 0
local t = {} for i = 1, 100 do t[i] = (i * 7919) % 1009 end table.sort(t) local ok = true for i = 2, 100 do ok = ok and t[i - 1] <= t[i] end return {ok, t[1], t[100]}
---- 0
return {table.getn({1, 2, 3}), table.maxn({1, 2, [10] = 3}), table.maxn({}), table.maxn({[1.5] = 1, [-3] = 2}), table.maxn({a = 1})}
---- 0
local r = {} table.foreach({10, 20}, function(k, v) r[#r + 1] = k .. "=" .. v end) return r
---- 0
local r = {} return {table.foreach({10, 20}, function(k, v) if v == 20 then return k end end), table.foreachi({5, 6, 7}, function(i, v) r[#r + 1] = v if i == 2 then return "stop" end end), #r}
---- 0
return table.setn({}, 1)
---- 0
return {unpack({1, 2, 3})}
---- 0
return {unpack({1, 2, 3}, 2)}
---- 0
return {unpack({1, 2, 3}, 2, 3)}
---- 0
return {select("#", unpack({}, 1, 5)), select("#", unpack({1, nil, 3}, 1, 3)), select("#", unpack({}))}
---- 0
return select("#", unpack({}, 1, 7000))
---- 0
return unpack({}, 1, 100000)
---- 0
return unpack({}, 1, 1e9)
---- 0
return {unpack({1, 2}, -1, 1)}
---- 0
return unpack()
---- 0
return unpack("abc")
---- 0
local t = {} for i = 1, 100000 do t[i] = i end return unpack(t)
---- 0
return {next({}), next({5}), next({5}, 1)}
---- 0
return next({}, "nokey")
---- 0
return next({1, 2}, 5)
---- 0
return next(1)
---- 0
local n = 0 for k, v in pairs({1, 2, nil, 4, a = 5, b = nil}) do n = n + 1 end return n
---- 0
local t = {1, 2, 3, 4} for k in pairs(t) do t[k] = nil end return next(t) == nil
---- 0
local t = {a = 1, b = 2, c = 3} for k in pairs(t) do t[k] = nil end return next(t) == nil
---- 0
local r = {} for i, v in ipairs({1, 2, nil, 4}) do r[#r + 1] = v end return r
---- 0
local r = {} for i, v in next, {10, 20, 30} do r[#r + 1] = i * v end return r
---- 0
local t = {} t.x = 1 t["y z"] = 2 t[1] = 3 t[1.5] = 4 t[true] = 5 t[t] = 6 return {t.x, t["y z"], t[1], t[1.5], t[true], t[t], t[false], 7}
---- 0
local t = {} t[1] = "int" t[1.0] = "float" t["1"] = "string" return {t[1], t["1"], #t}
---- 0
local t = {[1] = "a", [2] = "b", [4] = "d"} return {t[1], t[2], t[3] == nil, t[4]}
---- 0
local t = {} t[2^53] = "big" t[-1] = "neg" t[0] = "zero" t[0.1 + 0.2] = "float" return {t[2^53], t[-1], t[0], t[0.30000000000000004], #t}
---- 0
local t = {} t[nil] = 1
---- 0
local t = {} t[0/0] = 1
---- 0
local t = {} return {t[nil] == nil, t[0/0] == nil}
---- 0
local t = {1, 2, 3; 4, n = 5, [6] = 7} return {#t >= 4, t[4], t.n, t[6]}
---- 0
local t = {{1, 2}, {3, 4, {5}}} return {t[1][2], t[2][3][1], #t[2]}
---- 0
local t = {} for i = 1, 10 do t[i] = i end for i = 1, 10 do t[i] = nil end return #t
---- 0
local t = {} t[3] = 3 t[2] = 2 t[1] = 1 return {#t, t[1], t[2], t[3]}
---- 0
local t = {f = function(self, x) return self.v + x end, v = 10} return {t:f(5), t.f(t, 6), t.f({v = 1}, 1)}
---- 0
local a, b = {1}, {1} local c = a return {a == b, a == c, a ~= b}
---- 0
local t = setmetatable({}, {__index = function(t, k) return k .. "!" end}) return {t.x, t[1], rawget(t, "x") == nil}
---- 0
local base = {x = 1, y = 2} local t = setmetatable({y = 3}, {__index = base}) return {t.x, t.y, t.z == nil}
---- 0
local log = {} local t = setmetatable({}, {__newindex = function(t, k, v) rawset(t, k, v * 2) log[#log + 1] = k end}) t.a = 1 t.a = 5 t.b = 2 return {t.a, t.b, log}
---- 0
local store = {} local t = setmetatable({}, {__newindex = store}) t.x = 1 return {rawget(t, "x") == nil, store.x}
---- 0
local mt = {__add = function(a, b) return a.v + b.v end, __sub = function(a, b) return a.v - b.v end, __mul = function(a, b) return a.v * b.v end, __div = function(a, b) return a.v / b.v end, __mod = function(a, b) return a.v % b.v end, __pow = function(a, b) return a.v ^ b.v end, __unm = function(a) return -a.v end, __concat = function(a, b) return a.v .. "&" .. b.v end, __len = function() return 77 end} local a, b = setmetatable({v = 7}, mt), setmetatable({v = 2}, mt) return {a + b, a - b, a * b, tostring(a / b), a % b, a ^ b, -a, a .. b, #a}
---- 0
local mt = {__eq = function(a, b) return a.v == b.v end, __lt = function(a, b) return a.v < b.v end, __le = function(a, b) return a.v <= b.v end} local a, b, c = setmetatable({v = 1}, mt), setmetatable({v = 2}, mt), setmetatable({v = 1}, mt) return {a == c, a == b, a < b, a > b, a <= c, a >= b, a ~= c, rawequal(a, c)}
---- 0
local mt = {__lt = function(a, b) return a.v < b.v end} local a, b = setmetatable({v = 1}, mt), setmetatable({v = 2}, mt) return {a <= b, b <= a}
---- 0
local t = setmetatable({}, {__call = function(self, a, b) return (a or 0) + (b or 0) end}) return {t(1, 2), t(5), t()}
---- 0
local t = setmetatable({}, {__tostring = function() return "shown" end}) return {tostring(t), ("%s"):format(tostring(t))}
---- 0
return tostring(setmetatable({}, {__tostring = function() return 5 end}))
---- 0
return {getmetatable(setmetatable({}, {__metatable = "locked"}))}
---- 0
return setmetatable(setmetatable({}, {__metatable = false}), {})
---- 0
local t = setmetatable({}, {__metatable = nil}) return type(getmetatable(t))
---- 0
local t = setmetatable({}, {}) return {setmetatable(t, nil) == t, getmetatable(t) == nil}
---- 0
local A = {} A.__index = A function A.new(x) return setmetatable({x = x}, A) end function A:get() return self.x end local B = setmetatable({}, {__index = A}) B.__index = B function B.new(x) return setmetatable({x = x * 2}, B) end function B:twice() return self:get() * 2 end return {A.new(1):get(), B.new(2):get(), B.new(3):twice()}
---- 0
local t = setmetatable({}, {__index = function(t, k) if k > 5 then return "deep" end return t[k + 1] end}) return t[1]
---- 0
local t = {} setmetatable(t, {__index = t}) return t.x
---- 0
return {rawequal("a", "a"), rawequal(1, 1.0), rawequal({}, {}), rawget({a = 1}, "a"), rawset({}, "b", 2).b}
---- 0
local t = setmetatable({}, {__index = {x = 1}, __newindex = function() error("no") end}) rawset(t, "x", 2) return {t.x, rawget(t, "y") == nil}
---- 0
local t = setmetatable({}, {__newindex = function() error("is constant") end}) t.x = 1
---- 0
local t = setmetatable({1, 2, 3}, {__mode = "k"}) return #t
---- 0
return {({1, 2, 3})[2], ({a = 5}).a, (("x")):upper()}
---- 0
local function count(...) local n = 0 for _ in pairs({...}) do n = n + 1 end return n end return {count(), count(nil), count(1, nil, 2), select("#", nil, nil)}
---- 0
return {select(2, "a", "b", "c")}
---- 0
return {select(-1, "a", "b", "c"), (select(2, "a", "b", "c"))}
---- 0
return select(-4, "a", "b", "c")
---- 0
return {select(5, "a"), 1}
