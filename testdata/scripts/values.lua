---- 0
return 1
---- 0
return "x"
---- 0
return nil
---- 0
return
---- 0
return true
---- 0
return false
---- 0
redis.setresp(3) return true
---- 0
redis.setresp(3) return false
---- 0
redis.setresp(3) return nil
---- 0
redis.setresp(3) return {true,false,1}
---- 0
return {3.99,-3.99,1e19,-1e19,0/0,1/0,2^53,2^63,-2^63}
---- 0
return {1,2,nil,4}
---- 0
return {true,false,"x",{},{{}},function() end}
---- 0
return {double=3.5}
---- 0
return {double=1e300}
---- 0
return {double=1/0}
---- 0
return {double=-1/0}
---- 0
return {double=3}
---- 0
return {double="x"}
---- 0
return {map={a=1}}
---- 0
return {map={a={map={b={1,2}}}}}
---- 0
return {map=1}
---- 0
return {map={}}
---- 0
return {set={a=1}}
---- 0
return {set={}}
---- 0
return {set={[7]=true}}
---- 0
return {big_number="123"}
---- 0
return {big_number="12\r3"}
---- 0
return {big_number=5}
---- 0
return {verbatim_string={string="abc",format="txt"}}
---- 0
return {verbatim_string={string="abc",format="mkdx"}}
---- 0
return {verbatim_string={string="abc"}}
---- 0
return {verbatim_string="abc"}
---- 0
return {ok="fine", err="ERR first"}
---- 0
return {1, {2, {3, {4}}}}
---- 0
return {a=1, b=2}
---- 0
return {[1]="a", [2]="b", [4]="d"}
---- 2 k1 k2 a1 a2 a3
return {KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], #KEYS, #ARGV, KEYS[3], 5}
---- 0
return {redis.call("set","a","1"), redis.call("get","a"), redis.call("incr","a"), redis.call("type","a")}
---- 0
return redis.call("set","a","1")["ok"]
---- 0
return type(redis.call("get","nokey"))
---- 0
redis.setresp(3) return type(redis.call("get","nokey"))
---- 0
return {1,redis.call("get","nokey"),2}
---- 0
redis.setresp(3) return {1,redis.call("get","nokey"),2}
---- 0
return redis.call("mget","a","nokey","a")
---- 0
redis.setresp(3) return redis.call("mget","a","nokey","a")
---- 0
redis.setresp(3) local r = redis.call("mget","a","nokey","a") return {r[1], r[3], type(r[2])}
---- 0
redis.call("hset","h","a","1") redis.setresp(3) local r=redis.call("hgetall","h") return {type(r), type(r.map), r.map and r.map.a}
---- 0
redis.setresp(3) return redis.call("hgetall","h")
---- 0
return redis.call("hgetall","h")
---- 0
redis.call("zadd","z","1.5","a","2","b") redis.setresp(3) local r= redis.call("zscore","z","a") return {type(r), tostring(r.double)}
---- 0
redis.setresp(3) return {redis.call("zscore","z","a"), redis.call("zscore", "z", "nope")}
---- 0
return {redis.call("zscore","z","a"), redis.call("zscore", "z", "nope"), 1}
---- 0
redis.setresp(3) return redis.call("zrange","z","0","-1","withscores")
---- 0
return redis.call("zrange","z","0","-1","withscores")
---- 0
return redis.call("incrbyfloat", "f", 0.1)
---- 0
redis.call("set", "n", 0.1) return redis.call("get", "n")
---- 0
local t = {} for i, n in ipairs({0.1, 1e15, 1e16, 1e17, 1e20, 123456789012345678, 3.0, 1e-7, -5, 1/0, -1/0, 2^53, 1.5e300}) do redis.call("set", "n", n) t[i] = redis.call("get", "n") end return t
---- 0
return redis.call("echo", 0.1)
---- 0
return redis.call("ping")
---- 0
return redis.call("ping", "x")
---- 0
return redis.pcall("ping", "x", "y")
---- 0
return redis.pcall("echo")
---- 0
return redis.call("select","3")
---- 0
redis.call("select","3") redis.call("set","in3","1") return redis.call("exists", "in3")
---- 0
return redis.call("exists","in3")
---- 0
redis.call("select","3") return redis.call("exists","in3")
---- 0
return redis.pcall("select","16")
---- 0
return redis.pcall("select","x")
---- 0
return redis.pcall("select")
---- 0
return redis.sha1hex("a")
---- 0
return redis.sha1hex(1)
---- 0
return redis.sha1hex({})
---- 0
return redis.replicate_commands()
---- 0
return redis.breakpoint()
---- 0
return redis.debug("x")
---- 0
return {redis.acl_check_cmd("get","x"), redis.acl_check_cmd("set"), redis.acl_check_cmd("PING")}
---- 0
local t = redis.call("time") return {#t, type(t[1]), t[1] + 0 > 1e9}
---- 0
return 10 .. 20
---- 0
return 0.1 .. ""
---- 0
return 1e15 .. " " .. 2^53 .. 100 .. " " .. -0.5 .. " " .. 1e100 .. " " .. 1/3
---- 0
local t = setmetatable({}, {__concat = function(a, b) return "[" .. tostring(type(a)) .. type(b) .. "]" end}) return "a" .. "b" .. t .. "c" .. "d"
---- 0
local function two() return "x", "y" end return "a" .. two()
---- 0
local function f(...) return "a" .. ... end return f("b", "c")
---- 0
local function two() return {1,2}, 3 end return #two()
---- 0
return ("a" .. "b") .. ("c" .. "d")
---- 0
return #"abc" + #{1,2,3} + #"" + #{}
---- 0
local t = {} for i = 1, 300 do t[#t+1] = i end t[300] = nil return {#t, t[299]}
---- 0
local t = {n=0} t.n = t.n + 1 t["x" .. 1] = 2 t[t.n] = "one" return {t.n, t.x1, t[1]}
---- 0
local t = {[1]="a", ["k" .. 1]="b", "pos", [1.5]="c", [true]="d"} return {t[1], t.k1, t[1.5], t[true]}
---- 0
local a, b, c = (function() return 1, 2, 3 end)() return {a, b, c}
---- 0
local t = {} t[1], t[2], t[3] = 1, 2, 3 t[1], t[3] = t[3], t[1] return t
---- 0
local t = {a={b={}}} t.a.b.c = 5 t.a.b[100] = 6 local i = 101 t.a.b[i] = 7 return {t.a.b.c, t.a.b[100], t.a.b[101]}
---- 0
local t = {} local function f() return t end f()[70] = "x" return t[70]
---- 0
local t = {} local k = 1000 t[k] = "v" return {t[k], #t >= 0}
---- 0
local o = {v=1} function o:get(...) return self.v, select("#", ...) end function o.set(self, v) self.v = v end o:set(9) return {o:get(1,2,3)}
---- 0
local c = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end) return {c(1), c(10)}
---- 0
return {math.floor("3.7"), math.abs(-3), math.fmod(7,3), math.fmod(-7,3), math.ceil(1.2), math.max(1,5,3), math.min(4,2,8), math.log10(1000), math.sqrt(16), math.pow(2,10)}
---- 0
local t = {} for i, v in ipairs({math.modf(3.7), math.modf(-3.7), math.frexp(8), math.ldexp(0.5, 4), math.exp(0), math.pi, math.huge, math.deg(math.pi), math.rad(180), math.log(10), math.sin(1), math.cos(1), math.tan(1), math.atan2(1,2), math.log10(12345), math.cosh(1)}) do t[i] = tostring(v) end return t
---- 0
local a, b = math.random(), math.random(10) return {a >= 0 and a < 1, b >= 1 and b <= 10, math.random(3,3)}
---- 0
math.randomseed(5) local a = math.random() math.randomseed(5) return a == math.random()
---- 0
local t = {} for w in ("a b c"):gmatch("%a") do t[#t+1] = w:upper() end return t
---- 0
local i, t = 0, {} while true do i = i + 1 if i > 5 then break end if i % 2 == 0 then t[#t+1] = i end end return t
---- 0
local r = {} for k, v in pairs({10,20,30,x=1}) do r[#r+1] = tostring(k) .. "=" .. v end return r
---- 0
return tostring(nil) .. tostring(true) .. tostring(1.5) .. tostring("s")
---- 0
return {tonumber("0x10"), tonumber("  12  "), tonumber("1e2"), tonumber("ff", 16), tonumber("zz"), 9}
---- 0
return {"10" + 5, "3" * "4", 10 .. "", "0x10" + 0}
---- 0
return {1 == 1, "1" == 1, 2 > 1, "a" < "b", not nil, 5 % 3, -5 % 3, 2 ^ 3, 7 / 2}
---- 0
local r = {} for i = 3, 1, -1 do r[#r+1] = i end for i = 1, 2, 0.5 do r[#r+1] = i * 10 end return r
---- 0
local keys = redis.call("keys", "*") table.sort(keys) return keys
---- 0
return {rawequal("a", "a"), rawequal({}, {}), rawget({5}, 1), rawset({}, "a", 1).a}
---- 0
return {unpack({1,2,3}, 2)}
---- 0
return cjson.encode({1,2,{a=0.1}})
---- 0
return cjson.decode('{"a":[1,2,{"b":null}]}').a[3].b == cjson.null
---- 0
return cmsgpack.unpack(cmsgpack.pack({1,2,3}))
---- 0
return {struct.unpack("Bc0I", struct.pack("Bc0I", string.len("abc"), "abc", 77))}
---- 0
return bit.band(0xff, 0x0f)

---- 0
return {"10" + 1, "0x10" + 1, " 5 " * "2", 7 - "2", -"3", - -"0x1f", "7" % "4", "-7" % 4, "2" ^ "3", tostring("1" / "0"), tostring("1e1" + 0)}
---- 0
local out = {}
for _, s in ipairs({"1_000", "0b1", "0o7", "abc", "", " ", "1 2", "0x", "1e", "inf?"}) do
  local ok = pcall(function() return s + 1 end)
  out[#out + 1] = s .. "=" .. tostring(ok)
end
return out
---- 0
local t = setmetatable({}, {__add = function(a, b) return type(a) .. "+" .. type(b) end, __unm = function() return "neg" end})
return {"1" + t, t + "1", "abc" + t, t + "abc", -t}
---- 0
return "abc" + 1
---- 0
return 1 + "abc"
---- 0
return -"abc"
---- 0
local function f(...) local a, b = ... return select("#", ...), a, b, ... end
return {f(1, nil, 3)}
---- 0
local function f(...) local t = {0, ...} return #t, (...) end
return {f("a", "b", "c")}
---- 0
local function f(...) return ... end
return {f(), f(1), (f(1, 2)), f(1, 2)}
