local RouteLabels = { PRIORITY = 10, VERSION = "1.0.0" }

function RouteLabels:access(conf)
  local route, service = kong.router.get_route(), kong.router.get_service()
  kong.service.request.set_header("X-Route", route.name)
  kong.service.request.set_header("X-Service", service.name)
  kong.service.request.set_header("X-Tags", table.concat(route.tags or {}, conf.separator))
  kong.service.request.set_header("X-Hosts", route.hosts[1])
end

return RouteLabels
