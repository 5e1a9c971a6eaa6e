-- resty.openssl.cipher: AES.
local _, native = ...
local TAG_LENGTH = 16

local Cipher = {}
Cipher.__index = Cipher

local function is_aead(self) return self.name:lower():find("gcm$") ~= nil end

-- Encrypts a whole text.
function Cipher:encrypt(key, iv, text, no_padding, aad)
  local data, message = native.encrypt(self.name, key, iv or "", text, not no_padding, aad or "")
  if not data then return nil, "cipher:encrypt: " .. message end
  if not is_aead(self) then return data end
  self.tag = data:sub(-TAG_LENGTH)
  return data:sub(1, -TAG_LENGTH - 1)
end

function Cipher:decrypt(key, iv, data, no_padding, aad, tag)
  if is_aead(self) then data = data .. (tag or self.tag or "") end
  local text, message = native.decrypt(self.name, key, iv or "", data, not no_padding, aad or "")
  if not text then return nil, "cipher:decrypt: " .. message end
  return text
end

-- A text in parts: init, update, final.
function Cipher:init(key, iv, options)
  options = options or {}
  self.state = { key = key, iv = iv, parts = {}, encrypts = options.is_encrypt, plain = options.no_padding }
  return true
end

function Cipher:update(...)
  for _, part in ipairs({ ... }) do self.state.parts[#self.state.parts + 1] = part end
  return ""
end

function Cipher:update_aead_aad(aad)
  self.state.aad = aad
  return true
end

function Cipher:set_aead_tag(tag)
  self.tag = tag
  return true
end

function Cipher:get_aead_tag() return self.tag end

function Cipher:final(last)
  local state = self.state
  local text = table.concat(state.parts) .. (last or "")
  if state.encrypts then return self:encrypt(state.key, state.iv, text, state.plain, state.aad) end
  return self:decrypt(state.key, state.iv, text, state.plain, state.aad, self.tag)
end

return {
  new = function(name)
    if not tostring(name):lower():find("^aes%-%d+%-%a+") then
      return nil, ("cipher.new: invalid cipher type \"%s\""):format(tostring(name))
    end
    return setmetatable({ name = name }, Cipher)
  end,
  istype = function(value) return type(value) == "table" and getmetatable(value) == Cipher end,
}
