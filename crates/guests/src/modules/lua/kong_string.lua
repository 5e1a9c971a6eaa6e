-- kong.tools.string: texts.
local stringx = require "pl.stringx"
local base64 = require "ngx.base64"
local _M = { join = stringx.join, split = stringx.split }

function _M.strip(value)
  if value == nil then return "" end
  return stringx.strip(tostring(value))
end

-- Whether a value is UTF-8; otherwise the position of the first byte that is not.
function _M.validate_utf8(value)
  local text, at = tostring(value), 1
  while at <= #text do
    local a, b, c, d = text:byte(at, at + 3)
    local function continues(byte, low, high) return byte and byte >= (low or 128) and byte <= (high or 191) end
    if a < 128 then
      at = at + 1
    elseif a >= 194 and a <= 223 and continues(b) then
      at = at + 2
    elseif a >= 224 and a <= 239 and continues(b, a == 224 and 160 or 128, a == 237 and 159 or 191) and continues(c) then
      at = at + 3
    elseif a >= 240 and a <= 244 and continues(b, a == 240 and 144 or 128, a == 244 and 143 or 191) and continues(c)
      and continues(d) then
      at = at + 4
    else
      return false, at
    end
  end
  return true
end

local UNITS = { k = { 2 ^ 10, "KiB" }, m = { 2 ^ 20, "MiB" }, g = { 2 ^ 30, "GiB" } }

function _M.bytes_to_str(bytes, unit, scale)
  local letter = (unit or ""):lower()
  if letter == "" or letter == "b" then return ("%d"):format(bytes) end
  scale = scale or 2
  if type(scale) ~= "number" or scale < 0 then error("scale must be equal or greater than 0", 2) end
  local known = UNITS[letter]
  if not known then error("invalid unit '" .. unit .. "' (expected 'k/K', 'm/M', or 'g/G')", 2) end
  return ("%." .. scale .. "f %s"):format(bytes / known[1], known[2])
end

local function decoded(value)
  if type(value) ~= "string" then return value end
  return ngx.decode_base64(value) or base64.decode_base64url(value) or value
end

-- What Base64 stands for, in a string or in those of a list; anything else stays.
function _M.try_decode_base64(value)
  if type(value) ~= "table" then return decoded(value) end
  for i, item in ipairs(value) do value[i] = decoded(item) end
  return value
end

function _M.replace_dashes(text) return (text:gsub("-", "_")) end
function _M.replace_dashes_lower(text) return (text:lower():gsub("-", "_")) end

-- An iterator over the parts between separators.
function _M.isplitn(text, separator, limit)
  local parts, i = stringx.split(text, separator, limit), 0
  return function()
    i = i + 1
    return parts[i]
  end
end

-- The parts between separators, and how many there are.
function _M.splitn(text, separator, limit)
  local parts = stringx.split(text, separator, limit)
  return parts, #parts
end

return _M
