local sha256 = require "resty.sha256"

local BodyDigest = { PRIORITY = 770, VERSION = "1.0.0" }

function BodyDigest:access(conf)
  ngx.req.read_body()
  local sha = sha256:new()
  sha:update(ngx.req.get_body_data() or "")
  local computed = "SHA-256=" .. ngx.encode_base64(sha:final())
  local given = kong.request.get_header("Digest")
  if given and given ~= computed or conf.required and not given then
    return kong.response.exit(400, { message = "Digest does not match", expected = computed })
  end
  ngx.req.set_header("Digest", computed)
end

return BodyDigest
