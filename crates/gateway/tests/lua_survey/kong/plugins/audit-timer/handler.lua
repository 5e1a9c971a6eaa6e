local http = require "resty.http"
local cjson = require "cjson.safe"

local AuditTimer = { PRIORITY = 1, VERSION = "1.0.0" }

local function send(premature, url, entry)
  if premature then
    return
  end
  local res, err = http.new():request_uri(url, { method = "PUT", body = cjson.encode(entry) })
  if not res then
    ngx.log(ngx.ERR, "the audit was lost: ", err)
  end
end

function AuditTimer:log(conf)
  local entry = { path = kong.request.get_path(), status = kong.response.get_status(), source = kong.response.get_source() }
  local ok, err = ngx.timer.at(0, send, conf.url, entry)
  if not ok then
    kong.log.err("no timer: ", err)
  end
end

return AuditTimer
