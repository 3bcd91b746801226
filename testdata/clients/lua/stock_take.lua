-- Sells from a stock, never below zero, and writes the sale down.
-- KEYS[1] stock (string), KEYS[2] sales (hash: name of the sale, pieces); ARGV[1] how many; ARGV[2] the sale's name.
-- Answers what is left, or -1 when there was not enough (then nothing is changed).
local left = tonumber(redis.call('GET', KEYS[1]) or '0')
local wanted = tonumber(ARGV[1])
if left < wanted then
  return -1
end
redis.call('HSET', KEYS[2], ARGV[2], wanted)
return redis.call('DECRBY', KEYS[1], wanted)
