-- table.new, table.clear, table.nkeys, table.isarray, table.isempty and table.clone.
local name = ...
local functions = {}

-- Room ahead of use has no meaning here.
function functions.new() return {} end

function functions.clear(t)
  for key in next, t do t[key] = nil end
end

function functions.nkeys(t)
  local count = 0
  for _ in next, t do count = count + 1 end
  return count
end

-- Whether all keys are whole numbers from 1.
function functions.isarray(t)
  for key in next, t do
    if type(key) ~= "number" or key < 1 or key % 1 ~= 0 then return false end
  end
  return true
end

function functions.isempty(t) return next(t) == nil end

function functions.clone(t)
  local copy = {}
  for key, value in next, t do copy[key] = value end
  return copy
end

return functions[name:match("[^.]+$")]
