-- kong.tools.time: the clock in other units.
local _M = {}

function _M.get_now() return ngx.now() end
function _M.get_now_ms() return ngx.now() * 1000 end
function _M.get_updated_now() return ngx.now() end
function _M.get_updated_now_ms() return ngx.now() * 1000 end
function _M.get_updated_monotonic_ms() return ngx.now() * 1000 end
function _M.time_ns() return ngx.now() * 1e9 end

return _M
