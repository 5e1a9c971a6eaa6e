-- socket.url: URLs of RFC 3986 as tables.
local _M = { _VERSION = "URL 1.0.3" }

-- Percent-encodes everything but letters, digits and a few marks.
function _M.escape(text)
  return (text:gsub("([^A-Za-z0-9_])", function(c) return ("%%%02x"):format(c:byte()) end))
end

function _M.unescape(text)
  return (text:gsub("%%(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end))
end

-- Fills `parsed` from the authority: user information, host and port.
local function parse_authority(parsed, authority)
  parsed.authority = authority
  local rest = authority:gsub("^([^@]*)@", function(info)
    parsed.userinfo = info
    return ""
  end)
  rest = rest:gsub(":([^:%]]*)$", function(port)
    parsed.port = port
    return ""
  end)
  if rest ~= "" then parsed.host = rest:match("^%[(.+)%]$") or rest end
  if not parsed.userinfo then return end
  local user = parsed.userinfo:gsub(":([^:]*)$", function(password)
    parsed.password = password
    return ""
  end)
  parsed.user = user
end

-- A table with scheme, authority, userinfo, user, password, host, port, path, params, query and fragment, on top of
-- the values of `default`.
function _M.parse(url, default)
  local parsed = {}
  for key, value in pairs(default or parsed) do parsed[key] = value end
  if not url or url == "" then return nil, "invalid url" end
  local function take(pattern, key)
    url = url:gsub(pattern, function(value)
      parsed[key] = value
      return ""
    end, 1)
  end
  take("#(.*)$", "fragment")
  take("^([%w][%w%+%-%.]*)%:", "scheme")
  local authority
  url = url:gsub("^//([^/%?]*)", function(value)
    authority = value
    return ""
  end)
  take("%?(.*)$", "query")
  take("%;(.*)$", "params")
  if url ~= "" then parsed.path = url end
  if authority then parse_authority(parsed, authority) end
  return parsed
end

local function build_authority(parsed)
  if not parsed.host then return parsed.authority end
  local authority = parsed.host
  if authority:find(":", 1, true) then authority = "[" .. authority .. "]" end
  if parsed.port then authority = authority .. ":" .. tostring(parsed.port) end
  local info = parsed.userinfo
  if parsed.user then
    info = parsed.user .. (parsed.password and ":" .. parsed.password or "")
  end
  return info and info .. "@" .. authority or authority
end

function _M.build(parsed)
  local url = parsed.path or ""
  if parsed.params then url = url .. ";" .. parsed.params end
  if parsed.query then url = url .. "?" .. parsed.query end
  local authority = build_authority(parsed)
  if authority then url = "//" .. authority .. url end
  if parsed.scheme then url = parsed.scheme .. ":" .. url end
  if parsed.fragment then url = url .. "#" .. parsed.fragment end
  return url
end

-- Removes "." and ".." from a path.
local function remove_dots(path)
  local kept = {}
  for segment, slash in path:gmatch("([^/]*)(/?)") do
    if segment == ".." and #kept > 0 and kept[#kept] ~= "/" then
      kept[#kept] = nil
    elseif segment ~= "." and segment ~= ".." and segment .. slash ~= "" then
      kept[#kept + 1] = segment .. slash
    end
  end
  return table.concat(kept)
end

-- `relative` as a reference from `base`, which is a URL or a parsed one.
function _M.absolute(base, relative)
  if type(base) == "table" then base = _M.build(base) end
  local from, to = _M.parse(base), _M.parse(relative)
  if not from then return relative end
  if not to then return base end
  if to.scheme then return relative end
  to.scheme = from.scheme
  if not to.authority then
    to.authority, to.userinfo, to.user, to.password = from.authority, from.userinfo, from.user, from.password
    to.host, to.port = from.host, from.port
    if not to.path then
      to.path = from.path
      to.params = to.params or from.params
      to.query = to.query or from.query
    elseif to.path:sub(1, 1) ~= "/" then
      to.path = remove_dots((from.path or "/"):gsub("[^/]*$", "") .. to.path)
    end
  end
  if to.path then to.path = remove_dots(to.path) end
  return _M.build(to)
end

-- The segments of a path, unescaped.
function _M.parse_path(path)
  local parsed = {}
  for segment in (path or ""):gmatch("[^/]+") do parsed[#parsed + 1] = _M.unescape(segment) end
  if path and path:sub(1, 1) == "/" then parsed.is_absolute = 1 end
  if path and path:sub(-1) == "/" then parsed.is_directory = 1 end
  return parsed
end

function _M.build_path(parsed, unsafe)
  local segments = {}
  for i, segment in ipairs(parsed) do segments[i] = unsafe and segment or _M.escape(segment) end
  local path = table.concat(segments, "/")
  if parsed.is_directory and #segments > 0 then path = path .. "/" end
  return parsed.is_absolute and "/" .. path or path
end

return _M
