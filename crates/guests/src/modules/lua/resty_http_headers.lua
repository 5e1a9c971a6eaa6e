-- resty.http_headers: headers that are found by any case, and with `_` for `-`.
local getmetatable, lower, rawget, rawset, setmetatable, tostring, type =
  getmetatable, string.lower, rawget, rawset, setmetatable, tostring, type
local headers_meta = {}

local function normal(name)
  return (lower(name):gsub("_", "-"))
end

local function new()
  return setmetatable({}, { names = {}, __index = headers_meta.index, __newindex = headers_meta.set })
end

local function names_of(headers)
  return getmetatable(headers).names
end

function headers_meta.index(headers, name)
  local known = type(name) == "string" and names_of(headers)[normal(name)]
  return known and rawget(headers, known) or nil
end

function headers_meta.set(headers, name, value)
  local names = names_of(headers)
  local key = normal(tostring(name))
  names[key] = names[key] or name
  rawset(headers, names[key], value)
end

return { new = new }
