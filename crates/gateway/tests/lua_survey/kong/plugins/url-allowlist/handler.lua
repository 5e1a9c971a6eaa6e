local url = require "socket.url"
local stringx = require "pl.stringx"
local tablex = require "pl.tablex"

local UrlAllowlist = { PRIORITY = 1300, VERSION = "1.0.0" }

function UrlAllowlist:access(conf)
  local given = kong.request.get_query_arg(conf.parameter)
  if type(given) ~= "string" then
    return
  end
  local parsed = url.parse(stringx.strip(given)) or {}
  local is_known = tablex.find_if(conf.hosts, function(host)
    return host == parsed.host or stringx.endswith(parsed.host or "", "." .. host)
  end)
  if not is_known or parsed.scheme ~= "https" then
    return kong.response.exit(400, { message = "redirect to " .. (parsed.host or "nowhere") .. " is not allowed" })
  end
  kong.service.request.set_header("X-Redirect-Host", parsed.host)
end

return UrlAllowlist
