-- Adds ARGV[1] tokens to a window, which begins with the first that are added and lasts ARGV[2] seconds.
-- Answers how many were added, and for how many milliseconds the window lasts.
local used = tonumber(redis.call('GET', KEYS[1]) or 0)
if tonumber(ARGV[1]) > 0 then
  used = redis.call('INCRBY', KEYS[1], ARGV[1])
end
local left = redis.call('PTTL', KEYS[1])
if left == -1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  left = ARGV[2] * 1000
end
return { used, left }
