-- Gives a plain lock back, but only for the one whose token lies in it.
-- KEYS[1] lock; ARGV[1] the caller's token.
-- Answers 1 when the lock was given back, 0 when it is not the caller's.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
