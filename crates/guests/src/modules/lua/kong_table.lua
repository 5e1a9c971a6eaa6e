-- kong.tools.table: copies, merges and questions.
local isarray, clone = require "table.isarray", require "table.clone"
local _M = { EMPTY = {} }

function _M.pack(...) return { n = select("#", ...), ... } end
function _M.unpack(t, first, last) return unpack(t, first or 1, last or t.n or #t) end

-- A new table with the entries of both; those of the second win.
function _M.table_merge(a, b)
  local merged = {}
  for _, t in ipairs({ a or _M.EMPTY, b or _M.EMPTY }) do
    for key, value in pairs(t) do merged[key] = value end
  end
  return merged
end

function _M.table_contains(t, wanted)
  for _, value in pairs(t or _M.EMPTY) do
    if value == wanted then return true end
  end
  return false
end

-- Whether the keys are 1, 2, 3 … without a hole; as strings too, if `loose`.
local function is_sequence(t, loose)
  local count = 0
  for _ in pairs(t) do
    count = count + 1
    if t[count] == nil and not (loose and t[tostring(count)] ~= nil) then return false end
  end
  return true
end

function _M.is_array(t, mode)
  if type(t) ~= "table" then return false end
  if mode == "fast" then return isarray(t) end
  return is_sequence(t, mode == "lapis")
end

function _M.is_lapis_array(t) return _M.is_array(t, "lapis") end

function _M.deep_copy(value, with_metatables)
  if type(value) ~= "table" then return value end
  local copy = {}
  for key, item in next, value do copy[_M.deep_copy(key)] = _M.deep_copy(item, with_metatables) end
  if with_metatables ~= false then setmetatable(copy, _M.deep_copy(getmetatable(value))) end
  return copy
end

function _M.shallow_copy(value) return type(value) == "table" and clone(value) or value end

function _M.deep_merge(a, b)
  local merged = _M.deep_copy(a)
  for key, value in pairs(b) do
    if type(value) == "table" and type(merged[key]) == "table" then
      merged[key] = _M.deep_merge(merged[key], value)
    else
      merged[key] = _M.deep_copy(value)
    end
  end
  return merged
end

-- A copy in which a table that occurs twice is copied once.
function _M.cycle_aware_deep_copy(value, no_metatables, copy_keys, seen)
  if type(value) ~= "table" then return value end
  seen = seen or {}
  if seen[value] then return seen[value] end
  local copy = {}
  seen[value] = copy
  for key, item in next, value do
    if copy_keys then key = _M.cycle_aware_deep_copy(key, no_metatables, copy_keys, seen) end
    copy[key] = _M.cycle_aware_deep_copy(item, no_metatables, copy_keys, seen)
  end
  return no_metatables and copy or setmetatable(copy, getmetatable(value))
end

function _M.cycle_aware_deep_merge(a, b, no_metatables, copy_keys, seen)
  seen = seen or {}
  local merged = _M.cycle_aware_deep_copy(a, no_metatables, copy_keys, seen)
  for key, value in pairs(b) do
    if type(value) == "table" and type(merged[key]) == "table" then
      merged[key] = _M.cycle_aware_deep_merge(merged[key], value, no_metatables, copy_keys, seen)
    else
      merged[key] = _M.cycle_aware_deep_copy(value, no_metatables, copy_keys, seen)
    end
  end
  return merged
end

function _M.concat(...)
  local all = {}
  for _, list in ipairs({ ... }) do
    for _, value in ipairs(list) do all[#all + 1] = value end
  end
  return all
end

-- The value at a path such as "config.minute".
function _M.table_path(t, path)
  for key in path:gmatch("[^.]+") do
    if type(t) ~= "table" then return nil end
    t = t[key]
  end
  return t
end

local SEVERAL = {}

-- Adds an error for a key: the second one makes a list of them.
function _M.add_error(errors, key, message)
  errors = errors or {}
  local present = errors[key]
  if present == nil then
    errors[key] = message
  elseif getmetatable(present) == SEVERAL then
    present[#present + 1] = message
  else
    errors[key] = setmetatable({ present, message }, SEVERAL)
  end
  return errors
end

return _M
