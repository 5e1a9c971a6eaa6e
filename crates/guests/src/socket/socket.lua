-- Sockets as OpenResty's: objects over those of the host.
local tcp, udp = ...
local error, setmetatable, tonumber, type, format = error, setmetatable, tonumber, type, string.format
local stream, datagram = {}, {}
local stream_meta, datagram_meta = { __index = stream }, { __index = datagram }

local function port_number(port, name)
  local number = tonumber(port)
  if not number then
    error(format("bad argument #2 to '%s' (number expected, got %s)", name, port == nil and "no value" or type(port)), 3)
  end
  return number
end

function stream:connect(host, port, options)
  if type(host) ~= "string" then
    error("bad argument #1 to 'connect' (string expected, got " .. type(host) .. ")", 2)
  end
  local path = host:match("^unix:(.*)")
  if path then
    options = type(port) == "table" and port or options
  else
    port = tonumber(port)
    if not port then
      return nil, "missing the port number"
    elseif port < 0 or port > 65535 or port % 1 ~= 0 then
      return nil, "bad port number: " .. port
    end
  end
  options = options or {}
  self.pool = options.pool or (path and host or host .. ":" .. port)
  self.host, self.pool_size = host, tonumber(options.pool_size)
  return tcp.connect(self[1], path or host, not path and port or nil, self.pool)
end

function stream:sslhandshake(session, name, verify)
  local cert, key = self.cert, self.key
  local ok, err = tcp.secure(self[1], name or self.host or "", verify and true or false, cert, key)
  if not ok then
    return nil, err
  elseif session == false then
    return true
  end
  return session or true
end

function stream:send(data)
  return tcp.send(self[1], data)
end

function stream:receive(wanted)
  return tcp.receive(self[1], wanted)
end

function stream:receiveany(max)
  return tcp.receiveany(self[1], max)
end

function stream:receiveuntil(text, options)
  if type(text) ~= "string" then
    error("bad argument #1 to 'receiveuntil' (string expected, got " .. type(text) .. ")", 2)
  elseif text == "" then
    return nil, "pattern is empty"
  end
  local inclusive, has_ended = options ~= nil and options.inclusive == true, false
  return function(size)
    if has_ended then
      has_ended = false
      return nil, nil, nil
    end
    local data, err, partial, is_found = tcp.receiveuntil(self[1], text, inclusive, size)
    has_ended = size ~= nil and is_found == true
    return data, err, partial
  end
end

-- As in OpenResty, what is no number stands for the default.
function stream:settimeout(ms)
  ms = tonumber(ms) or 0
  tcp.settimeouts(self[1], ms, ms, ms)
end

function stream:settimeouts(connect, send, read)
  tcp.settimeouts(self[1], connect, send, read)
end

function stream:setkeepalive(ms, size)
  return tcp.setkeepalive(self[1], self.pool or "", ms, size or self.pool_size)
end

function stream:getreusedtimes()
  return tcp.getreusedtimes(self[1])
end

function stream:close()
  return tcp.close(self[1])
end

function stream:setoption()
  return true
end

-- A certificate and a key that `ngx.ssl` has parsed, for the next handshake.
function stream:setclientcert(cert, key)
  if cert == nil and key == nil then
    self.cert, self.key = nil, nil
    return true
  end
  local chain, private = type(cert) == "table" and cert.pem, type(key) == "table" and key.pem
  if not chain then
    return nil, "bad client cert type"
  elseif not private then
    return nil, "bad client pkey type"
  end
  self.cert, self.key = chain, private
  return true
end

function datagram:setpeername(host, port)
  if type(host) ~= "string" or host:find("^unix:") then
    return nil, "datagrams go to hosts and ports alone"
  end
  return udp.connect(self[1], host, port_number(port, "setpeername"))
end

function datagram:send(data)
  return udp.send(self[1], data)
end

function datagram:receive(size)
  return udp.receive(self[1], size)
end

function datagram:settimeout(ms)
  udp.settimeout(self[1], ms)
end

function datagram:close()
  return udp.close(self[1])
end

local socket = {}

function socket.tcp()
  return setmetatable({ tcp.new() }, stream_meta)
end

socket.stream = socket.tcp

function socket.udp()
  return setmetatable({ udp.new() }, datagram_meta)
end

function socket.connect(...)
  local made = socket.tcp()
  local ok, err = made:connect(...)
  if not ok then
    return nil, err
  end
  return made
end

return socket
