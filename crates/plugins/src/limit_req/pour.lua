-- Pours a request into the leaky bucket KEYS[1]. ARGV: the rate per second and the burst, both in thousandths of requests.
-- Answers by how many thousandths the rate is exceeded; -1 if that is more than the burst.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, excess = tonumber(ARGV[1]), 0
local level = redis.call('HMGET', KEYS[1], 'excess', 'at')
if level[1] and level[2] then
  excess = math.max(0, level[1] - rate * math.abs(now - level[2]) / 1000 + 1000)
  if excess > tonumber(ARGV[2]) then
    return { -1 }
  end
end
redis.call('HMSET', KEYS[1], 'excess', tostring(excess), 'at', now)
-- At most a year. Lua would write large numbers with an exponent, which PEXPIRE does not take.
local lasts = math.min(math.ceil((excess + 1000) * 1000 / rate), 31536000000)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lasts))
return { math.floor(excess) }
