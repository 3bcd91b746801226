---- 0
return x
---- 0
x=1
---- 0
function foo() end
---- 0
function string.foo() end
---- 0
for i=1,2 do y=i end
---- 0
local function f() x=1 end f()
---- 0
string.foo=1
---- 0
string.rep=1
---- 0
redis=nil
---- 0
redis.call=nil
---- 0
KEYS={} return 1
---- 1 a
KEYS[1]="x" KEYS[7]="y" return KEYS
---- 1 a
return KEYS
---- 0
rawset(_G,"a",1)
---- 0
rawset(string,"a",1)
---- 0
table.insert(redis,1)
---- 0
setmetatable(_G,{})
---- 0
setmetatable(string,{})
---- 0
return {type(getmetatable(_G)), type(getmetatable("")), type(getmetatable(string))}
---- 0
local t={} for k,v in pairs(getmetatable(_G)) do t[#t+1]=k end return t
---- 0
local t={} for k,v in pairs(getmetatable("")) do t[#t+1]=k end return t
---- 0
getmetatable("").__index=nil return 1
---- 0
getmetatable("").foo=1
---- 0
setmetatable(getmetatable(""),{})
---- 0
getmetatable(_G).__index=nil
---- 0
return getmetatable("").__index == string
---- 0
return tostring(_G._G==_G)
---- 0
return tostring(rawget(_G,"nope"))
---- 0
return type(rawget(_G,"redis"))
---- 0
return _G.nope
---- 0
return _G["redis"] == redis
---- 1 a
return _G.KEYS == KEYS
---- 0
print(1)
---- 0
setfenv(1,{})
---- 0
return getfenv(1)
---- 0
return require("io")
---- 0
return module("x")
---- 0
return newproxy()
---- 0
return dofile("x")
---- 0
return loadfile("x")
---- 0
return io.open("x")
---- 0
return package.path
---- 0
return debug.getinfo(1)
---- 0
return arg
---- 1 a b
return {...}
---- 0
local function f(...) return arg.n end return f(1,2)
---- 0
local x = 1 do local x = 2 end x = 3 return x
---- 0
local function f() local y = 1 local function g() y = y + 1 return y end return g() + g() end return f()
---- 0
for i = 1, 3 do i = i * 2 end return 1
---- 0
local t = {} for k, v in pairs({1,2,3}) do v = v * 2 t[k] = v end return t
---- 0
repeat local done = true until done return "ok"
---- 0
local t={} for k,v in pairs(_G) do if k ~= "os" and k ~= "server" and k ~= "__redis__err__handler" then t[#t+1]=k..":"..type(v) end end table.sort(t) return t
---- 0
local t={} for _, l in ipairs({"math","string","table","coroutine","cjson","cmsgpack","struct","bit"}) do for k,v in pairs(_G[l]) do t[#t+1]=l.."."..k..":"..type(v) end end table.sort(t) return t
---- 0
local t={} for k,v in pairs(redis) do t[#t+1]=k..":"..type(v) end table.sort(t) return t
---- 0
return {redis.REDIS_VERSION, redis.REDIS_VERSION_NUM, _VERSION, redis.LOG_DEBUG,redis.LOG_VERBOSE,redis.LOG_NOTICE,redis.LOG_WARNING,redis.REPL_SLAVE,redis.REPL_REPLICA,redis.REPL_AOF,redis.REPL_ALL,redis.REPL_NONE}
---- 0
local redis, string = 1, 2 return redis + string
---- 0
local t = setmetatable({}, {__index = _G}) return type(t.redis)
---- 0
local t = setmetatable({}, {__index = string}) return t.rep("x", 3)
---- 0
return next(string) ~= nil
---- 0
return table.getn(string)
---- 0
return #string
---- 0
return loadstring("x=1")()
---- 0
return loadstring("error(1)")()
---- 0
return loadstring("error(1)","=foo")()
---- 0
return loadstring("error(1)","@foo")()
---- 0
return loadstring("\n\nerror('long')\n return 'a very long source text that does not fit into the room for it'")()
---- 0
return loadstring("return 'a very long source text that does not fit into the room for it' .. {}")()
---- 0
return loadstring("return ...")(7)
---- 0
return loadstring("return 0.1 .. '', #{1,2,3}")()
---- 0
local n = 0
return load(function() n = n + 1 if n == 1 then return "return " elseif n == 2 then return "42" end end)()
---- 0
return load(function() return nil end)()
---- 0
return {load(function() return {} end)}
---- 0
return load(5)
---- 0
return collectgarbage()
---- 0
return {collectgarbage("count")>0, gcinfo()>0}
