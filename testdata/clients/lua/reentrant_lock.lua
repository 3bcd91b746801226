-- Takes a reentrant lock in Redisson's shape: a hash with one field, the owner,
-- whose value is how often the owner has entered.
-- KEYS[1] lock; ARGV[1] lease in ms; ARGV[2] owner.
-- Answers nil when the caller holds the lock now, else the holder's remaining lease in ms.
local free = redis.call('exists', KEYS[1]) == 0
local mine = redis.call('hexists', KEYS[1], ARGV[2]) == 1
if free or mine then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])
