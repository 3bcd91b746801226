-- Takes permits from a token bucket in Redisson's shape. What was given out stands in a sorted
-- set (score = time in ms, member = packed id and number of permits) until its interval is over.
-- KEYS[1] settings; KEYS[2], KEYS[3] what is left, what was given out (shared);
-- KEYS[4], KEYS[5] the same two for this client alone.
-- ARGV[1] permits wanted; ARGV[2] now in ms; ARGV[3] an id that no other request uses.
-- Answers nil when the permits were given, else the ms after which to ask again.
local settings = redis.call('hgetall', KEYS[1])
local bucket = {}
for i = 1, #settings, 2 do
  bucket[settings[i]] = tonumber(settings[i + 1])
end
assert(bucket.rate and bucket.interval and bucket.type, 'the bucket has no rate yet')

local wanted, now_ms = tonumber(ARGV[1]), tonumber(ARGV[2])
assert(wanted <= bucket.rate, 'more permits wanted than the rate allows')

local left_key, given_key = KEYS[2], KEYS[3]
if bucket.type == 1 then
  left_key, given_key = KEYS[4], KEYS[5]
end

local left = redis.call('get', left_key)
if left == false then
  left = bucket.rate
  redis.call('set', left_key, bucket.rate)
else
  left = tonumber(left)
  local over_ms = now_ms - bucket.interval
  local back = 0
  for _, member in ipairs(redis.call('zrangebyscore', given_key, 0, over_ms)) do
    local _, permits = struct.unpack('Bc0I', member)
    back = back + permits
  end
  if back > 0 then
    redis.call('zremrangebyscore', given_key, 0, over_ms)
    left = math.min(bucket.rate, left + back)
    redis.call('set', left_key, left)
  end
end

if left < wanted then
  local oldest = redis.call('zrange', given_key, 0, 0, 'withscores')
  return math.max(1, tonumber(oldest[2]) + bucket.interval - now_ms)
end
redis.call('zadd', given_key, now_ms, struct.pack('Bc0I', string.len(ARGV[3]), ARGV[3], wanted))
redis.call('decrby', left_key, wanted)
redis.call('pexpire', left_key, bucket.interval * 2)
redis.call('pexpire', given_key, bucket.interval * 2)
return nil
