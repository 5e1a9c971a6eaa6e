local tablex = require "pl.tablex"
local concat = table.concat

local MethodGuard = { PRIORITY = 2100, VERSION = "2.0.1" }

function MethodGuard:access(conf)
  local method = kong.request.get_method()
  if not tablex.find(conf.allow, method) then
    return kong.response.exit(conf.status, { message = "Method not allowed" }, { Allow = concat(conf.allow, ", ") })
  end
end

return MethodGuard
