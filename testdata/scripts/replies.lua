---- 0
return {redis.call("set", "k", "v"), redis.call("get", "k"), redis.call("get", "nokey"), redis.call("del", "k"), redis.call("exists", "k")}
---- 0
return type(redis.call("set", "k", "v"))
---- 0
return redis.call("set", "k", "v").ok
---- 0
local r = redis.call("get", "nokey") return {type(r), tostring(r)}
---- 0
redis.call("hset", "h", "a", "1", "b", "2") local r = redis.call("hgetall", "h") return {#r, r[1], r[2], r[3], r[4]}
---- 0
redis.setresp(3) local r = redis.call("hgetall", "h") return {r.map.a, r.map.b, #r}
---- 0
redis.setresp(3) local r = redis.call("get", "nokey") return {type(r), tostring(r)}
---- 0
redis.setresp(3) return {redis.call("get", "nokey"), "after"}
---- 0
redis.setresp(3) local t = redis.call("mget", "nokey", "k") return {tostring(t[1]), t[2]}
---- 0
redis.call("zadd", "z", 1, "a", 2.5, "b", "inf", "c") redis.setresp(3) local r = redis.call("zrange", "z", 0, -1, "withscores") return {type(r[1]), r[1][1], tostring(r[1][2].double), tostring(r[2][2].double), tostring(r[3][2].double)}
---- 0
redis.setresp(3) return redis.call("zscore", "z", "b")
---- 0
redis.setresp(3) return redis.call("zscore", "z", "nosuch")
---- 0
redis.setresp(3) return redis.call("zincrby", "z", 0.5, "b")
---- 0
redis.setresp(2) return redis.call("zincrby", "z", 0.5, "b")
---- 0
redis.setresp(3) return redis.call("zmscore", "z", "a", "nosuch")
---- 0
redis.setresp(3) return redis.call("zrange", "z", 0, -1, "withscores")
---- 0
redis.setresp(3) return redis.call("hgetall", "nokey")
---- 0
redis.setresp(3) return redis.call("config", "get", "nosuch")
---- 0
redis.setresp(3) redis.call("set", "k", "v") redis.setresp(2) local r = redis.call("hgetall", "h") return #r
---- 0
return {1, 2.9, -2.9, "3", true, "after true"}
---- 0
return {1, false, "after false"}
---- 0
return {1, nil, 3}
---- 0
return {nil, 2}
---- 0
return {[1] = 1, [2] = 2, x = "not shown"}
---- 0
return {{{{}}}}
---- 0
return {ok = "OK", err = "first"}
---- 0
return {double = 1.5}
---- 0
return {double = 1}
---- 0
return {double = 1/0}
---- 0
return {double = -1/0}
---- 0
return {double = "1.5"}
---- 0
return {double = 1e300}
---- 0
return {double = 0.1}
---- 0
return {map = {a = 1}}
---- 0
return {map = {}}
---- 0
return {map = {[1] = {map = {[2] = 3}}}}
---- 0
return {map = 5}
---- 0
return {map = {a = {1, 2, false}}}
---- 0
return {set = {a = true}}
---- 0
return {set = {}}
---- 0
return {set = {1, 2}}
---- 0
return {set = "x"}
---- 0
return {set = {[5] = false}}
---- 0
return {big_number = "12345678901234567890"}
---- 0
return {big_number = "12\r\n34"}
---- 0
return {big_number = 12}
---- 0
return {big_number = "x"}
---- 0
return {verbatim_string = {format = "txt", string = "hello"}}
---- 0
return {verbatim_string = {format = "mkd", string = "# h"}}
---- 0
return {verbatim_string = {format = "t", string = "x"}}
---- 0
return {verbatim_string = {format = "long", string = "x"}}
---- 0
return {verbatim_string = {string = "x"}}
---- 0
return {verbatim_string = {format = "txt"}}
---- 0
return {verbatim_string = "x"}
---- 0
return {true, false}
---- 0
redis.setresp(3) return {true, false}
---- 0
redis.setresp(3) return true
---- 0
redis.setresp(3) return false
---- 0
redis.setresp(3) return nil
---- 0
redis.setresp(3) return {map = {a = true, }}
---- 0
redis.setresp(3) return {map = {[true] = 1}}
---- 0
redis.setresp(3) return {double = 3.25}
---- 0
redis.setresp(3) return {{double = 3.25}, {big_number = "1"}, {set = {x = true}}, {verbatim_string = {format = "txt", string = "v"}}, {map = {k = "v"}}}
---- 0
return {{double = 3.25}, {big_number = "1"}, {set = {x = true}}, {verbatim_string = {format = "txt", string = "v"}}, {map = {k = "v"}}}
---- 0
return function() end
---- 0
return coroutine.create(function() end)
---- 0
return cjson.null
---- 0
return {function() end, cjson.null, 3}
---- 0
return setmetatable({}, {__index = {ok = "hidden"}})
---- 0
return setmetatable({1}, {__index = function(t, k) if k == 2 then return "two" end end})
---- 0
return setmetatable({1, 2}, {__len = function() return 1 end})
---- 0
return _G
---- 0
return redis
---- 0
return string
---- 0
return redis.call("ping")
---- 0
return redis.call("PING", "hello")
---- 0
return redis.call("echo", "x")
---- 0
return redis.call("type", "h")
---- 0
return redis.call("incrbyfloat", "f", "1.5")
---- 0
redis.setresp(3) return redis.call("incrbyfloat", "f", "1.5")
---- 0
return redis.call("set", "n", 10) and redis.call("incrby", "n", 5)
---- 0
return redis.call("set", "n", 3.14) and redis.call("get", "n")
---- 0
return redis.call("set", "n", 1e20) and redis.call("get", "n")
---- 0
return redis.call("set", "n", 1/3) and redis.call("get", "n")
---- 0
return redis.call("set", "n", -0.0) and redis.call("get", "n")
---- 0
return redis.call("set", "n", 2^63) and redis.call("get", "n")
---- 0
return redis.call("set", "n", true)
---- 0
return redis.call("set", "n", nil)
---- 0
return redis.call("set", {}, "x")
---- 0
return redis.call(5)
---- 0
return redis.call("")
---- 0
return redis.call("get", "k", nil)
---- 0
return redis.call("GET" .. " k")
---- 0
return redis.pcall("set", "n", {})
---- 0
return redis.pcall()
---- 0
return redis.pcall("nosuch").err
---- 0
local r = redis.pcall("lpush", "h", "x") return {type(r), r.err}
---- 0
local r = redis.pcall("incr", "h") return r
---- 0
local ok, e = pcall(redis.call, "incr", "h") return {tostring(ok), type(e), tostring(e)}
---- 0
local ok, e = pcall(redis.pcall, "incr", "h") return {tostring(ok), type(e), e.err}
---- 0
redis.call("incr", "h")
---- 0
return {redis.pcall("incr", "h"), redis.pcall("get"), redis.pcall("nosuch")}
---- 0
return redis.call("blpop", "nolist", 0)
---- 0
return redis.call("brpop", "nolist", "other", 1)
---- 0
return redis.call("blmove", "nolist", "dst", "left", "right", 0)
---- 0
return redis.call("brpoplpush", "nolist", "dst", 0)
---- 0
return redis.call("blmpop", 0, 1, "nolist", "left")
---- 0
return redis.call("bzpopmin", "nozset", 0)
---- 0
return redis.call("bzmpop", 0, 1, "nozset", "min")
---- 0
redis.setresp(3) return redis.call("bzpopmax", "nozset", 0)
---- 0
redis.call("rpush", "list", "a", "b") return redis.call("blpop", "nolist", "list", 0)
---- 0
return redis.call("xread", "block", 0, "streams", "nostream", "$")
---- 0
return redis.pcall("blpop", "nolist", "x")
---- 0
return redis.pcall("blpop", "nolist", -1)
---- 0
return redis.pcall("wait", 0, 0)
---- 0
return redis.pcall("watch", "k")
---- 0
return redis.pcall("multi")
---- 0
return redis.pcall("exec")
---- 0
return redis.pcall("subscribe", "c")
---- 0
return redis.pcall("auth", "x")
---- 0
return redis.pcall("hello", 3)
---- 0
return redis.pcall("client", "id")
---- 0
return redis.pcall("monitor")
---- 0
return redis.pcall("config", "set", "maxmemory", "0")
---- 0
return redis.pcall("script", "flush")
---- 0
return redis.pcall("function", "flush")
---- 0
return redis.pcall("eval_ro", "return 1", 0)
---- 0
return redis.pcall("fcall", "f", 0)
---- 0
return redis.publish
---- 0
return redis.call("publish", "nobody", "x")
---- 0
return {redis.LOG_DEBUG, redis.LOG_WARNING, redis.REPL_ALL, redis.REPL_NONE, redis.REPL_AOF, redis.REPL_SLAVE, redis.REPL_REPLICA}
---- 0
return {redis.log(redis.LOG_NOTICE, "a", 1, "b"), 1}
---- 0
return redis.log(redis.LOG_NOTICE, {})
---- 0
return {redis.replicate_commands(), redis.set_repl(redis.REPL_ALL), redis.breakpoint(), 5}
---- 0
return {redis.acl_check_cmd("set", "k", "v"), redis.acl_check_cmd("get", "k")}
---- 0
local t = redis.call("time") return {#t, type(t[1]), t[1] == redis.call("time")[1]}
---- 0
return {#KEYS, #ARGV, KEYS[1] == nil, ARGV[1] == nil}
---- 2 k1 k2 a1 a2 a3
return {KEYS[1], KEYS[2], ARGV[1], ARGV[3], #KEYS, #ARGV}
---- 1 k v
table.insert(KEYS, "x") KEYS[1] = nil ARGV.n = 1 return {#ARGV, KEYS[2]}
---- 1 k 5
return {ARGV[1] + 1, ARGV[1] .. 1, type(ARGV[1]), tonumber(ARGV[1]) == 5}
---- 1 k 5
local a = ARGV ARGV = nil return a
---- 0
return redis.call("select", 1)
---- 0
redis.call("select", 2) redis.call("set", "two", "2") redis.call("select", 0) return {redis.call("exists", "two")}
---- 0
redis.call("select", 2) return redis.call("get", "two")
---- 0
return redis.call("get", "two")
