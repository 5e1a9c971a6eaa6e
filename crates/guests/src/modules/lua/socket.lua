-- LuaSocket, as far as it does not block: the clock. What opens a socket is refused with a reason.
local _M = { _VERSION = "LuaSocket 3.0.0" }

function _M.gettime()
  return ngx.now()
end

local function refused(name)
  return function()
    error("socket." .. name .. " blocks the worker: use resty.http, ngx.socket.tcp or ngx.sleep", 2)
  end
end

for _, name in ipairs({ "sleep", "tcp", "udp", "connect", "select", "bind" }) do
  _M[name] = refused(name)
end

return _M
