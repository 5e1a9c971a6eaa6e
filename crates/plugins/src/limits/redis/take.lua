-- Takes at most ARGV[1] of every limit, the same of each. For each of n limits: KEYS[i] is its count; KEYS[n + i], if
-- there is one, the count of the window before; four ARGV are what it admits, for how many seconds its count is kept,
-- and how much is left of a window of which length.
local n = (#ARGV - 1) / 4
local taken, counts, carried = tonumber(ARGV[1]), {}, {}
for i = 1, n do
  local admits, left, length = ARGV[4 * i - 2], ARGV[4 * i], ARGV[4 * i + 1]
  counts[i], carried[i] = tonumber(redis.call('GET', KEYS[i]) or 0), 0
  if KEYS[n + i] then
    carried[i] = math.floor(tonumber(redis.call('GET', KEYS[n + i]) or 0) * left / length)
  end
  taken = math.min(taken, math.max(0, admits - counts[i] - carried[i]))
end
local answer = { taken }
for i = 1, n do
  if taken > 0 then
    counts[i] = redis.call('INCRBY', KEYS[i], taken)
    if counts[i] == taken then
      redis.call('EXPIRE', KEYS[i], ARGV[4 * i - 1])
    end
  end
  answer[2 * i], answer[2 * i + 1] = counts[i], carried[i]
end
return answer
