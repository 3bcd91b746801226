---- 0
error("boom")
---- 0
error({err="MY boom"})
---- 0
error({err="boom"})
---- 0
error(5)
---- 0
error()
---- 0
error(nil)
---- 0
error("x",0)
---- 0
error("x",2)
---- 0
local function f() error("x",2) end
f()
---- 0
error(true)
---- 0
error({err=1})
---- 0
error({err="A b", source="foo", line=17})
---- 0
error({err="A b\r\nc"})
---- 0
assert(false,"msg")
---- 0
assert(false)
---- 0
assert(nil, {err="X y"})
---- 0
assert(false, 12)
---- 0
assert()
---- 0
return {assert(1, 2, 3)}
---- 0
local rate = redis.call("hget", "nokey", "rate")
assert(rate ~= false, "RateLimiter is not initialized")
---- 0
return redis.call("set")
---- 0
return redis.pcall("set")
---- 0
return redis.call("nosuch")
---- 0
return redis.pcall("nosuch", "a")
---- 0
return redis.call()
---- 0
return redis.pcall()
---- 0
return redis.call({})
---- 0
return redis.call("get",{})
---- 0
return redis.call("get",nil)
---- 0
return redis.pcall("get",nil)
---- 0
return redis.call("get",true)
---- 0
return redis.call("eval","return 1","0")
---- 0
return redis.call("evalsha","x","0")
---- 0
return redis.call("script","nosuch")
---- 0
return redis.call("script","load","return 1")
---- 0
redis.call("hset","h","f","v")
return redis.call("get","h")
---- 0
return redis.pcall("get","h")
---- 0

local r = redis.pcall("get","h")
error(r)
---- 0
local r = redis.pcall("get","h")
return r.err
---- 0
local r = redis.pcall("get","h")
return r["ok"] == nil
---- 0
local r=redis.pcall("get","h") local t={} for k,v in pairs(r) do t[#t+1]=k.."="..tostring(v) end table.sort(t) return t
---- 0
local ok,e=pcall(redis.call,"get","h") return {tostring(ok),type(e), e}
---- 0
local ok,e=pcall(function() redis.call("get","h") end) return {tostring(ok),type(e), e}
---- 0
local ok,e=pcall(function() error("hey") end) return e
---- 0
return {pcall(error,{err="x y"})}
---- 0
return {pcall(error,{err=5})}
---- 0
return type(select(2,pcall(error,{err={}})))
---- 0
return {pcall(error)}
---- 0
return {xpcall(function() redis.call("get") end, function(e) return e.err end)}
---- 0
return {xpcall(function() error("x") end, function(e) return e.."!" end)}
---- 0
return {xpcall(function() return 1, 2 end, function(e) return e.."!" end)}
---- 0
local c=coroutine.wrap(function() error("x") end) c()
---- 0
local c=coroutine.create(function() error("x") end) return {coroutine.resume(c)}
---- 0
coroutine.yield()
---- 0
redis.call("set","before","an error")
error("late")
---- 0
return redis.call("get","before")
---- 0
return redis.error_reply("foo bar")
---- 0
return redis.error_reply("-FOO bar")
---- 0
return redis.error_reply("")
---- 0
return redis.error_reply()
---- 0
return redis.error_reply(1)
---- 0
return redis.error_reply({})
---- 0
return redis.error_reply("foo").err
---- 0
return redis.error_reply("-foo").err
---- 0
return redis.error_reply("a b\r\n")
---- 0
return redis.error_reply("a\nb c").err
---- 0
return redis.error_reply("a\nbc").err
---- 0
return redis.error_reply("a b\r\nc").err
---- 0
return redis.error_reply("- b").err
---- 0
return redis.error_reply("--a b").err
---- 0
return redis.error_reply("-").err
---- 0
return redis.status_reply("foo")
---- 0
return redis.status_reply("")
---- 0
return redis.status_reply()
---- 0
return redis.status_reply("a\r\n").ok
---- 0
return redis.status_reply("a",1)
---- 0
return redis.status_reply(5)
---- 0
return {err="foo"}
---- 0
return {err="foo\r\nbar"}
---- 0
return {ok="fo\r\no"}
---- 0
return {ok=1}
---- 0
return {err=1}
---- 0
return {err=1, 2}
---- 0
return {ok={}, 2}
---- 0
return {{err="ERR in"}, {ok="FINE"}, 3}
---- 0
return 1+nil
---- 0
return {}+1
---- 0
return 1 < "x"
---- 0
return {} < {}
---- 0
return nil < 1
---- 0
return "a".. nil
---- 0
return "a".. {}
---- 0
return #5
---- 0
for i="a",2 do end
---- 0
for i=1,"x" do end
---- 0
for i=1,2,"x" do end
---- 0
local function f() return f() + 1 end return f()
---- 0
local function f() pcall(f) end f() return 1
---- 0
local t={} t[nil]=1
---- 0
local t={} t[0/0]=1
---- 0
for i,v in nil do end
---- 0
for i,v in ipairs(nil) do end
---- 0
return ipairs()
---- 0
return pairs(5)
---- 0
return setmetatable(1,{})
---- 0
return setmetatable({},1)
---- 0
return setmetatable({})
---- 0
return setmetatable(setmetatable({},{__metatable=1}),{})
---- 0
return unpack({},1,1e8)
---- 0
return unpack(nil)
---- 0
return select(0)
---- 0
return select("x")
---- 0
return {select(-2,1,2,3)}
---- 0
return {select(2,1,2,3)}
---- 0
return {select("#",1,nil,nil)}
---- 0
return select(-5,1,2,3)
---- 0
return tonumber()
---- 0
return tonumber("10",99)
---- 0
return rawget(1,1)
---- 0
return rawset({},nil,1)
---- 0
return string.rep()
---- 0
return ("x"):rep({})
---- 0
return getmetatable()
---- 0
return type()
---- 0
return collectgarbage("foo")
---- 0
return redis.nosuch
---- 0
return redis.sha1hex()
---- 0
return redis.log()
---- 0
return redis.log(1)
---- 0
return redis.log("a","b")
---- 0
return redis.log(7,"b")
---- 0
return redis.log(redis.LOG_WARNING,"b",3,nil)
---- 0
return {pcall(redis.log)}
---- 0
return redis.set_repl()
---- 0
return redis.set_repl(77)
---- 0
return redis.set_repl("x")
---- 0
return redis.set_repl(redis.REPL_ALL)
---- 0
return redis.setresp()
---- 0
return redis.setresp(4)
---- 0
return redis.setresp("3")
---- 0
return redis.setresp("a")
---- 0
return redis.setresp({})
---- 0
return redis.setresp(2.5)
---- 0
return redis.setresp(3,4)
---- 0
return redis.acl_check_cmd("nosuch","x")
---- 0
return redis.acl_check_cmd()
---- 0
return redis.acl_check_cmd({})
---- 0
return math.random(0)
---- 0
return math.random(2,1)
---- 0
return math.random(1,2,3)
---- 0
return math.randomseed()
---- 0
return math.max()
---- 0
local f; return f()
---- 0
local f; return (function() return f() end)()
---- 0
local t = {}; return t:x()
---- 0
local t = {}; return t["x y"]()
---- 0
local t = {}; return t["x\0y"]()
---- 0
local t = {}; local k = "x"; return t[k]()
---- 0
local t = {a={}}; return t.a:b()
---- 0
return ("x")()
---- 0
return ("x"):nope()
---- 0
return redis.nope(1 and 2 or 3)
---- 0
local t = {} return (t.x or t.y)()
---- 0
local f = function() end return f()()
---- 0
local f = nil for a in f do end
---- 0
local t = {} t.y(1, {}, function() end)
---- 0
return {pcall(redis.nope)}
---- 0
return {pcall(function() redis.nope() end)}
---- 0
return {pcall(string.gsub, "a", "a", function() redis.nope() end)}
---- 0
return coroutine.wrap(function() redis.nope() end)()
---- 0
local t = setmetatable({}, {__index=function() return 5 end}) return t.x()
---- 0
local t = {} local function g() return t.x() end return g()
---- 0
KEYS()
---- 0
KEYS[1]()
