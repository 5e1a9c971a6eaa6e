local gzip = require "kong.tools.gzip"

local GunzipRequest = { PRIORITY = 1500, VERSION = "1.0.0" }

function GunzipRequest:access(conf)
  if kong.request.get_header("X-Encoding") ~= "gzip" then
    return
  end
  local packed = ngx.decode_base64(kong.request.get_raw_body() or "")
  local body, err = gzip.inflate_gzip(packed or "")
  if not body then
    kong.log.warn("cannot inflate: ", err)
    return kong.response.exit(400, { message = "not gzip" })
  end
  if #body > conf.max_size then
    return kong.response.exit(413, { message = "too long when inflated" })
  end
  kong.service.request.set_raw_body(body)
  kong.service.request.clear_header("X-Encoding")
end

return GunzipRequest
