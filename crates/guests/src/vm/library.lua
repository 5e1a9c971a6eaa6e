-- Functions of Lua's library that work long inside one instruction, so that no hook ends them: they take steps first.
-- Calls of the originals are tail calls, so that their errors name the code that called.
local take, take_bytes = ...
local error, rawget, select, tonumber, type = error, rawget, select, tonumber, type
local collect, date, min = collectgarbage, os.date, math.min
-- Less than this is not worth taking steps for.
local SHORT = 256

local function measure(bytes)
  if bytes > SHORT then
    take_bytes(bytes)
  end
end

for _, name in ipairs({ "lower", "reverse", "upper" }) do
  local original = string[name]
  string[name] = function(text, ...)
    if type(text) == "string" then
      measure(#text)
    end
    return original(text, ...)
  end
end

-- The bytes of the texts among some values.
local function bytes_of(...)
  local bytes = 0
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" then
      bytes = bytes + #value
    end
  end
  return bytes
end

-- Functions of any number of values: a text among them is read as a number.
for library, names in pairs({ [bit] = { "band", "bor", "bxor" }, [math] = { "max", "min" }, [string] = { "char" } }) do
  for _, name in ipairs(names) do
    local original = library[name]
    library[name] = function(...)
      local a, b, c = ...
      if type(a) ~= "number" or type(b) ~= "number" or c ~= nil then
        measure(bytes_of(...))
      end
      return original(...)
    end
  end
end

local rep = string.rep
function string.rep(text, count, between, ...)
  if type(text) == "string" then
    local piece = #text + (type(between) == "string" and #between or 0)
    measure(piece * (tonumber(count) or 0))
  end
  return rep(text, count, between, ...)
end

local format = string.format
-- A directive such as `%99.99f` writes many times its own length.
local BYTES_PER_BYTE_OF_FORMAT = 32
function string.format(text, ...)
  local bytes = type(text) == "string" and #text * BYTES_PER_BYTE_OF_FORMAT or 0
  measure(bytes + bytes_of(...))
  return format(text, ...)
end

-- A directive such as `%c` takes as long as to read hundreds of bytes.
local BYTES_PER_BYTE_OF_DATE = 512
function os.date(text, ...)
  if type(text) == "string" then
    measure(#text * BYTES_PER_BYTE_OF_DATE)
  end
  return date(text, ...)
end

-- A collection looks at all that the VM has. Code does not change how the VM collects by itself: all requests would wait for it.
local STEPS_PER_KIB, MOST_STEPS = 128, 9e6
local UNCHANGED = { restart = 0, setpause = 200, setstepmul = 200, stop = 0 }
function collectgarbage(option, ...)
  if option == nil or option == "collect" or option == "step" then
    take(min(collect("count") * STEPS_PER_KIB, MOST_STEPS))
  end
  return UNCHANGED[option] or collect(option, ...)
end

local concat = table.concat
function table.concat(items, between, from, to, ...)
  if type(items) == "table" then
    local count = (tonumber(to) or #items) - (tonumber(from) or 1)
    -- What is no item ends it.
    count = min(count, #items)
    if count > SHORT then
      take(count)
    end
    local bytes = type(between) == "string" and #between * count or 0
    for i = tonumber(from) or 1, min(tonumber(to) or #items, #items) do
      local item = rawget(items, i)
      if item == nil then
        break
      elseif type(item) == "string" then
        bytes = bytes + #item
      end
    end
    measure(bytes)
  end
  return concat(items, between, from, to, ...)
end

local insert = table.insert
function table.insert(items, at, ...)
  local place = select("#", ...) == 1 and type(items) == "table" and tonumber(at)
  if place then
    local moved = #items - place
    if not (moved < 2 ^ 31 and place < 2 ^ 31) then
      error("bad argument #2 to 'insert' (position out of bounds)", 2)
    elseif moved > SHORT then
      take(moved)
    end
  end
  return insert(items, at, ...)
end

local function less(a, b)
  if type(a) ~= type(b) then
    -- The code that sorts is above this, `merge`, `sorted` and `sort`.
    error("attempt to compare " .. type(a) .. " with " .. type(b), 5)
  end
  return a < b
end

-- Merges two neighbours of `from`, each in order, into `into`.
local function merge(from, into, first, middle, last, before)
  local left, right = first, middle
  for at = first, last - 1 do
    if left < middle and (right >= last or not before(from[right], from[left])) then
      into[at], left = from[left], left + 1
    else
      into[at], right = from[right], right + 1
    end
  end
end

-- The first items in order: neighbours of 1, 2, 4 and so on are merged, to and fro between two tables.
local function sorted(items, count, before)
  local from, into = {}, {}
  for i = 1, count do
    from[i] = items[i]
  end
  local width = 1
  while width < count do
    for first = 1, count, 2 * width do
      merge(from, into, first, min(first + width, count + 1), min(first + 2 * width, count + 1), before)
    end
    from, into, width = into, from, 2 * width
  end
  return from
end

-- In Lua, so that the hook counts it, and that comparing does not use the stack of the thread.
function table.sort(items, before)
  if type(items) ~= "table" then
    error("bad argument #1 to 'sort' (table expected, got " .. (items == nil and "no value" or type(items)) .. ")", 2)
  elseif before ~= nil and type(before) ~= "function" then
    error("bad argument #2 to 'sort' (function expected, got " .. type(before) .. ")", 2)
  end
  local count = #items
  local order = sorted(items, count, before or less)
  for i = 1, count do
    items[i] = order[i]
  end
end
