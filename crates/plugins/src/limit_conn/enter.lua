-- Adds the request ARGV[3] to those of KEYS[1] that are served, unless there are ARGV[1] of them. A request whose end is
-- never reported leaves after ARGV[2] seconds. Answers whether it was added, and how many there are.
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local number = redis.call('ZCARD', KEYS[1])
if number >= tonumber(ARGV[1]) then
  return { 0, number }
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return { 1, number + 1 }
