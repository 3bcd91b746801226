---- 1 lock owner 30000
if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 1 else return 0 end
---- 1 lock other 30000
if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then return 1 else return 0 end
---- 1 lock other
if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end
---- 1 lock owner
if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end
---- 1 anyLock 30000 id:1
if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
  redis.call('hincrby', KEYS[1], ARGV[2], 1);
  redis.call('pexpire', KEYS[1], ARGV[1]);
  return nil;
end;
return redis.call('pttl', KEYS[1]) > 29000;
---- 1 anyLock 30000 id:2
if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
  redis.call('hincrby', KEYS[1], ARGV[2], 1);
  redis.call('pexpire', KEYS[1], ARGV[1]);
  return nil;
end;
return redis.call('pttl', KEYS[1]) > 29000;
---- 2 anyLock channel 0 30000 id:1 PUBLISH
if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then
  return nil;
end;
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
if (counter > 0) then
  redis.call('pexpire', KEYS[1], ARGV[2]);
  return 0;
else
  redis.call('del', KEYS[1]);
  redis.call(ARGV[4], KEYS[2], ARGV[1]);
  return 1;
end;
return nil;
---- 1 window 1000 60 5 a
redis.call('zremrangebyscore', KEYS[1], 0, tonumber(ARGV[1]) - tonumber(ARGV[2]))
redis.call('zadd', KEYS[1], ARGV[1], ARGV[4])
local n = redis.call('zcard', KEYS[1])
redis.call('expire', KEYS[1], math.ceil(ARGV[2] / 1000) + 1)
return {n <= tonumber(ARGV[3]) and 1 or 0, n, tostring(ARGV[1] / 3)}
---- 1 stock 5
redis.call('set', KEYS[1], ARGV[1])
local left = tonumber(redis.call('get', KEYS[1]))
if left > 0 then return redis.call('decr', KEYS[1]) end
return -1
---- 1 values 5 1
redis.call('zadd', 'permits', 10, struct.pack('Bc0I', string.len('abcd'), 'abcd', 3))
local released = 0
for i, v in ipairs(redis.call('zrangebyscore', 'permits', 0, 100)) do
  local random, permits = struct.unpack('Bc0I', v)
  released = released + permits
end
return released
---- 1 q a b c
local t = {}
for i = 1, #ARGV do t[#t + 1] = ARGV[i] end
table.insert(t, "last")
return {table.getn(t), unpack(t)}
