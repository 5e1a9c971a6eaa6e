-- kong.plugins.jwt.jwt_parser: JSON Web Tokens.
local _, native = ...
local cjson = require "cjson.safe"
local base64 = require "ngx.base64"
local pkey = require "resty.openssl.pkey"

local encode_part = base64.encode_base64url

-- What a part of a token says, or nil.
local function decode_part(text)
  return base64.decode_base64url((text:gsub("=+$", "")))
end

local ALGORITHMS = { EdDSA = { kind = "ed25519", digest = "sha512" } }
for _, bits in ipairs({ "256", "384", "512" }) do
  local digest = "sha" .. bits
  ALGORITHMS["HS" .. bits] = { kind = "hmac", digest = digest }
  ALGORITHMS["RS" .. bits] = { kind = "rsa", digest = digest }
  ALGORITHMS["PS" .. bits] = { kind = "rsa", digest = digest, padding = pkey.PADDINGS.RSA_PKCS1_PSS_PADDING }
  ALGORITHMS["ES" .. bits] = { kind = "ec", digest = digest }
end

local RAW = { ecdsa_use_raw = true }

local function sign(algorithm, data, secret)
  if algorithm.kind == "hmac" then return native.hmac(algorithm.digest, secret, data) end
  local key, message = pkey.new(secret)
  if not key then return nil, message end
  return key:sign(data, algorithm.digest, algorithm.padding, RAW)
end

-- Whether two strings are equal, in a time that does not depend on where they differ.
local function equal(a, b)
  if #a ~= #b then return false end
  local difference = 0
  for i = 1, #a do difference = bit.bor(difference, bit.bxor(a:byte(i), b:byte(i))) end
  return difference == 0
end

local function verify(algorithm, data, signature, secret)
  if algorithm.kind == "hmac" then return equal(signature, native.hmac(algorithm.digest, secret, data)) end
  local key = pkey.new(secret)
  if not key or key:get_key_type().sn ~= algorithm.kind then return false end
  return key:verify(signature, data, algorithm.digest, algorithm.padding, RAW)
end

local Token = {}
Token.__index = Token

local function decode(token)
  local parts = {}
  for part in (token .. "."):gmatch("([^.]*)%.") do parts[#parts + 1] = part end
  if #parts ~= 3 then return nil, "invalid JSON Web Token: expected three segments" end
  local header, claims = cjson.decode(decode_part(parts[1]) or ""), cjson.decode(decode_part(parts[2]) or "")
  local signature = decode_part(parts[3])
  if not header then return nil, "invalid header" end
  if not claims then return nil, "invalid claims" end
  if not signature then return nil, "invalid signature" end
  if header.typ and tostring(header.typ):upper() ~= "JWT" then return nil, "invalid typ" end
  if not ALGORITHMS[header.alg] then return nil, "invalid alg" end
  if next(claims) == nil then return nil, "invalid claims" end
  if signature == "" then return nil, "invalid signature" end
  return {
    token = token, header_64 = parts[1], claims_64 = parts[2], signature_64 = parts[3],
    header = header, claims = claims, signature = signature,
  }
end

function Token.new(_, token)
  if type(token) ~= "string" then error("Token must be a string, got " .. tostring(token), 2) end
  local parsed, message = decode(token)
  if not parsed then return nil, message end
  return setmetatable(parsed, Token)
end

function Token.encode(data, key, algorithm, header)
  if type(data) ~= "table" then error("Argument #1 must be table", 2) end
  if type(key) ~= "string" then error("Argument #2 must be string", 2) end
  if header and type(header) ~= "table" then error("Argument #4 must be a table", 2) end
  algorithm = algorithm or "HS256"
  if not ALGORITHMS[algorithm] then error("Algorithm not supported", 2) end
  header = header or { typ = "JWT", alg = algorithm }
  local text = encode_part(cjson.encode(header)) .. "." .. encode_part(cjson.encode(data))
  local signature, message = sign(ALGORITHMS[algorithm], text, key)
  if not signature then error(message, 2) end
  return text .. "." .. encode_part(signature)
end

function Token:base64_decode(text) return decode_part(text or self) end

function Token:verify_signature(key)
  return verify(ALGORITHMS[self.header.alg], self.header_64 .. "." .. self.claims_64, self.signature, key)
end

function Token:get_nbf() return self.claims.nbf end
function Token:get_exp() return self.claims.exp end

local CLAIMS = {
  nbf = function(value) return value <= ngx.time(), "token not valid yet" end,
  exp = function(value) return value > ngx.time(), "token expired" end,
}

-- Checks `nbf` and `exp` as far as they are listed. Errors are a table by claim.
function Token:verify_registered_claims(names)
  local errors = {}
  for _, name in ipairs(names or {}) do
    local value = self.claims[name]
    if type(value) ~= "number" or value < 0 then
      errors[name] = "must be a number"
    else
      local ok, message = CLAIMS[name](value)
      if not ok then errors[name] = message end
    end
  end
  if next(errors) then return nil, errors end
  return true
end

function Token:check_maximum_expiration(maximum)
  if maximum <= 0 then return true end
  local exp = self.claims.exp
  if exp == nil or exp - ngx.time() > maximum then return nil, { exp = "exceeds maximum allowed expiration" } end
  return true
end

return Token
