local CanaryRouter = { PRIORITY = 600, VERSION = "1.0.0" }

function CanaryRouter:access(conf)
  local canary = kong.request.get_header("X-Canary")
  kong.service.request.clear_header("X-Canary")
  if canary == "upstream" then
    local ok, err = kong.service.set_upstream(conf.upstream)
    if not ok then
      return kong.response.exit(500, { message = err })
    end
  elseif canary == "target" and conf.target then
    local host, port = conf.target:match("^([^:]+):(%d+)$")
    kong.service.set_target(host, tonumber(port))
    kong.service.request.set_path("/canary" .. kong.request.get_path())
  end
end

return CanaryRouter
