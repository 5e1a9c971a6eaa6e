local aes = require "resty.aes"

local SealedCookie = { PRIORITY = 760, VERSION = "1.0.0" }

function SealedCookie:access(conf)
  local sealed = ngx.var["cookie_" .. conf.cookie]
  local cipher = assert(aes:new(conf.password, conf.salt, aes.cipher(256, "cbc"), aes.hash.sha256))
  if kong.request.get_path() == "/seal" then
    local text = ngx.encode_base64(cipher:encrypt(kong.request.get_query_arg("text")), true)
    return kong.response.exit(200, { sealed = text })
  end
  local text = sealed and cipher:decrypt(ngx.decode_base64(sealed) or "")
  kong.service.request.set_header("X-Unsealed", text or "nothing")
end

return SealedCookie
