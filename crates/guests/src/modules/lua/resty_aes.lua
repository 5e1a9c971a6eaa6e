-- resty.aes: AES with a key that is given, or derived from a password as EVP_BytesToKey does.
local _, native = ...
local _M = { _VERSION = "0.15" }

local Aes = {}
Aes.__index = Aes

_M.hash = { md5 = "md5", sha1 = "sha1", sha224 = "sha224", sha256 = "sha256", sha384 = "sha384", sha512 = "sha512" }

function _M.cipher(size, mode)
  size, mode = size or 128, mode or "cbc"
  local name = ("aes-%d-%s"):format(size, mode)
  return { size = size, cipher = mode, method = name, name = name }
end

-- Key and initialization vector of a password.
local function derive(password, salt, hash, rounds, key_length, iv_length)
  local bytes, block = "", ""
  while #bytes < key_length + iv_length do
    block = native.digest(hash, block .. password .. (salt or ""))
    for _ = 2, rounds do block = native.digest(hash, block) end
    bytes = bytes .. block
  end
  return bytes:sub(1, key_length), bytes:sub(key_length + 1, key_length + iv_length)
end

function _M.new(_, key, salt, cipher, hash, rounds, iv_length, padding)
  cipher, hash = cipher or _M.cipher(128, "cbc"), hash or "md5"
  local key_length = cipher.size / 8
  iv_length = cipher.cipher == "gcm" and 12 or cipher.cipher == "ecb" and 0 or iv_length or 16
  local iv
  if salt and #salt ~= 8 then return nil, "salt must be 8 characters or nil" end
  if type(hash) == "table" then
    if not hash.iv then return nil, "iv is needed" end
    iv = hash.iv:sub(1, math.max(iv_length, 0))
    if hash.method then key = hash.method(key) end
    if #key ~= key_length then return nil, "bad key length" end
    if #iv < iv_length then return nil, "bad iv" end
  else
    key, iv = derive(key, salt, hash, rounds or 1, key_length, iv_length)
  end
  if padding == nil then padding = true end
  return setmetatable({ name = cipher.name, key = key, iv = iv, padding = padding }, Aes)
end

local TAG_LENGTH = 16

function Aes:encrypt(text, aad)
  local data, message = native.encrypt(self.name, self.key, self.iv, text, self.padding, aad or "")
  if not data then return nil, message end
  if not self.name:find("gcm") then return data end
  return { data:sub(1, -TAG_LENGTH - 1), data:sub(-TAG_LENGTH) }
end

function Aes:decrypt(data, tag, aad)
  if type(data) == "table" then data, tag = data[1], data[2] end
  return native.decrypt(self.name, self.key, self.iv, data .. (tag or ""), self.padding, aad or "")
end

return _M
