-- resty.hmac: codes in parts.
local _, native = ...
local Hmac = {}
Hmac.__index = Hmac
Hmac.ALGOS = { MD5 = "md5", SHA1 = "sha1", SHA256 = "sha256", SHA384 = "sha384", SHA512 = "sha512" }

function Hmac.new(_, key, algorithm)
  return setmetatable({ key = key, algorithm = algorithm or "md5", parts = {} }, Hmac)
end

function Hmac:update(part)
  self.parts[#self.parts + 1] = part
  return true
end

function Hmac:final(last, as_hex)
  local code = native.hmac(self.algorithm, self.key, table.concat(self.parts) .. (last or ""))
  return as_hex and native.hex(code) or code
end

function Hmac:reset()
  self.parts = {}
  return true
end

return Hmac
