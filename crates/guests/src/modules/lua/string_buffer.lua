-- string.buffer: a queue of bytes. It hands out no memory, so that reserve, commit and ref do not exist.
local _, native = ...
local newproxy = native.newproxy
local concat, getmetatable, select = table.concat, getmetatable, select
local tostring, type, unpack = tostring, type, unpack

-- A buffer is a userdata, because Lua 5.1 asks only those for their length. Its parts are kept here.
local parts = setmetatable({}, { __mode = "k" })
local methods = {}

-- All that is in it, as one string.
local function whole(buffer)
  local text = concat(parts[buffer])
  parts[buffer] = { text }
  return text
end

local function text_of(value)
  if type(value) == "string" or type(value) == "number" then return tostring(value) end
  local meta = getmetatable(value)
  if type(meta) == "table" and meta.__tostring then return tostring(value) end
  error("bad argument to 'put' (string/number/__tostring expected, got " .. type(value) .. ")", 3)
end

function methods.put(buffer, ...)
  local list = parts[buffer]
  for i = 1, select("#", ...) do list[#list + 1] = text_of((select(i, ...))) end
  return buffer
end

function methods.putf(buffer, format, ...) return buffer:put(format:format(...)) end

function methods.set(buffer, text)
  parts[buffer] = { text }
  return buffer
end

function methods.reset(buffer)
  parts[buffer] = {}
  return buffer
end
methods.free = methods.reset

function methods.skip(buffer, count)
  parts[buffer] = { whole(buffer):sub(count + 1) }
  return buffer
end

-- Takes parts of these lengths, or all.
function methods.get(buffer, ...)
  local text, taken, out = whole(buffer), 0, {}
  local count = math.max(select("#", ...), 1)
  for i = 1, count do
    local length = (select(i, ...)) or #text
    out[i] = text:sub(taken + 1, taken + length)
    taken = taken + #out[i]
  end
  parts[buffer] = { text:sub(taken + 1) }
  return unpack(out, 1, count)
end

methods.tostring = whole

local prototype = newproxy(true)
local meta = getmetatable(prototype)
meta.__index = methods
meta.__tostring = whole
meta.__len = function(buffer) return #whole(buffer) end
meta.__concat = function(a, b) return tostring(a) .. tostring(b) end
meta.__metatable = "buffer"

return {
  new = function()
    local buffer = newproxy(prototype)
    parts[buffer] = {}
    return buffer
  end,
}
