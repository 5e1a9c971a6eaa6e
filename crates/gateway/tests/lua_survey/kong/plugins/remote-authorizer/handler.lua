local http = require "resty.http"
local cjson = require "cjson.safe"

local RemoteAuthorizer = { PRIORITY = 990, VERSION = "1.0.0" }

function RemoteAuthorizer:access(conf)
  local client = http.new()
  client:set_timeout(conf.timeout)
  local res, err = client:request_uri(conf.url, {
    method = "POST",
    path = "/decide",
    query = { method = kong.request.get_method() },
    headers = { ["Content-Type"] = "application/json", ["X-Api"] = "1" },
    body = cjson.encode({ path = kong.request.get_path(), token = kong.request.get_header("X-Token") }),
    keepalive_timeout = 60000,
    keepalive_pool = 10,
  })
  if not res then
    kong.log.err("the authorizer did not answer: ", err)
    return kong.response.exit(502, { message = "no decision" })
  end
  local decision = cjson.decode(res.body)
  if res.status ~= 200 or not decision or not decision.allow then
    return kong.response.exit(403, { message = decision and decision.why or "denied" })
  end
  for _, name in ipairs(conf.copy) do
    if res.headers[name] then
      kong.service.request.set_header(name, res.headers[name])
    end
  end
end

return RemoteAuthorizer
