-- Takes at most ARGV[1] of a quota of ARGV[2], whose window begins with the first that is taken and lasts ARGV[3] seconds.
-- Answers how many were taken, how many are now, and for how many milliseconds the window lasts.
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
local taken = math.max(0, math.min(tonumber(ARGV[1]), tonumber(ARGV[2]) - used))
if taken > 0 then
  used = redis.call('INCRBY', KEYS[1], taken)
end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  left = ARGV[3] * 1000
end
return { taken, used, left }
