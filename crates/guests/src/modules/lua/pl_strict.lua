-- pl.strict: reads of undeclared globals are errors.
local _M = {}

function _M.module(name, t, predeclared)
  local declared = {}
  for key in pairs(predeclared or {}) do declared[key] = true end
  t = t or {}
  local mt = getmetatable(t) or {}
  function mt.__newindex(self, key, value)
    declared[key] = true
    rawset(self, key, value)
  end
  function mt.__index(_, key)
    if not declared[key] then
      error(("variable '%s' is not declared in '%s'"):format(tostring(key), name or "a table"), 2)
    end
  end
  return setmetatable(t, mt)
end

function _M.make_all_strict(t)
  for key, value in pairs(t) do
    if type(value) == "table" and value ~= t then _M.module(key, value) end
  end
end

return _M
