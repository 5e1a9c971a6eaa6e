local StatusMapper = { PRIORITY = 60, VERSION = "1.0.0" }

function StatusMapper:header_filter(conf)
  if kong.response.get_source() ~= "service" then
    return
  end
  local status = kong.service.response.get_status()
  local mapped = conf.map[tostring(status)]
  if mapped then
    kong.response.set_status(mapped)
    kong.response.set_header("X-Upstream-Status", status)
    kong.response.clear_header("Content-Length")
    kong.ctx.plugin.hides = conf.hide_body
  end
end

function StatusMapper:body_filter()
  if kong.ctx.plugin.hides then
    local last = ngx.arg[2]
    ngx.arg[1] = last and '{"message":"see the status"}' or nil
  end
end

return StatusMapper
