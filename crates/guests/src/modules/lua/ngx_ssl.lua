-- ngx.ssl: certificates and keys for `kong.service.set_tls_cert_key`, `resty.http` and sockets.
local _, native = ...
local _M = { version = "0.1.28" }

local function parser(check)
  return function(text)
    local ok, message = check(text)
    if not ok then
      return nil, message
    end
    return setmetatable({ pem = text }, { __metatable = false, __tostring = function() return "parsed PEM" end })
  end
end

_M.parse_pem_cert = parser(function(text)
  if type(text) ~= "string" or not text:find("-----BEGIN CERTIFICATE-----", 1, true) then
    return nil, "PEM_read_bio_X509_AUX() failed"
  end
  return true
end)

_M.parse_pem_priv_key = parser(function(text)
  if type(text) ~= "string" or not text:find("PRIVATE KEY", 1, true) or not native.key(text) then
    return nil, "PEM_read_bio_PrivateKey() failed"
  end
  return true
end)

function _M.server_name()
  return ngx.var.ssl_server_name
end

function _M.get_tls1_version_str()
  return ngx.var.ssl_protocol
end

return _M
