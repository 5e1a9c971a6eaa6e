local EveryType = { PRIORITY = 15, VERSION = "1.0.0" }

function EveryType:access(conf)
  local set = kong.service.request.set_header
  set("X-Server", conf.host .. ":" .. conf.port)
  set("X-Flag", tostring(conf.nested.flag))
  set("X-Deep", conf.nested.deep and conf.nested.deep[1].one or 0)
  set("X-Ratio", conf.ratio)
  set("X-Own", type(conf.__plugin_id))
end

return EveryType
