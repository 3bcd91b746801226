-- Leaves a reentrant lock once; the last exit frees it and wakes who waits.
-- A latch keeps the answer for a moment, so an unlock that is sent twice counts once.
-- KEYS[1] lock; KEYS[2] channel of the waiters; KEYS[3] latch of this request.
-- ARGV[1] message for the waiters; ARGV[2] lease in ms; ARGV[3] owner;
-- ARGV[4] the command that publishes (PUBLISH or SPUBLISH); ARGV[5] life of the latch in ms.
-- Answers nil when the caller is not the owner, 0 when it still holds the lock, 1 when the lock is free.
local before = redis.call('get', KEYS[3])
if before then
  return tonumber(before)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
local answer = 0
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
else
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  answer = 1
end
redis.call('set', KEYS[3], answer, 'px', ARGV[5])
return answer
