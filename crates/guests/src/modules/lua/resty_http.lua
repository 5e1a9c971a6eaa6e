-- A client of HTTP/1.1, on sockets of `ngx.socket`.
local connect_to, new_headers = require("resty.http_connect"), require("resty.http_headers").new
local ipairs, pairs, setmetatable, tonumber, tostring, type = ipairs, pairs, setmetatable, tonumber, tostring, type
local concat, format, lower, sub, upper = table.concat, string.format, string.lower, string.sub, string.upper
local min = math.min
-- How many lines a head has, and how many bytes are read at once unless code says otherwise.
local MAX_LINES, PIECE = 1000, 65536
-- How many interim responses come before the one that is read.
local MAX_INTERIM = 100
local PORTS = { http = 80, https = 443 }

local http = { _VERSION = "0.17.2", _USER_AGENT = "lua-resty-http/0.17.2 (Lua) weir" }
local meta = { __index = http }

local function add_header(headers, name, value)
  local known = headers[name]
  if known == nil then
    headers[name] = value
  elseif type(known) == "table" then
    known[#known + 1] = value
  else
    headers[name] = { known, value }
  end
end

function http.new()
  local socket, err = ngx.socket.tcp()
  if not socket then
    return nil, err
  end
  return setmetatable({ sock = socket, keepalive = true }, meta)
end

function http.set_timeout(self, ms)
  self.sock:settimeout(ms)
  return true
end

function http.set_timeouts(self, connect, send, read)
  self.sock:settimeouts(connect, send, read)
  return true
end

function http.set_proxy_options(self, options)
  self.proxy_opts = options
end

function http.parse_uri(_, uri, query_in_path)
  local scheme, host, port, rest
  if type(uri) == "string" then
    scheme, host, rest = uri:match("^(%a[%w+.-]*)://([^/?#]+)(.*)$")
    if not scheme then
      scheme, host, rest = "", uri:match("^//([^/?#]+)(.*)$")
    end
  end
  scheme = scheme and lower(scheme)
  if not host or (scheme ~= "" and not PORTS[scheme]) then
    return nil, "bad uri: " .. tostring(uri)
  end
  scheme = scheme == "" and "http" or scheme
  host = host:match("@([^@]*)$") or host
  local bracketed, after = host:match("^(%b[])(.*)$")
  if bracketed then
    host, port = bracketed, after:match("^:(%d+)$")
  else
    local name, number = host:match("^([^:]*):(%d*)$")
    host, port = name or host, number
  end
  port = tonumber(port) or PORTS[scheme]
  local path, query = rest:match("^([^?#]*)%??([^#]*)")
  path = path == "" and "/" or path
  if query_in_path == false then
    return { scheme, host, port, path, query }
  end
  return { scheme, host, port, query ~= "" and path .. "?" .. query or path, "" }
end

local function is_table(value)
  return type(value) == "table" and value or {}
end

function http.connect(self, options, ...)
  if not self.sock then
    return nil, "not initialized"
  elseif type(options) == "table" then
    return connect_to(self, options)
  end
  -- As in versions before 0.16: host, port and options of the pool.
  local port, pooling = ...
  if type(port) == "table" then
    port, pooling = nil, port
  end
  pooling = is_table(pooling)
  local ok, err = connect_to(self, { host = options, port = port, pool = pooling.pool, pool_size = pooling.pool_size })
  return ok and 1 or nil, err
end

function http.tcp_only_connect(self, ...)
  return http.connect(self, ...)
end

function http.ssl_handshake(self, ...)
  local session, err = self.sock:sslhandshake(...)
  self.ssl = session and true or false
  self.scheme = session and "https" or self.scheme
  return session, err
end

function http.set_keepalive(self, ...)
  if not self.sock then
    return nil, "not initialized"
  elseif self.keepalive then
    return self.sock:setkeepalive(...)
  end
  local ok, err = self.sock:close()
  return ok and 2 or nil, ok and "connection must be closed" or err
end

function http.get_reused_times(self)
  return self.sock:getreusedtimes()
end

function http.close(self)
  return self.sock:close()
end

local function is_clean(text)
  return not text:find("[%c]") or not text:find("[\r\n%z]")
end

-- Adds the lines of a header.
local function write_header(lines, name, value)
  if type(value) == "table" then
    for _, one in ipairs(value) do
      if not write_header(lines, name, one) then
        return false
      end
    end
    return true
  end
  value = tostring(value)
  if not (is_clean(name) and is_clean(value)) or name:find("[%s:]") or name == "" then
    return false
  end
  lines[#lines + 1] = name .. ": " .. value .. "\r\n"
  return true
end

local function length_of(body)
  if type(body) == "table" then
    local length = 0
    for _, piece in ipairs(body) do
      length = length + #tostring(piece)
    end
    return length
  end
  return #tostring(body)
end

local function query_of(query)
  if type(query) == "table" then
    query = ngx.encode_args(query)
  end
  if query == nil or query == "" then
    return ""
  end
  return sub(query, 1, 1) == "?" and query or "?" .. query
end

local function default_headers(self, params, headers)
  if not headers["Host"] and (params.version or 1.1) >= 1.1 then
    local default = PORTS[self.scheme or "http"] == self.port or not self.port
    headers["Host"] = self.host:find("^unix:") and "" or default and self.host or self.host .. ":" .. self.port
  end
  if not headers["User-Agent"] then
    headers["User-Agent"] = http._USER_AGENT
  end
  local body = params.body
  if type(body) == "function" then
    if not headers["Content-Length"] and not headers["Transfer-Encoding"] then
      return nil, "Request body is a function but a length or chunked encoding is not specified"
    end
  elseif not headers["Content-Length"] and not headers["Transfer-Encoding"] then
    if body ~= nil then
      headers["Content-Length"] = length_of(body)
    elseif params.method == "POST" or params.method == "PUT" or params.method == "PATCH" then
      headers["Content-Length"] = 0
    end
  end
  if (params.version or 1.1) < 1.1 and not headers["Connection"] then
    headers["Connection"] = "Keep-Alive"
  end
  return true
end

local function head_of(self, params)
  local headers = new_headers()
  for name, value in pairs(is_table(params.headers)) do
    headers[name] = value
  end
  local ok, err = default_headers(self, params, headers)
  if not ok then
    return nil, err
  end
  local path = params.path or "/"
  path = (path == "" and "/" or path) .. query_of(params.query)
  if path:find("[%s%c]") then
    path = path:gsub("[%s%c]", function(c)
      return format("%%%02X", c:byte())
    end)
  end
  if self.proxy_authorization and not headers["Proxy-Authorization"] then
    headers["Proxy-Authorization"] = self.proxy_authorization
  end
  local version = (params.version or 1.1) < 1.1 and "1.0" or "1.1"
  local lines = { upper(params.method), " ", self.prefix or "", path, " HTTP/", version, "\r\n" }
  for name, value in pairs(headers) do
    if not write_header(lines, tostring(name), value) then
      return nil, "invalid header: " .. tostring(name):gsub("%c", "?")
    end
  end
  lines[#lines + 1] = "\r\n"
  return lines, headers
end

local function send_body(socket, body, headers)
  if body == nil then
    return true
  elseif type(body) ~= "function" then
    return socket:send(type(body) == "table" and body or tostring(body))
  end
  local coding = headers["Transfer-Encoding"]
  local is_chunked = type(coding) == "string" and lower(coding) == "chunked"
  while true do
    local chunk, err, partial = body()
    chunk = chunk or partial
    if chunk ~= nil and chunk ~= "" then
      local sent
      sent, err = socket:send(is_chunked and { format("%x\r\n", #chunk), chunk, "\r\n" } or chunk)
      if not sent then
        return nil, err
      end
    elseif chunk == nil then
      if err then
        return nil, err
      end
      return not is_chunked or socket:send("0\r\n\r\n")
    end
  end
end

function http.send_request(self, params)
  if not self.host then
    return nil, "not connected"
  end
  params.method = params.method or "GET"
  local lines, headers = head_of(self, params)
  if not lines then
    return nil, headers
  end
  -- A short body goes with the head.
  local body = params.body
  if type(body) == "string" and #body < PIECE then
    lines[#lines + 1], body = body, nil
  end
  local sent, err = self.sock:send(lines)
  if sent then
    sent, err = send_body(self.sock, body, headers)
  end
  if not sent then
    return nil, err
  end
  return true
end

local function read_headers(socket)
  local headers = new_headers()
  for _ = 1, MAX_LINES do
    local line, err = socket:receive("*l")
    if not line then
      return nil, err
    elseif line == "" then
      return headers
    end
    local name, value = line:match("^([^:%s]+):%s*(.-)%s*$")
    if name then
      add_header(headers, name, value)
    end
  end
  return nil, "the response has too many headers"
end

local function read_status(socket)
  local line, err = socket:receive("*l")
  if not line then
    return nil, err
  end
  local version, status, reason = line:match("^HTTP/(%d%.%d) (%d%d%d) ?(.*)$")
  if not version then
    return nil, "couldn't parse HTTP response status line: " .. sub(line, 1, 80)
  end
  return tonumber(status), tonumber(version), reason
end

-- Reads a body of this many bytes, or until the connection is closed.
local function plain_reader(self, length)
  local left = length
  return function(size)
    size = size or PIECE
    if left == 0 then
      return nil
    end
    local chunk, err, partial
    if left then
      chunk, err = self.sock:receive(min(left, size))
    else
      chunk, err, partial = self.sock:receive(size)
      if not chunk and err == "closed" then
        left = 0
        chunk, err = partial ~= "" and partial or nil, nil
      end
    end
    if not chunk then
      self.keepalive, left = self.keepalive and not err, 0
      return nil, err
    end
    left = left and left > 0 and left - #chunk or left
    return chunk
  end
end

-- Reads the size of the next chunk; after the last, what trails.
local function next_chunk(self, response)
  local line, err = self.sock:receive("*l")
  local digits = line and line:match("^%s*(%x+)")
  if not digits or #digits > 12 then
    return nil, line and "unable to read chunk size" or err
  end
  local size = tonumber(digits, 16)
  if size == 0 then
    response.trailers, err = read_headers(self.sock)
    if not response.trailers then
      return nil, err
    end
  end
  return size
end

local function chunked_reader(self, response)
  local left, has_ended = 0, false
  local function fail(err)
    self.keepalive, has_ended = false, true
    return nil, err
  end
  return function(size)
    if has_ended then
      return nil
    end
    local err
    if left == 0 then
      left, err = next_chunk(self, response)
      if not left then
        return fail(err)
      elseif left == 0 then
        has_ended = true
        return nil
      end
    end
    local chunk
    chunk, err = self.sock:receive(min(left, size or PIECE))
    if not chunk then
      return fail(err)
    end
    left = left - #chunk
    if left == 0 and not self.sock:receive(2) then
      return fail("closed")
    end
    return chunk
  end
end

local function read_body(response)
  local reader = response.body_reader
  if not reader then
    return nil, "no body to be read"
  end
  local chunks = {}
  while true do
    local chunk, err = reader(PIECE)
    if err then
      return nil, err, concat(chunks)
    elseif not chunk then
      return concat(chunks)
    end
    chunks[#chunks + 1] = chunk
  end
end

local function read_trailers(response)
  for name, value in pairs(response.trailers or {}) do
    add_header(response.headers, name, value)
  end
  return response.headers
end

local function has_token(value, token)
  for _, one in ipairs(type(value) == "table" and value or { value }) do
    if lower(one):find(token, 1, true) then
      return true
    end
  end
  return false
end

local function give_body(self, response, method)
  local headers, status = response.headers, response.status
  response.has_body = not (method == "HEAD" or status == 204 or status == 304 or status < 200)
  if not response.has_body then
    response.body_reader = plain_reader(self, 0)
    return true
  elseif has_token(headers["Transfer-Encoding"], "chunked") then
    response.body_reader = chunked_reader(self, response)
    return true
  end
  local length = headers["Content-Length"]
  if length and not (type(length) == "string" and length:find("^%d+$") and #length <= 15) then
    return nil, "bad Content-Length"
  elseif not length then
    self.keepalive = false
  end
  response.body_reader = plain_reader(self, tonumber(length))
  response.has_body = length == nil or tonumber(length) > 0
  return true
end

function http.read_response(self, params)
  local status, version, reason, headers, err
  local count = 0
  repeat
    count = count + 1
    if count > MAX_INTERIM then
      return nil, "the response has too many interim responses"
    end
    status, version, reason = read_status(self.sock)
    if not status then
      return nil, version
    end
    headers, err = read_headers(self.sock)
    if not headers then
      return nil, err
    end
  until status >= 200 or status == 101
  if version < 1.1 then
    self.keepalive = has_token(headers["Connection"], "keep-alive")
  elseif has_token(headers["Connection"], "close") then
    self.keepalive = false
  end
  local response = { status = status, reason = reason, headers = headers, read_body = read_body }
  response.read_trailers = read_trailers
  local ok
  ok, err = give_body(self, response, params.method)
  if not ok then
    return nil, err
  end
  return response
end

function http.request(self, params)
  local sent, err = http.send_request(self, params)
  if not sent then
    return nil, err
  end
  return http.read_response(self, params)
end

local function copied(options)
  local copy = {}
  for name, value in pairs(is_table(options)) do
    copy[name] = value
  end
  return copy
end

function http.request_uri(self, uri, options)
  local params = copied(options)
  local parsed, err = http.parse_uri(self, uri, false)
  if not parsed then
    return nil, err
  end
  params.scheme, params.host, params.port = parsed[1], parsed[2], parsed[3]
  params.path = params.path or parsed[4]
  params.query = params.query or parsed[5]
  local ok
  ok, err = http.connect(self, params)
  if not ok then
    return nil, err
  end
  local response
  response, err = http.request(self, params)
  if not response then
    http.close(self)
    return nil, err
  end
  local body
  body, err = response:read_body()
  if not body then
    http.close(self)
    return nil, err
  end
  response.body = body
  if params.keepalive == false then
    http.close(self)
  else
    http.set_keepalive(self, params.keepalive_timeout, params.keepalive_pool)
  end
  return response
end

function http.get_client_body_reader()
  return nil, "the request's body is not available as a stream: use kong.request.get_raw_body"
end

return http
