-- resty.openssl.x509: certificates.
local _, native = ...
local bn, pkey = require "resty.openssl.bn", require "resty.openssl.pkey"
local _M = {}

local Name = {}
Name.__index = Name

function Name:tostring()
  local parts = {}
  for i, pair in ipairs(self) do parts[i] = pair[1] .. "=" .. pair[2] end
  return table.concat(parts, "/")
end
Name.__tostring = Name.tostring

-- The entry of a short name, and its position.
function Name:find(key, after)
  for i = (after or 0) + 1, #self do
    if self[i][1] == key then return { sn = key, ln = key, nid = 0, blob = self[i][2] }, i end
  end
end

function Name:each()
  local i = 0
  return function()
    i = i + 1
    local pair = self[i]
    if pair then return pair[1], { sn = pair[1], ln = pair[1], nid = 0, blob = pair[2] } end
  end
end

local Certificate = {}
Certificate.__index = Certificate

function _M.new(source)
  if type(source) ~= "string" then return nil, "x509.new: expect nil or a string at #1" end
  local fields, message = native.certificate(source)
  if not fields then return nil, "x509.new: " .. message end
  return setmetatable({ fields = fields }, Certificate)
end

function _M.istype(value) return type(value) == "table" and getmetatable(value) == Certificate end

function Certificate:get_subject_name() return setmetatable(self.fields.subject, Name) end
function Certificate:get_issuer_name() return setmetatable(self.fields.issuer, Name) end
function Certificate:get_not_before() return self.fields.not_before end
function Certificate:get_not_after() return self.fields.not_after end
function Certificate:get_lifetime() return self.fields.not_before, self.fields.not_after end
function Certificate:get_serial_number() return bn.from_binary(self.fields.serial) end
function Certificate:get_version() return self.fields.version end
function Certificate:get_pubkey() return pkey.new(self.fields.public_key) end
function Certificate:get_ca() return self.fields.ca end
function Certificate:digest(algorithm) return native.digest(algorithm or "sha1", self.fields.der) end
function Certificate:pubkey_digest(algorithm) return native.digest(algorithm or "sha1", self.fields.public_key) end
function Certificate:to_PEM() return native.certificate_pem(self.fields.der) end
function Certificate:tostring(format)
  if format == "DER" then return self.fields.der end
  return self:to_PEM()
end

return _M
