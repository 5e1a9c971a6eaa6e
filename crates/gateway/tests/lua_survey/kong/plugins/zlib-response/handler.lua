local zlib = require "zlib"

local ZlibResponse = { PRIORITY = 3, VERSION = "1.0.0" }

function ZlibResponse:header_filter()
  kong.response.clear_header("Content-Length")
  kong.response.set_header("X-Packed", "zlib")
end

function ZlibResponse:body_filter(conf)
  local body = kong.response.get_raw_body()
  if body then
    local packed = zlib.deflate(conf.level)(body, "finish")
    local plain = zlib.inflate()(packed)
    kong.response.set_raw_body(("%d %s"):format(#packed < #body and 1 or 0, plain))
  end
end

return ZlibResponse
