local socket = require "socket"
local lfs = require "lfs"
local timestamp = require "kong.tools.timestamp"

local TimingHeaders = { PRIORITY = 2, VERSION = "1.0.0" }

function TimingHeaders:access(conf)
  kong.ctx.plugin.began = socket.gettime()
  local year = timestamp.get_timetable and timestamp.get_timetable(os.time() * 1000).year
  kong.service.request.set_header("X-Year", year or os.date("!%Y"))
  local mode = conf.file and lfs.attributes(conf.file, "mode") or "none"
  kong.service.request.set_header("X-File", mode)
end

function TimingHeaders:header_filter()
  local took = socket.gettime() - kong.ctx.plugin.began
  kong.response.set_header("X-Took", took >= 0 and took < 60 and "some" or tostring(took))
  kong.response.set_header("X-Latency", type(ngx.ctx.KONG_PROXY_LATENCY or 0))
end

return TimingHeaders
