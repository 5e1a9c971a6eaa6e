-- A client of Redis, on sockets of `ngx.socket`. Every method that is not one of its own is a command of Redis.
local error, ipairs, pairs, select, setmetatable, tonumber, tostring, type, unpack =
  error, ipairs, pairs, select, setmetatable, tonumber, tostring, type, unpack
local sub, upper, byte, null = string.sub, string.upper, string.byte, ngx.null
-- How deep replies may be nested, and how many items one may have.
local MAX_DEPTH, MAX_ITEMS = 32, 1048576
-- The longest text of a reply, which is that of Redis.
local MAX_LENGTH = 536870912

local redis = { _VERSION = "0.31", null = null }
local commands = {}

local function not_ready()
  return nil, "not initialized"
end

function redis.new()
  local socket, err = ngx.socket.tcp()
  if not socket then
    return nil, err
  end
  return setmetatable({ _socket = socket, _channels = 0 }, {
    __index = function(_, name)
      return redis[name] or commands[name]
    end,
  })
end

function redis:set_timeout(ms)
  if not self._socket then
    error("not initialized", 2)
  end
  self._socket:settimeout(ms)
end

function redis:set_timeouts(connect, send, read)
  if not self._socket then
    error("not initialized", 2)
  end
  self._socket:settimeouts(connect, send, read)
end

function redis:connect(host, port, options)
  local socket = self._socket
  if not socket then
    return not_ready()
  end
  if type(port) == "table" then
    port, options = nil, port
  end
  options = options or {}
  self._channels, self._pipeline = 0, nil
  local ok, err
  if type(host) == "string" and sub(host, 1, 5) == "unix:" then
    ok, err = socket:connect(host, options)
  else
    ok, err = socket:connect(host, port or 6379, options)
  end
  if ok and options.ssl then
    ok, err = socket:sslhandshake(false, options.server_name or host, options.ssl_verify)
  end
  if not ok then
    return ok, err
  end
  return 1
end

function redis:set_keepalive(...)
  if not self._socket then
    return not_ready()
  elseif self._channels > 0 then
    return nil, "subscribed state"
  end
  return self._socket:setkeepalive(...)
end

function redis:get_reused_times()
  if not self._socket then
    return not_ready()
  end
  return self._socket:getreusedtimes()
end

function redis:close()
  if not self._socket then
    return not_ready()
  end
  return self._socket:close()
end

-- Closes a connection whose replies are no longer in step with its requests.
local function give_up(socket, err)
  socket:close()
  return nil, err
end

-- The number that stands in a reply: digits, perhaps after a minus.
local function whole(text)
  return text:find("^%-?%d+$") and tonumber(text)
end

local read_reply

local function read_items(socket, count, depth)
  if count < 0 then
    return null
  elseif count > MAX_ITEMS or depth >= MAX_DEPTH then
    return give_up(socket, "the reply is too large")
  end
  local items = {}
  for i = 1, count do
    local item, err = read_reply(socket, depth + 1)
    if item == nil then
      return nil, err
    elseif item == false then
      items[i] = { false, err }
    else
      items[i] = item
    end
  end
  return items
end

function read_reply(socket, depth)
  local line, err = socket:receive()
  if not line then
    if err == "timeout" then
      socket:close()
    end
    return nil, err
  end
  local kind, rest = byte(line), sub(line, 2)
  if kind == 36 then -- $
    local length = whole(rest)
    if not length or length > MAX_LENGTH then
      return give_up(socket, "bad reply: " .. sub(line, 1, 80))
    elseif length < 0 then
      return null
    end
    local text
    text, err = socket:receive(length)
    if text then
      local ending
      ending, err = socket:receive(2)
      text = ending and text
    end
    if not text then
      return give_up(socket, err)
    end
    return text
  elseif kind == 43 then -- +
    return rest
  elseif (kind == 42 or kind == 58) and not whole(rest) then
    return give_up(socket, "bad reply: " .. sub(line, 1, 80))
  elseif kind == 42 then -- *
    return read_items(socket, whole(rest), depth)
  elseif kind == 58 then -- :
    return whole(rest)
  elseif kind == 45 then -- -
    return false, rest
  end
  return give_up(socket, "unknown prefix: " .. sub(line, 1, 80))
end

-- Notes how many channels a connection listens to, as a reply to a subscription says.
local function note_channels(self, reply)
  local kind = type(reply) == "table" and type(reply[1]) == "string" and reply[1]:match("subscribe$")
  if kind and type(reply[3]) == "number" then
    self._channels = reply[3]
  end
end

function redis:read_reply()
  if not self._socket then
    return not_ready()
  elseif self._channels == 0 then
    return nil, "not subscribed"
  end
  local reply, err = read_reply(self._socket, 0)
  note_channels(self, reply)
  return reply, err
end

local function encoded(name, count, ...)
  local parts = { "*", count + 1, "\r\n$", #name, "\r\n", name, "\r\n" }
  local at = #parts
  for i = 1, count do
    local argument = select(i, ...)
    argument = type(argument) == "string" and argument or tostring(argument)
    parts[at + 1], parts[at + 2], parts[at + 3], parts[at + 4], parts[at + 5] =
      "$", #argument, "\r\n", argument, "\r\n"
    at = at + 5
  end
  return parts
end

local function command(self, name, ...)
  local socket = self._socket
  if not socket then
    return not_ready()
  end
  local request = encoded(name, select("#", ...), ...)
  local pipeline = self._pipeline
  if pipeline then
    pipeline[#pipeline + 1] = request
    return "QUEUED"
  elseif self._channels > 0 and not name:find("SUBSCRIBE$") and name ~= "PING" and name ~= "QUIT" then
    return nil, "subscribed state"
  end
  local sent, err = socket:send(request)
  if not sent then
    return nil, err
  end
  local reply
  reply, err = read_reply(socket, 0)
  note_channels(self, reply)
  return reply, err
end

setmetatable(commands, {
  __index = function(_, name)
    if type(name) ~= "string" or sub(name, 1, 1) == "_" then
      return nil
    end
    local word = upper(name)
    return function(self, ...)
      return command(self, word, ...)
    end
  end,
})

function redis:hmset(key, ...)
  local fields = ...
  if select("#", ...) ~= 1 or type(fields) ~= "table" then
    return command(self, "HMSET", key, ...)
  end
  local list = {}
  for name, value in pairs(fields) do
    list[#list + 1], list[#list + 2] = name, value
  end
  return command(self, "HMSET", key, unpack(list))
end

function redis:init_pipeline()
  self._pipeline = {}
end

function redis:cancel_pipeline()
  self._pipeline = nil
end

function redis:commit_pipeline()
  local pipeline, socket = self._pipeline, self._socket
  if not pipeline then
    return nil, "no pipeline"
  end
  self._pipeline = nil
  if not socket then
    return not_ready()
  elseif #pipeline == 0 then
    return {}
  end
  local sent, err = socket:send(pipeline)
  if not sent then
    return nil, err
  end
  local replies, reply = {}, nil
  for i = 1, #pipeline do
    reply, err = read_reply(socket, 0)
    if reply == nil then
      return nil, err
    elseif reply == false then
      replies[i] = { false, err }
    else
      replies[i] = reply
    end
  end
  return replies
end

function redis:array_to_hash(items)
  local hash = {}
  for i = 1, #items, 2 do
    hash[items[i]] = items[i + 1]
  end
  return hash
end

function redis.add_commands(...)
  for _, name in ipairs({ ... }) do
    redis[name] = commands[name]
  end
end

function redis.register_module_prefix(prefix)
  redis[prefix] = function(self)
    return setmetatable({}, {
      __index = function(_, name)
        return function(_, ...)
          return command(self, upper(prefix .. "." .. name), ...)
        end
      end,
    })
  end
end

return redis
