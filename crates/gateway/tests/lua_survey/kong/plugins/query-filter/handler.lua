local QueryFilter = { PRIORITY = 790, VERSION = "1.1.0" }

local function set_of(list)
  local set = {}
  for _, name in ipairs(list or {}) do
    set[name] = true
  end
  return set
end

function QueryFilter:access(conf)
  local query = kong.request.get_query(conf.max_args)
  local keep, drop = set_of(conf.keep), set_of(conf.drop)
  for name in pairs(query) do
    if (conf.keep and not keep[name]) or drop[name] then
      query[name] = nil
    end
  end
  kong.service.request.set_query(query)
end

return QueryFilter
