-- kong.tools.sha256: digests of texts.
local _, native = ...
local _M = {}

function _M.sha256_bin(text) return native.digest("sha256", text) end
function _M.sha256_hex(text) return native.hex(_M.sha256_bin(text)) end
function _M.sha256_base64(text) return ngx.encode_base64(_M.sha256_bin(text)) end

return _M
