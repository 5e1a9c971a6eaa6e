local HeaderInjector = { PRIORITY = 800, VERSION = "1.0.0" }

function HeaderInjector:access(conf)
  for name, value in pairs(conf.request) do
    if conf.replace or not kong.request.get_header(name) then
      kong.service.request.set_header(name, value)
    end
  end
end

function HeaderInjector:header_filter(conf)
  for name, value in pairs(conf.response) do
    if conf.replace then
      kong.response.set_header(name, value)
    else
      kong.response.add_header(name, value)
    end
  end
end

return HeaderInjector
