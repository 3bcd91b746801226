-- Gives a token bucket in Redisson's shape its rate, unless it has one.
-- KEYS[1] settings (hash); ARGV[1] rate (permits an interval); ARGV[2] interval in ms;
-- ARGV[3] type: 0 one bucket for all clients, 1 a bucket for each client.
-- Answers 1 when this call set the rate, 0 when it was set before.
local first = redis.call('hsetnx', KEYS[1], 'rate', ARGV[1])
redis.call('hsetnx', KEYS[1], 'interval', ARGV[2])
redis.call('hsetnx', KEYS[1], 'type', ARGV[3])
return first
