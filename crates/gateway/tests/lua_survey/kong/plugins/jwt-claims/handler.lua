local jwt_decoder = require "kong.plugins.jwt.jwt_parser"

local JwtClaims = { PRIORITY = 1005, VERSION = "1.0.0" }

local function refuse(message)
  return kong.response.exit(401, { message = message })
end

function JwtClaims:access(conf)
  local token = (kong.request.get_header("Authorization") or ""):match("Bearer%s+(%S+)")
  if not token then
    return refuse("No token")
  end
  local jwt, err = jwt_decoder:new(token)
  if err then
    return refuse("Bad token; " .. tostring(err))
  end
  if not jwt:verify_signature(conf.secret) then
    return refuse("Invalid signature")
  end
  local ok, errors = jwt:verify_registered_claims({ "exp" })
  if not ok then
    return kong.response.exit(401, errors)
  end
  for claim, header in pairs(conf.claims) do
    local value = jwt.claims[claim]
    if value ~= nil then
      kong.service.request.set_header(header, tostring(value))
    end
  end
end

return JwtClaims
