-- resty.openssl: the parts by their names.
local _M = { _VERSION = "1.5.1", version = require("resty.openssl.version") }
for _, part in ipairs({ "bn", "cipher", "digest", "hmac", "mac", "pkey", "rand", "x509" }) do
  _M[part] = require("resty.openssl." .. part)
end

function _M.load_modules() end

function _M.set_fips_mode()
  return false, "FIPS mode is not available"
end

function _M.get_fips_mode()
  return false
end

return _M
