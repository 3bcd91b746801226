-- Claims one run of a scheduled job for the caller, and says who has it.
-- KEYS[1] the run's mark; ARGV[1] claimant; ARGV[2] how long the mark stands, in ms.
-- Answers {1, claimant} when the caller got the run, {0, other} when another has it.
local other = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if other then
  return {0, other}
end
return {1, ARGV[1]}
