-- kong.tools.http: arguments, names and media types.
local url = require "socket.url"
local tools = require "kong.tools.string"
local _M = {}

local function key_order(a, b)
  if type(a) == type(b) then return a < b end
  return type(a) == "number"
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, key_order)
  return keys
end

local function argument(key, value, raw)
  local escape = raw and tostring or url.escape
  if value == nil then return escape(key) end
  return escape(key) .. "=" .. escape(tostring(value))
end

-- Appends the arguments of a nested table: `key[1]`, or `key[]`, and `key.field`.
local function nested(query, parent, value, raw, no_indexes)
  for _, key in ipairs(sorted_keys(value)) do
    local name = parent .. "." .. tostring(key)
    if type(key) == "number" then name = no_indexes and parent .. "[]" or ("%s[%d]"):format(parent, key) end
    if type(value[key]) == "table" then
      nested(query, name, value[key], raw, no_indexes)
    else
      query[#query + 1] = argument(name, value[key], raw)
    end
  end
end

function _M.encode_args(arguments, raw, no_array_indexes)
  local query = {}
  for _, key in ipairs(sorted_keys(arguments)) do
    local value = arguments[key]
    if type(value) == "table" then
      nested(query, key, value, raw, no_array_indexes)
    elseif value == ngx.null then
      query[#query + 1] = argument(key, "")
    elseif value == "" then
      query[#query + 1] = key
    else
      query[#query + 1] = argument(key, value, raw)
    end
  end
  return table.concat(query, "&")
end

-- A list for a table with the keys 1, 2, 3 … as numbers or strings; nothing for another.
local function as_list(t)
  local list, count = {}, 0
  for _ in pairs(t) do
    count = count + 1
    list[count] = t[count] == nil and t[tostring(count)] or t[count]
    if list[count] == nil then return nil end
  end
  return list
end

local WORDS = { ["true"] = true, ["false"] = false }

function _M.decode_args(arguments)
  local decoded = {}
  for key, value in pairs(arguments) do
    if type(value) == "table" then
      value = as_list(value) or value
    elseif value == "" then
      value = ngx.null
    elseif WORDS[value] ~= nil then
      value = WORDS[value]
    end
    decoded[key] = value
  end
  return decoded
end

-- Whether the client's connection is TLS, or was before another proxy that is trusted.
function _M.check_https(trusted, allow_terminated)
  if ngx.var.scheme:lower() == "https" then return true end
  local scheme = allow_terminated and trusted and ngx.var.http_x_forwarded_proto
  if not scheme then return false end
  if scheme:find(",", 1, true) then return nil, "Only one X-Forwarded-Proto header allowed" end
  return scheme:lower() == "https"
end

function _M.validate_http_token(token)
  if token == nil or token == "" then return nil, "no token provided" end
  if not token:find('[%c\127-\255 ()<>@,;:\\"/?={}%[%]]') then return token end
  return nil, "contains one or more invalid characters. ASCII control characters (0-31;127), space, tab and the "
    .. 'characters ()<>@,;:\\"/?={}[] are not allowed.'
end
_M.validate_cookie_name = _M.validate_http_token

function _M.validate_header_name(name)
  if name == nil or name == "" then return nil, "no header name provided" end
  if name:find("^[%w_-]+$") then return name end
  return nil, "bad header name '" .. name .. "', allowed characters are A-Z, a-z, 0-9, '_', and '-'"
end

local FIXED = { [405] = "Method not allowed", [500] = "An unexpected error occurred", [502] = "Bad gateway" }
local DEFAULT = { [401] = "Unauthorized", [404] = "Not found", [503] = "Service unavailable" }

function _M.get_default_exit_body(status, message)
  if type(status) ~= "number" then error("code must be a number", 2) end
  if status < 100 or status > 599 then error("code must be a number between 100 and 599", 2) end
  if status == 204 then return nil end
  local body = FIXED[status] or message or DEFAULT[status]
  if body == nil or type(body) == "table" then return body end
  return { message = body }
end

local JSON, PLAIN = "application/json; charset=utf-8", "text/plain; charset=utf-8"
local TYPES = {
  ["application/grpc"] = "", ["text/html"] = "text/html; charset=utf-8", ["application/json"] = JSON,
  ["text/plain"] = PLAIN, ["application/xml"] = "application/xml; charset=utf-8",
  ["application/*"] = JSON, ["text/*"] = PLAIN, ["*/*"] = JSON,
}

function _M.get_mime_type(header, use_default)
  local kind = tools.strip(header):match("^[^;]*")
  local known = TYPES[kind]
  if known then return known end
  if use_default == false then return nil, "could not find MIME type" end
  return JSON
end

-- The media type that an Accept header asks for first.
function _M.get_response_type(accept)
  if type(accept) == "table" then accept = table.concat(accept, ",") end
  local best, kind = 0, JSON
  for range in (accept or ""):gmatch("[^,]+") do
    local name = tools.strip(range):lower():match("^[^;%s]+/[^;%s]+")
    local quality = tonumber(range:match(";%s*[qQ]%s*=%s*([%d.]+)")) or 1
    if name and quality > best then best, kind = quality, _M.get_mime_type(name) end
  end
  return kind
end

-- The directives of a Cache-Control header: numbers, texts and `true`.
function _M.parse_directive_header(header)
  local directives = {}
  if type(header) == "table" then header = table.concat(header, ", ") end
  for part in (header or ""):gmatch("[^,]+") do
    local name, value = part:match("^%s*([^%s=]+)%s*=%s*\"?([^\"]-)\"?%s*$")
    if name then
      directives[name:lower()] = tonumber(value) or value
    else
      name = part:match("^%s*([^%s]+)%s*$")
      if name then directives[name:lower()] = true end
    end
  end
  return directives
end

return _M
