-- pl.types: questions about values.
local utils = require "pl.utils"
local _M = { is_type = utils.is_type }

function _M.is_callable(value)
  local mt = getmetatable(value)
  return type(value) == "function" or mt and mt.__call and true or false
end

function _M.type(value)
  local mt = getmetatable(value)
  return type(mt) == "table" and mt._name or type(value)
end

function _M.is_integer(value) return type(value) == "number" and value % 1 == 0 end

function _M.is_empty(value, ignore_spaces)
  if value == nil then return true end
  if type(value) == "table" then return next(value) == nil end
  if type(value) == "string" then return value == "" or ignore_spaces and not value:find("%S") or false end
  return true
end

function _M.is_indexable(value)
  local mt = getmetatable(value)
  return type(value) == "table" or mt and mt.__len and mt.__index and true or false
end

function _M.is_iterable(value)
  local mt = getmetatable(value)
  return type(value) == "table" or mt and mt.__pairs and true or false
end

function _M.is_writeable(value)
  local mt = getmetatable(value)
  return type(value) == "table" or mt and mt.__newindex and true or false
end

local TRUE = { yes = true, y = true, ["true"] = true, t = true, ["1"] = true }

-- A boolean from text or a number: what does not say yes is false.
function _M.to_bool(value, words, check_objects)
  if type(value) == "boolean" then return value end
  if type(value) == "number" then return value ~= 0 end
  if type(value) == "string" then
    value = value:lower()
    for _, word in ipairs(words or {}) do
      if value == word:lower() then return true end
    end
    return TRUE[value] or false
  end
  if check_objects then return not _M.is_empty(value) end
  return value ~= nil
end

return _M
