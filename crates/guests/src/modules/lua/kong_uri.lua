-- kong.tools.uri: paths.
local _M = {}

local RESERVED = "!*'();:@&=+$,/?%#[]"

function _M.escape(uri)
  return (uri:gsub("[^!#$&'()*+,/:;=?@%[%]%w%-%._~%%]", function(c) return ("%%%02X"):format(c:byte()) end))
end

function _M.unescape(uri)
  return (uri:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- A path without dots, with escapes of ordinary characters decoded and of others in capitals.
function _M.normalize(uri, merge_slashes)
  uri = uri:gsub("%%(%x%x)", function(hex)
    local char = string.char(tonumber(hex, 16))
    if RESERVED:find(char, 1, true) then return "%" .. hex:upper() end
    return char
  end)
  local kept = {}
  for slash, segment in uri:gmatch("(/?)([^/]*)") do
    if segment == ".." then
      kept[#kept] = nil
    elseif segment ~= "." and slash .. segment ~= "" then
      kept[#kept + 1] = slash .. segment
    end
  end
  local path = table.concat(kept)
  if uri:find("/%.%.?$") then path = path .. "/" end
  if merge_slashes then path = path:gsub("//+", "/") end
  return path == "" and "/" or path
end

return _M
