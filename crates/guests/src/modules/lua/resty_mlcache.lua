-- resty.mlcache: values that a callback makes, kept by this worker. Other workers and nodes do not see them.
local lrucache = require "resty.lrucache"

local Cache = {}
Cache.__index = Cache

-- What stands for a value that is nil.
local ABSENT = {}
local DEFAULT_SIZE, DEFAULT_TTL, DEFAULT_NEG_TTL = 100, 30, 5

local function new(name, _, options)
  if type(name) ~= "string" then error("name must be a string", 2) end
  options = options or {}
  local values, message = lrucache.new(options.lru_size or DEFAULT_SIZE)
  if not values then return nil, message end
  return setmetatable({ name = name, values = values, options = options }, Cache)
end

local function option(self, options, name, default)
  local value = options and options[name]
  if value == nil then value = self.options[name] end
  if value == nil then return default end
  return value
end

local function store(self, key, value, options, ttl)
  local absent = value == nil
  ttl = ttl or option(self, options, absent and "neg_ttl" or "ttl", absent and DEFAULT_NEG_TTL or DEFAULT_TTL)
  if absent then
    value = ABSENT
  else
    local serialize = option(self, options, "l1_serializer")
    if serialize then
      local message
      value, message = serialize(value)
      if value == nil then return nil, "l1_serializer returned a nil value", message end
    end
  end
  self.values:set(key, value, ttl)
  if value ~= ABSENT then return value end
end

-- The value, an error, and where it came from: 1 is this cache, 3 the callback, 4 a value that has expired.
function Cache:get(key, options, callback, ...)
  if type(key) ~= "string" then error("key must be a string", 2) end
  local value, stale = self.values:get(key)
  if value == ABSENT then return nil, nil, 1 end
  if value ~= nil then return value, nil, 1 end
  if not callback then return nil end
  local ok, made, message, ttl = pcall(callback, ...)
  if not ok then return nil, "callback threw an error: " .. tostring(made) end
  if message then
    local resurrect = option(self, options, "resurrect_ttl")
    if resurrect and stale ~= nil then
      self.values:set(key, stale, resurrect)
      if stale == ABSENT then stale = nil end
      return stale, nil, 4
    end
    return nil, tostring(message)
  end
  if ttl and ttl < 0 then return made, nil, 3 end
  local kept, failure = store(self, key, made, options, ttl)
  if failure then return nil, failure end
  return kept, nil, 3
end

-- The seconds that are left, an error, the value.
function Cache:peek(key)
  local entry = self.values.entries[key]
  if not entry then return nil end
  local value = entry.value
  if value == ABSENT then value = nil end
  return entry.expires and entry.expires - ngx.now() or 0, nil, value
end

function Cache:set(key, options, value)
  store(self, key, value, options)
  return true
end

function Cache:delete(key)
  self.values:delete(key)
  return true
end

function Cache:purge()
  self.values:flush_all()
  return true
end

-- There is nothing to learn from other workers.
function Cache:update() return true end

return { _VERSION = "2.6.0", new = new }
