-- Functions of Lua's library that work long inside one instruction, so that no hook ends them: they take steps first.
-- Calls of the originals are tail calls, so that their errors name the code that called.
local take, take_bytes = ...
local error, select, tonumber, type = error, select, tonumber, type
local min = math.min
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

local rep = string.rep
function string.rep(text, count, between, ...)
  if type(text) == "string" then
    local piece = #text + (type(between) == "string" and #between or 0)
    measure(piece * (tonumber(count) or 0))
  end
  return rep(text, count, between, ...)
end

local format = string.format
function string.format(...)
  local bytes = 0
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" then
      bytes = bytes + #value
    end
  end
  measure(bytes)
  return format(...)
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
    if type(between) == "string" then
      measure(#between * count)
    end
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
