-- kong.tools.ip: addresses and names of hosts.
local _, native = ...
local _M = {}

-- An address with its prefix length, if there is one and it may be that long.
local function split_prefix(text)
  local address, bits = text:match("^(.-)/(%d+)$")
  if not address then return text end
  return address, tonumber(bits)
end

local MAX_BITS = { ipv4 = 32, ipv6 = 128 }

local function kind_of(text, may_have_prefix)
  if type(text) ~= "string" then return nil end
  local address, bits = split_prefix(text)
  local kind = native.address(address)
  if not kind or bits and (not may_have_prefix or bits > MAX_BITS[kind]) then return nil end
  return kind, bits
end

function _M.is_valid_ip(text) return kind_of(text) ~= nil end
function _M.is_valid_ip_or_cidr(text) return kind_of(text, true) ~= nil end
function _M.is_valid_cidr(text)
  local kind, bits = kind_of(text, true)
  return kind ~= nil and bits ~= nil
end

function _M.validate_ip(text)
  if _M.is_valid_ip(text) then return true end
  return false, "not an ip address: " .. tostring(text)
end

function _M.validate_ip_or_cidr(text)
  if _M.is_valid_ip_or_cidr(text) then return true end
  return false, "invalid ip or cidr range: '" .. tostring(text) .. "'"
end

function _M.validate_cidr_v4(text)
  local kind, bits = kind_of(text, true)
  if kind == "ipv4" and bits then return true end
  return false, "invalid cidr range: '" .. tostring(text) .. "'"
end

-- "ipv4", "ipv6" or "name", by the number of colons and digits.
function _M.hostname_type(name)
  if select(2, name:gsub(":", "")) > 1 then return "ipv6" end
  if name:match("^[%d%.:]+$") then return "ipv4" end
  return "name"
end

local function split_port(text, pattern)
  local host, port = text:match(pattern)
  if not host then return text end
  port = port:find("^%d+$") and tonumber(port) or -1
  return host, port
end

local function valid_port(port) return port == nil or port >= 0 and port <= 65535 end

function _M.normalize_ipv4(text)
  local host, port = split_port(text, "^([^:]*):(.*)$")
  local kind, address = native.address(host)
  if kind ~= "ipv4" then return nil, "invalid ipv4 address: " .. text end
  if not valid_port(port) then return nil, "invalid port number" end
  return address, port
end

function _M.normalize_ipv6(text)
  local host, port = text, nil
  if text:sub(1, 1) == "[" then
    host = text:match("^(%b[])$")
    if not host then host, port = split_port(text, "^(%b[]):(.*)$") end
  end
  local kind, address = native.address(host)
  if kind ~= "ipv6" then return nil, "invalid ipv6 address: " .. text end
  if not valid_port(port) then return nil, "invalid port number" end
  return address, port
end

function _M.check_hostname(text)
  local host, port = split_port(text, "^([^:]*):(.*)$")
  if not valid_port(port) then return nil, "invalid port number" end
  local name = host:gsub("%.$", "")
  if name == "" or #name > 253 or name:find("[^%w%-_%.]") or name:find("%.%.") then
    return nil, "invalid hostname: " .. text
  end
  for label in name:gmatch("[^.]+") do
    if #label > 63 or label:find("^%-") or label:find("%-$") then return nil, "invalid hostname: " .. text end
  end
  return host, port
end

local BY_TYPE = { ipv4 = _M.normalize_ipv4, ipv6 = _M.normalize_ipv6, name = _M.check_hostname }

-- A table with type, host and port.
function _M.normalize_ip(text)
  local kind = _M.hostname_type(text)
  local host, port = BY_TYPE[kind](text)
  if not host then return nil, port end
  return { type = kind, host = host, port = port }
end

-- A host, or what normalize_ip returned, with its port as an authority.
function _M.format_host(host, port)
  if type(host) == "table" then
    host, port = host.host, host.port
  end
  if host == nil then return nil, port end
  local parsed, message = _M.normalize_ip(host)
  if not parsed then return nil, message end
  local text = parsed.type == "ipv6" and "[" .. parsed.host .. "]" or parsed.host
  port = port or parsed.port
  return port and text .. ":" .. port or text
end

return _M
