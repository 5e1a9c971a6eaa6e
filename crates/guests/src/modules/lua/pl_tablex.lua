-- pl.tablex: operations on tables.
local List = require "pl.List"
local _M = {}

local function callable(f)
  return f and require("pl.utils").function_arg(1, f)
end

function _M.size(t)
  local count = 0
  for _ in pairs(t) do count = count + 1 end
  return count
end

function _M.copy(t)
  local copied = {}
  for key, value in pairs(t) do copied[key] = value end
  return copied
end

-- A copy of a value; tables within are copied once each, with their metatables.
local function deepcopy(value, seen)
  if type(value) ~= "table" then return value end
  if seen[value] then return seen[value] end
  local copied = {}
  seen[value] = copied
  for key, item in pairs(value) do copied[deepcopy(key, seen)] = deepcopy(item, seen) end
  return setmetatable(copied, getmetatable(value))
end

function _M.deepcopy(t) return deepcopy(t, {}) end

local function deepcompare(a, b, ignore_mt, eps)
  if type(a) ~= type(b) then return false end
  if type(a) == "number" and eps then return math.abs(a - b) < eps end
  if type(a) ~= "table" then return a == b end
  local mt = getmetatable(a)
  if not ignore_mt and mt and mt.__eq then return a == b end
  for key, value in pairs(a) do
    if b[key] == nil or not deepcompare(value, b[key], ignore_mt, eps) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

_M.deepcompare = deepcompare

function _M.compare(a, b, cmp)
  if #a ~= #b then return false end
  cmp = callable(cmp)
  for i = 1, #a do
    if not cmp(a[i], b[i]) then return false end
  end
  return true
end

function _M.keys(t)
  local keys = List()
  for key in pairs(t) do keys[#keys + 1] = key end
  return keys
end

function _M.values(t)
  local values = List()
  for _, value in pairs(t) do values[#values + 1] = value end
  return values
end

function _M.find(t, value, from)
  from = from or 1
  if from < 0 then from = #t + from + 1 end
  for i = from, #t do
    if t[i] == value then return i end
  end
  return nil
end

function _M.rfind(t, value, from)
  from = from or #t
  if from < 0 then from = #t + from + 1 end
  for i = from, 1, -1 do
    if t[i] == value then return i end
  end
  return nil
end

function _M.find_if(t, predicate, argument)
  predicate = callable(predicate)
  for i = 1, #t do
    local found = predicate(t[i], argument)
    if found then return i, found end
  end
end

function _M.search(t, value)
  for key, item in pairs(t) do
    if item == value then return tostring(key) end
  end
end

function _M.map(f, t, ...)
  f = callable(f)
  local mapped = {}
  for key, value in pairs(t) do mapped[key] = f(value, ...) end
  return setmetatable(mapped, getmetatable(t))
end

function _M.imap(f, t, ...)
  f = callable(f)
  local mapped = {}
  for i = 1, #t do mapped[i] = f(t[i], ...) or false end
  return List(mapped)
end

function _M.transform(f, t, ...)
  f = callable(f)
  for key, value in pairs(t) do t[key] = f(value, ...) end
end

function _M.foreach(t, f, ...)
  f = callable(f)
  for key, value in pairs(t) do f(value, key, ...) end
end

function _M.foreachi(t, f, ...)
  f = callable(f)
  for i = 1, #t do f(t[i], i, ...) end
end

function _M.reduce(f, t, memo)
  f = callable(f)
  local first = 1
  if memo == nil then memo, first = t[1], 2 end
  for i = first, #t do memo = f(memo, t[i]) end
  return memo
end

function _M.filter(t, predicate, argument)
  predicate = callable(predicate)
  local kept = List()
  for i = 1, #t do
    if predicate(t[i], argument) then kept[#kept + 1] = t[i] end
  end
  return kept
end

-- Keys that both have, or with `dup` those of either.
function _M.merge(a, b, dup)
  local merged = {}
  for key, value in pairs(a) do
    if dup or b[key] ~= nil then merged[key] = value end
  end
  for key, value in pairs(b) do
    if dup then merged[key] = value end
  end
  return merged
end

function _M.union(a, b) return _M.merge(a, b, true) end
function _M.intersection(a, b) return _M.merge(a, b, false) end

function _M.difference(a, b, symmetric)
  local result = {}
  for key, value in pairs(a) do
    if b[key] == nil then result[key] = value end
  end
  if symmetric then
    for key, value in pairs(b) do
      if a[key] == nil then result[key] = value end
    end
  end
  return result
end

function _M.update(t, other)
  for key, value in pairs(other) do t[key] = value end
  return t
end

function _M.index_map(t)
  local map = {}
  for i = 1, #t do map[t[i]] = i end
  return map
end

function _M.makeset(t)
  local set = {}
  for i = 1, #t do set[t[i]] = true end
  return set
end

function _M.range(first, last, step)
  local numbers = List()
  for number = first, last, step or 1 do numbers[#numbers + 1] = number end
  return numbers
end

function _M.sub(t, first, last)
  last = last or #t
  if first < 0 then first = #t + first + 1 end
  if last < 0 then last = #t + last + 1 end
  local part = List()
  for i = first, last do part[#part + 1] = t[i] end
  return part
end

function _M.insertvalues(t, position, values)
  if not values then position, values = #t + 1, position end
  for i = #t, position, -1 do t[i + #values] = t[i] end
  for i = 1, #values do t[position + i - 1] = values[i] end
  return t
end

function _M.removevalues(t, first, last)
  last = last or first
  for _ = first, last do table.remove(t, first) end
  return t
end

function _M.clear(t, first)
  for i = #t, first or 1, -1 do t[i] = nil end
end

function _M.count_map(t)
  local counts = {}
  for i = 1, #t do counts[t[i]] = (counts[t[i]] or 0) + 1 end
  return counts
end

-- Pairs in the order of their keys.
function _M.sort(t, by)
  local keys = _M.keys(t)
  table.sort(keys, callable(by))
  local i = 0
  return function()
    i = i + 1
    return keys[i], t[keys[i]]
  end
end

function _M.sortv(t, by)
  by = callable(by) or function(a, b) return a < b end
  local keys = _M.keys(t)
  table.sort(keys, function(a, b) return by(t[a], t[b]) end)
  local i = 0
  return function()
    i = i + 1
    return keys[i], t[keys[i]]
  end
end

-- Forbids writes. Reads, length and iteration by `pairs` go through.
function _M.readonly(t)
  return setmetatable({}, {
    __index = t,
    __newindex = function() error("Attempt to modify read-only table", 2) end,
    __len = function() return #t end,
    __metatable = false,
  })
end

return _M
