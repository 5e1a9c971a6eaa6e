local http = require "resty.http"
local cjson = require "cjson.safe"
local fmt = string.format

local CachedIntrospection = { PRIORITY = 980, VERSION = "1.0.0" }

local function introspect(endpoint, token)
  kong.log.notice("introspects ", token)
  local res, err = http.new():request_uri(endpoint, {
    method = "POST",
    body = ngx.encode_args({ token = token }),
    headers = { ["Content-Type"] = "application/x-www-form-urlencoded" },
  })
  if not res then
    return nil, err
  end
  local said = cjson.decode(res.body)
  if not said or not said.active then
    return nil
  end
  said.asked = (said.asked or 0) + 1
  return said
end

function CachedIntrospection:access(conf)
  local token = kong.request.get_header("X-Token")
  if not token then
    return kong.response.exit(401)
  end
  local key = fmt("introspection:%s:%s", kong.request.get_host(), token)
  if kong.request.get_method() == "DELETE" then
    kong.cache:invalidate(key)
    return kong.response.exit(204)
  end
  local said, err = kong.cache:get(key, { ttl = conf.ttl, neg_ttl = conf.neg_ttl }, introspect, conf.endpoint, token)
  if err then
    return kong.response.exit(503, { message = err })
  end
  if not said then
    return kong.response.exit(401, { message = "not active" })
  end
  kong.service.request.set_header("X-Subject", said.sub)
  local ttl = kong.cache:probe(key)
  kong.service.request.set_header("X-Kept", ttl and ttl > 0 and "yes" or "no")
end

return CachedIntrospection
