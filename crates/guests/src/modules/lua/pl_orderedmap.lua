-- pl.OrderedMap: a map that keeps the order in which keys were added.
local OrderedMap = {}
OrderedMap.__index = OrderedMap
OrderedMap._name = "OrderedMap"

-- The order is kept apart from the entries.
local orders = setmetatable({}, { __mode = "k" })

local function new(_, values)
  local map = setmetatable({}, OrderedMap)
  orders[map] = {}
  return values and map:update(values) or map
end

function OrderedMap:set(key, value)
  local order = orders[self]
  if rawget(self, key) == nil and value ~= nil then
    order[#order + 1] = key
  elseif value == nil then
    for i, known in ipairs(order) do
      if known == key then table.remove(order, i) break end
    end
  end
  rawset(self, key, value)
  return self
end
OrderedMap.__newindex = OrderedMap.set

function OrderedMap:get(key) return rawget(self, key) end
function OrderedMap:keys() return require("pl.List")(orders[self]) end
function OrderedMap:len() return #orders[self] end

function OrderedMap:values()
  local values = require("pl.List")()
  for _, key in ipairs(orders[self]) do values:append(rawget(self, key)) end
  return values
end

-- Takes a map, or a list of tables with one entry each.
function OrderedMap:update(values)
  if #values > 0 then
    for _, entry in ipairs(values) do
      for key, value in pairs(entry) do self:set(key, value) end
    end
    return self
  end
  local next_entry, state = pairs(values)
  if orders[values] then next_entry = values:iter() end
  for key, value in next_entry, state do self:set(key, value) end
  return self
end

function OrderedMap:sort(by)
  table.sort(orders[self], by)
  return self
end

function OrderedMap:iter()
  local i, order = 0, orders[self]
  return function()
    i = i + 1
    if order[i] ~= nil then return order[i], rawget(self, order[i]) end
  end
end
OrderedMap.__pairs = OrderedMap.iter

return setmetatable(OrderedMap, { __call = new })
