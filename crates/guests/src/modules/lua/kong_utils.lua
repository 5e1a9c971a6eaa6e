-- kong.tools.utils: the functions of the other modules under one name.
local _M = {}
for _, name in ipairs({ "table", "uuid", "rand", "time", "string", "ip", "http" }) do
  for key, value in pairs(require("kong.tools." .. name)) do _M[key] = value end
end
return _M
