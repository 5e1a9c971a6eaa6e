-- kong.node.get_memory_stats. `show` writes a number of bytes in a unit.
local floor, type, error, pairs, pcall = math.floor, type, error, pairs, pcall
return function(dicts, pid, used, require)
  return function(unit, scale)
    local show = require("kong.tools.string").bytes_to_str
    unit, scale = unit or "b", scale or 2
    local ok, message = pcall(show, 0, unit, scale)
    if not ok then error(message, 2) end
    local function amount(bytes)
      if type(unit) == "string" and unit:lower() == "b" then return floor(bytes) end
      return show(bytes, unit, scale)
    end
    local stats = { workers_lua_vms = { { pid = pid, http_allocated_gc = amount(used()) } }, lua_shared_dicts = {} }
    for name, dict in pairs(dicts()) do
      stats.lua_shared_dicts[name] = {
        capacity = amount(dict[1]),
        allocated_slabs = amount(dict[1] - dict[2]),
      }
    end
    return stats
  end
end
