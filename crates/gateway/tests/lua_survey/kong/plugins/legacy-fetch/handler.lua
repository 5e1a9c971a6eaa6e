local http = require "socket.http"
local https = require "ssl.https"
local ltn12 = require "ltn12"

local LegacyFetch = { PRIORITY = 650, VERSION = "1.0.0" }

local function post(url, body)
  local pieces = {}
  local ok, status, headers, line = http.request({
    url = url,
    method = "POST",
    headers = { ["Content-Type"] = "text/plain", ["Content-Length"] = #body },
    source = ltn12.source.string(body),
    sink = ltn12.sink.table(pieces),
  })
  return ok, status, headers, line, table.concat(pieces)
end

function LegacyFetch:access(conf)
  local ok, status, headers, line, text = post(conf.url .. "/notes", kong.request.get_raw_body() or "")
  if not ok then
    return kong.response.exit(502, { message = status })
  end
  local _, failure = https.request("https://127.0.0.1:1/")
  kong.response.set_header("X-Line", line)
  return kong.response.exit(status, text, { ["X-Kind"] = headers["x-kind"], ["X-Https"] = failure })
end

function LegacyFetch:rewrite(conf)
  if kong.request.get_header("X-Simple") then
    local body, status = http.request(conf.url .. "/simple")
    return kong.response.exit(status, body)
  end
end

return LegacyFetch
