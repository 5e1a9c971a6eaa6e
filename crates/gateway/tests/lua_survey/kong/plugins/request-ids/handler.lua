local uuid = require("kong.tools.uuid").uuid

local RequestIds = { PRIORITY = 100001, VERSION = "1.0.0" }

local count = 0
local generators = {
  uuid = function() return uuid() end,
  counter = function()
    count = count + 1
    return ("%d#%d"):format(ngx.worker.pid(), count)
  end,
}

function RequestIds:access(conf)
  local id = kong.request.get_header(conf.header)
  if not id then
    id = generators[conf.generator]()
    kong.service.request.set_header(conf.header, id)
  end
  kong.ctx.plugin.id = id
end

function RequestIds:header_filter(conf)
  if conf.echo and kong.ctx.plugin.id then
    kong.response.set_header(conf.header, kong.ctx.plugin.id)
  end
end

return RequestIds
