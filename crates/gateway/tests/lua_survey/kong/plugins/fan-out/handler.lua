local http = require "resty.http"

local FanOut = { PRIORITY = 20, VERSION = "1.0.0" }

local function fetch(url)
  local res, err = http.new():request_uri(url)
  return res and res.body or err
end

function FanOut:access(conf)
  local threads, bodies = {}, {}
  for i, url in ipairs(conf.urls) do
    threads[i] = ngx.thread.spawn(fetch, url)
  end
  for i, thread in ipairs(threads) do
    local ok, body = ngx.thread.wait(thread)
    bodies[i] = ok and body or "failed"
  end
  return kong.response.exit(200, table.concat(bodies, "+"))
end

return FanOut
