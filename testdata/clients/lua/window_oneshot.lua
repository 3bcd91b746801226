-- Counts one call in a sliding window, lock and all, in a single round trip:
-- takes the lock, trims what is too old, adds this call, counts, sets the expiry, unlocks.
-- KEYS[1] lock, KEYS[2] window (sorted set, score = time of the call in ms).
-- ARGV[1] token; ARGV[2] lock lease in ms; ARGV[3] now in ms; ARGV[4] window in ms;
-- ARGV[5] a member that no other call uses.
-- Answers how many calls the window holds, or nil when another holds the lock.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return nil
end
local now_ms = tonumber(ARGV[3])
local window_ms = tonumber(ARGV[4])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now_ms - window_ms)
redis.call('ZADD', KEYS[2], now_ms, ARGV[5])
local count = redis.call('ZCARD', KEYS[2])
redis.call('PEXPIRE', KEYS[2], window_ms)
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return count
