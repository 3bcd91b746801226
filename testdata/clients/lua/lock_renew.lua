-- Starts the lease of a plain lock again: what a watchdog sends at a third of the TTL.
-- KEYS[1] lock; ARGV[1] the caller's token; ARGV[2] lease in ms.
-- Answers 1 when the lease was renewed, 0 when the lock is not the caller's.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
