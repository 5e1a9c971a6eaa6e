local hmac = require "resty.openssl.hmac"
local to_hex = require("resty.string").to_hex

local WebhookVerify = { PRIORITY = 1100, VERSION = "1.0.0" }

function WebhookVerify:access(conf)
  local given = kong.request.get_header(conf.header)
  if not given then
    return kong.response.exit(401, { message = "No signature" })
  end
  local body = kong.request.get_raw_body()
  local digest = assert(hmac.new(conf.secret, conf.algorithm)):final(body)
  if given ~= conf.algorithm .. "=" .. to_hex(digest) then
    return kong.response.exit(403, { message = "Wrong signature" })
  end
end

return WebhookVerify
