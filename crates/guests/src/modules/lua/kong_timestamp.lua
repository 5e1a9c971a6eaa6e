-- kong.tools.timestamp: when the present second, minute … year began, in milliseconds.
local FIELDS = { "second", "minute", "hour", "day", "month", "year" }
-- Numbers beyond this are milliseconds: as seconds they are later than the year 20000.
local MAX_SECONDS = 568971820800
local DAY = 86400

local _M = { timestamp_table_fields = FIELDS }

function _M.get_utc() return math.floor(ngx.now()) * 1000 end
function _M.get_utc_ms() return ngx.now() * 1000 end

local function seconds_of(now)
  now = now or _M.get_utc()
  return now > MAX_SECONDS and now / 1000 or now
end

-- Days from 1970 to the first of March of a year that begins there, so that leap days come last.
local function days_to(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  local before = 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
  return before + math.floor((153 * (month - 3) + 2) / 5) + day - 719469
end

function _M.get_timetable(now)
  return os.date("!*t", math.floor(seconds_of(now)))
end

function _M.get_timestamps(now, tracked)
  local second = math.floor(seconds_of(now))
  local t = os.date("!*t", second)
  local starts = {
    second = second,
    minute = second - second % 60,
    hour = second - second % 3600,
    day = second - second % DAY,
    month = days_to(t.year, t.month, 1) * DAY,
    year = days_to(t.year, 1, 1) * DAY,
  }
  local stamps = {}
  for _, field in ipairs(FIELDS) do
    if not tracked or tracked[field] ~= nil then stamps[field] = starts[field] * 1000 end
  end
  return stamps
end

return _M
