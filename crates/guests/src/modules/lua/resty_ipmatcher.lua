-- resty.ipmatcher: which of many networks an address is in.
local _, native = ...
local error, ipairs, pairs, setmetatable, tonumber, tostring, type =
  error, ipairs, pairs, setmetatable, tonumber, tostring, type
local _M = { _VERSION = "0.6.1" }
local meta = { __index = _M }
local MAX_BITS = { ipv4 = 32, ipv6 = 128 }

-- The bits of an address as a text of 0 and 1.
local function bits_of(kind, address)
  local numbers, width, base = {}, 8, 10
  if kind == "ipv6" then
    width, base = 16, 16
  end
  for part in address:gmatch("%x+") do
    local number, bits = tonumber(part, base), {}
    for i = width, 1, -1 do
      bits[i] = number % 2
      number = (number - bits[i]) / 2
    end
    numbers[#numbers + 1] = table.concat(bits)
  end
  return table.concat(numbers)
end

local function parse(text)
  if type(text) ~= "string" then
    return nil
  end
  local address, length = text:match("^([^/]+)/?(%d*)$")
  local kind, written
  if address then
    kind, written = native.address(address)
  end
  length = tonumber(length) or MAX_BITS[kind]
  if not kind or length > MAX_BITS[kind] then
    return nil
  end
  return kind, bits_of(kind, written), length
end

local function build(networks, value_of)
  local found = { ipv4 = {}, ipv6 = {} }
  local lengths = { ipv4 = {}, ipv6 = {} }
  for text, value in value_of(networks) do
    local kind, bits, length = parse(text)
    if not kind then
      return nil, "invalid ip address: " .. tostring(text)
    end
    if not found[kind][length] then
      found[kind][length] = {}
      lengths[kind][#lengths[kind] + 1] = length
    end
    found[kind][length][bits:sub(1, length)] = value
  end
  for _, list in pairs(lengths) do
    -- The longest prefix counts.
    table.sort(list, function(a, b) return a > b end)
  end
  return setmetatable({ found = found, lengths = lengths }, meta)
end

-- A matcher of a list of addresses and networks.
function _M.new(networks)
  if type(networks) ~= "table" then
    error("missing valid ip argument", 2)
  end
  return build(networks, function(list)
    local at = 0
    return function()
      at = at + 1
      return list[at], true
    end
  end)
end

-- A matcher whose matches are the values of the networks.
function _M.new_with_value(networks)
  if type(networks) ~= "table" then
    error("missing valid ip argument", 2)
  end
  return build(networks, pairs)
end

function _M:match(text)
  local kind, bits = parse(text)
  if not kind then
    return false, "invalid ip address, not ipv4 and ipv6"
  end
  for _, length in ipairs(self.lengths[kind]) do
    local value = self.found[kind][length][bits:sub(1, length)]
    if value ~= nil then
      return value
    end
  end
  return false
end

function _M:match_bin(binary)
  local format = #binary == 4 and "%d" or "%02x%02x"
  local parts = {}
  for at = 1, #binary, #binary == 4 and 1 or 2 do
    parts[#parts + 1] = format:format(binary:byte(at, at + 1))
  end
  return self:match(table.concat(parts, #binary == 4 and "." or ":"))
end

function _M.parse_ipv4(text)
  local kind, bits, length = parse(text)
  return kind == "ipv4" and not text:find("/", 1, true) and length == 32 and tonumber(bits, 2) or false
end

function _M.parse_ipv6(text)
  local kind, bits = parse(text)
  if kind ~= "ipv6" or text:find("/", 1, true) then
    return false
  end
  local words = {}
  for at = 1, 128, 32 do
    words[#words + 1] = tonumber(bits:sub(at, at + 31), 2)
  end
  return words
end

return _M
