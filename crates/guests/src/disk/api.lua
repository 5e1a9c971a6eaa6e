-- The paths of `api.lua` whose methods are functions of the plugin's own, or that are those of no entity.
local routes, endpoints, names = ...
local known, left = {}, {}
for _, name in ipairs(names) do known[name] = true end

local function is_of_entity(path)
  local last
  for part in path:gmatch("[^/]+") do
    if part:sub(1, 1) ~= ":" then last = part end
  end
  return known[last] or false
end

local function is_generic(route)
  for _, method in pairs(route.methods or {}) do
    if method ~= endpoints.generic then return false end
  end
  return type(route.methods) == "table"
end

for path, route in pairs(routes) do
  local is_served = type(path) == "string" and type(route) == "table" and is_of_entity(path) and is_generic(route)
  if not is_served then left[#left + 1] = tostring(path) end
end
table.sort(left)
return left
