-- resty.openssl.pkey: keys that sign, verify, encrypt and decrypt.
local _, native = ...
local cjson = require "cjson.safe"
local decode = require("ngx.base64").decode_base64url

local _M = { PADDINGS = { RSA_PKCS1_PADDING = 1, RSA_PKCS1_OAEP_PADDING = 4, RSA_PKCS1_PSS_PADDING = 6 } }
local PSS, OAEP = _M.PADDINGS.RSA_PKCS1_PSS_PADDING, _M.PADDINGS.RSA_PKCS1_OAEP_PADDING

local Key = {}
Key.__index = Key

local function from_jwk(jwk)
  if type(jwk) == "string" then jwk = cjson.decode(jwk) end
  if type(jwk) ~= "table" then return nil, "the JWK is not JSON" end
  if jwk.kty == "RSA" then return native.key_from_numbers("RSA", decode(jwk.n) or "", decode(jwk.e) or "") end
  return native.key_from_numbers(jwk.crv or "", decode(jwk.x or "") or "", decode(jwk.y or "") or "")
end

function _M.new(source, options)
  local key, message
  if type(source) ~= "string" and not (options and options.format == "JWK") then
    return nil, "pkey.new: expect a key as PEM, DER or JWK at #1; keys are not generated here"
  elseif options and options.format == "JWK" then
    key, message = from_jwk(source)
  else
    key, message = native.key(source)
  end
  if not key then return nil, "pkey.new: " .. message end
  return setmetatable({ key = key }, Key)
end

function _M.istype(value) return type(value) == "table" and getmetatable(value) == Key end

-- The data and the name of its digest. A digest object stands for what was put into it.
local function content(data, algorithm)
  if type(data) == "table" then return table.concat(data.parts), data.algorithm:lower() end
  return data, (algorithm or "sha256"):lower()
end

function Key:sign(data, algorithm, padding, options)
  local text, digest = content(data, algorithm)
  local raw = options and options.ecdsa_use_raw or false
  local signature, message = self.key:sign(text, digest, padding == PSS, raw)
  if not signature then return nil, "pkey:sign: " .. message end
  return signature
end

function Key:verify(signature, data, algorithm, padding, options)
  local text, digest = content(data, algorithm)
  local raw = options and options.ecdsa_use_raw or false
  return self.key:verify(text, signature, digest, padding == PSS, raw)
end

function Key:encrypt(text, padding) return self.key:encrypt(text, padding == OAEP) end
function Key:decrypt(data, padding) return self.key:decrypt(data, padding == OAEP) end
function Key:is_private() return self.key:is_private() end

local IDS = { rsa = 6, ec = 408, ed25519 = 1087 }

function Key:get_key_type()
  local kind = self.key:kind()
  return { sn = kind, ln = kind, nid = IDS[kind], id = IDS[kind] }
end

function Key:to_PEM(which)
  local text = self.key:pem(which == "private" or which == "PrivateKey")
  if not text then return nil, "pkey:to_PEM: the key has no private half" end
  return text
end

function Key:tostring(which, format)
  if format and format ~= "PEM" then return nil, "pkey:tostring: only PEM is supported" end
  return self:to_PEM(which)
end

return _M
