local cjson = require "cjson.safe"
local pkey = require "resty.openssl.pkey"
local digest = require "resty.openssl.digest"
local b64 = require "ngx.base64"

local RequestSigner = { PRIORITY = 750, VERSION = "1.0.0" }

local keys = setmetatable({}, { __mode = "k" })

local function key_of(conf)
  local pair = keys[conf]
  if not pair then
    pair = { private = assert(pkey.new(conf.private_key)), public = assert(pkey.new(conf.public_key)) }
    keys[conf] = pair
  end
  return pair
end

function RequestSigner:access(conf)
  local claims = { iss = conf.issuer, path = kong.request.get_path(), iat = ngx.time() }
  local text = b64.encode_base64url(cjson.encode(claims))
  local pair = key_of(conf)
  local signature, err = pair.private:sign(text, "sha256")
  if not signature then
    kong.log.err(err)
    return kong.response.exit(500)
  end
  local verified = pair.public:verify(signature, text, "sha256")
  kong.service.request.set_header("X-Signed", text)
  kong.service.request.set_header("X-Verified", tostring(verified))
  local other = assert(digest.new("sha256"))
  other:update(text)
  kong.service.request.set_header("X-Digest-Length", #other:final())
end

return RequestSigner
