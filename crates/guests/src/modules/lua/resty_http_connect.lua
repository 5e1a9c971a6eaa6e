-- resty.http_connect: connections of the client, by way of a proxy too, over TLS or not.
local lower, concat = string.lower, table.concat
local tonumber, tostring, type = tonumber, tostring, type
-- How many lines the head of a proxy's response has.
local MAX_LINES = 1000
local PORTS = { http = 80, https = 443 }

-- Whether a host is one that `no_proxy` names, itself or by a domain above it.
local function is_excepted(host, list)
  for name in (list or ""):gmatch("[^,%s]+") do
    name = name:gsub("^%.", "")
    if name == "*" or name == host or host:sub(-#name - 1) == "." .. name then
      return true
    end
  end
  return false
end

-- The proxy for a host: its address, port and credentials.
local function proxy_for(self, options, scheme, host)
  local proxies = options or self.proxy_opts
  local uri = proxies and proxies[scheme .. "_proxy"]
  if not uri or is_excepted(host, proxies.no_proxy) then
    return nil
  end
  local parsed, err = self:parse_uri(uri, false)
  if not parsed then
    return nil, err
  elseif parsed[1] ~= "http" then
    return nil, "protocol " .. parsed[1] .. " not supported for proxy connections"
  end
  return { host = parsed[2], port = parsed[3], authorization = proxies[scheme .. "_proxy_authorization"] }
end

-- Has the proxy open a connection to a server.
local function tunnel(socket, target, authorization)
  local lines = { "CONNECT ", target, " HTTP/1.1\r\nHost: ", target, "\r\n" }
  if authorization then
    lines[#lines + 1] = "Proxy-Authorization: " .. authorization .. "\r\n"
  end
  lines[#lines + 1] = "\r\n"
  local sent, err = socket:send(lines)
  if not sent then
    return nil, "failed to send connect request to proxy: " .. err
  end
  local line
  line, err = socket:receive("*l")
  local status = line and tonumber(line:match("^HTTP/%d%.%d (%d%d%d)"))
  for _ = 1, MAX_LINES do
    if not line or line == "" then
      break
    end
    line, err = socket:receive("*l")
  end
  if not line then
    return nil, "failed to receive response headers from proxy: " .. tostring(err)
  elseif not status or status < 200 or status > 299 then
    return nil, "failed to establish a tunnel through a proxy: " .. tostring(status)
  end
  return true
end

-- What connections of a pool have in common: the server, the proxy before it, and what TLS says and presents.
local function pool_of(options, scheme, target, proxy, name, verify)
  if options.pool then
    return options.pool
  end
  local parts = { scheme or "", target }
  if proxy then
    parts[#parts + 1] = concat({ "proxy", proxy.host, proxy.port, proxy.authorization or "" }, ":")
  end
  if scheme == "https" then
    parts[#parts + 1] = concat({ name, tostring(verify) }, ":")
    local cert = options.ssl_client_cert
    parts[#parts + 1] = cert and ngx.md5(tostring(cert.pem)) or ""
  end
  return concat(parts, ":")
end

local function handshake(socket, options, name, verify)
  local ok, err = socket:setclientcert(options.ssl_client_cert, options.ssl_client_priv_key)
  if not ok then
    return nil, "could not set client certificate: " .. err
  end
  return socket:sslhandshake(nil, name, verify)
end

-- Connects as `connect{...}` says.
return function(self, options)
  local host, port, scheme = options.host, options.port, options.scheme and lower(options.scheme)
  if type(host) ~= "string" then
    return nil, "host must be a string"
  end
  local path = host:match("^unix:")
  port = not path and (tonumber(port) or PORTS[scheme or "http"]) or nil
  local name, verify = options.ssl_server_name or host, options.ssl_verify ~= false
  local is_secure = scheme == "https"
  local proxy, err
  if scheme and not path then
    proxy, err = proxy_for(self, options.proxy_opts, scheme, host)
    if err then
      return nil, err
    end
  end
  local target = path and host or host .. ":" .. port
  local pool = pool_of(options, scheme, target, proxy, name, verify)
  local pooling = { pool = pool, pool_size = options.pool_size, backlog = options.backlog }
  local ok
  if path then
    ok, err = self.sock:connect(host, pooling)
  else
    local address = proxy and proxy.host or host
    ok, err = self.sock:connect(address:match("^%[(.*)%]$") or address, proxy and proxy.port or port, pooling)
  end
  if ok and is_secure then
    if proxy and self.sock:getreusedtimes() == 0 then
      ok, err = tunnel(self.sock, target, proxy.authorization)
    end
    if ok then
      ok, err = handshake(self.sock, options, name, verify)
    end
  end
  if not ok then
    self.sock:close()
    return nil, err
  end
  self.host, self.port, self.scheme, self.ssl, self.keepalive = host, port, scheme or "http", is_secure, true
  -- A request in clear names the whole URI to the proxy.
  self.prefix = proxy and not is_secure and "http://" .. target or nil
  self.proxy_authorization = self.prefix and proxy.authorization
  return true
end
