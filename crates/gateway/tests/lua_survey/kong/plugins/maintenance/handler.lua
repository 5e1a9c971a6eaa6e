local Maintenance = { PRIORITY = 3000, VERSION = "1.0.0" }

local function may_pass(conf)
  local secret = conf.bypass_secret
  if secret and kong.request.get_header(conf.bypass_header) == secret then
    kong.service.request.clear_header(conf.bypass_header)
    return true
  end
  local ip = kong.client.get_forwarded_ip()
  for _, allowed in ipairs(conf.allow) do
    if allowed == ip then
      return true
    end
  end
end

function Maintenance:access(conf)
  if not may_pass(conf) then
    return kong.response.error(503, conf.message, { ["Retry-After"] = tostring(conf.retry_after) })
  end
end

return Maintenance
