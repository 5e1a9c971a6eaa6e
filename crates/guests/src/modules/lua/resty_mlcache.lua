-- resty.mlcache: values that a callback makes, in a shared dictionary of the node. Each worker keeps those that it has read,
-- and asks the dictionary whether they are still the ones that are there.
local _, native = ...
local lrucache = require "resty.lrucache"
local locks = require "resty.lock"
local type, error, pairs, pcall, tostring, setmetatable = type, error, pairs, pcall, tostring, setmetatable

local Cache = {}
Cache.__index = Cache

local DEFAULT_TTL, DEFAULT_NEG_TTL, DEFAULT_SIZE = 30, 5, 100
-- Values that are longer are read again each time, so that a worker keeps no more than it has memory for.
local MAX_KEPT = 8192

local TIMES = { "ttl", "neg_ttl", "resurrect_ttl" }

local function check(options)
  if options == nil then return end
  if type(options) ~= "table" then error("opts must be a table", 0) end
  for i = 1, #TIMES do
    local name = TIMES[i]
    local time = options[name]
    if time ~= nil then
      if type(time) ~= "number" then error("opts." .. name .. " must be a number", 0) end
      if time < 0 then error("opts." .. name .. " must be >= 0", 0) end
    end
  end
  local serialize = options.l1_serializer
  if serialize ~= nil and type(serialize) ~= "function" then
    error("opts.l1_serializer must be a function", 0)
  end
end

local function new(name, shm, options)
  if type(name) ~= "string" then error("name must be a string", 2) end
  if type(shm) ~= "string" then error("shm must be a string", 2) end
  check(options)
  options = options or {}
  local cache = { name = name, options = options, lock_dict = options.shm_locks or shm }
  for member, dict in pairs({ dict = shm, misses = options.shm_miss or shm, locks = cache.lock_dict }) do
    cache[member] = ngx.shared and ngx.shared[dict] and native.dict(dict)
    if not cache[member] then return nil, "no such lua_shared_dict: " .. dict end
  end
  cache.near = options.lru or lrucache.new(options.lru_size or DEFAULT_SIZE)
  return setmetatable(cache, Cache)
end

local function option(self, options, name, default)
  local value = options and options[name]
  if value == nil then value = self.options[name] end
  if value == nil then return default end
  return value
end

-- A value as this worker keeps it: what the serializer makes of it, if there is one.
local function keep(self, name, options, number, length, value)
  local serialize = value ~= nil and option(self, options, "l1_serializer")
  if serialize then
    local ok, made, message = pcall(serialize, value)
    if not ok then return nil, "l1_serializer threw an error: " .. tostring(made) end
    if message then return nil, message end
    if made == nil then return nil, "l1_serializer returned a nil value" end
    value = made
  end
  if number and length <= MAX_KEPT then self.near:set(name, { number = number, value = value }) end
  return value
end

-- What a dictionary has: whether it is there, the value, an error, where it came from, and the seconds that are left.
local function look_in(self, dict, name, options, stale)
  local known = self.near:get(name)
  local number, left, expired, length, value = native.read(dict, name, known and known.number)
  if not number or expired and not stale then return false end
  if known and known.number == number then return true, known.value, nil, 1, left, expired end
  local kept, message = keep(self, name, options, number, length, value)
  return true, kept, message, 2, left, expired
end

local function look(self, name, options, stale)
  local found, value, message, level, left, expired = look_in(self, self.dict, name, options, stale)
  if found or self.misses == self.dict then return found, value, message, level, left, expired end
  return look_in(self, self.misses, name, options, stale)
end

-- Writes a value where others find it. Returns what this worker keeps, or nothing and why.
local function store(self, name, value, options, ttl)
  local absent = value == nil
  ttl = ttl or option(self, options, absent and "neg_ttl" or "ttl", absent and DEFAULT_NEG_TTL or DEFAULT_TTL)
  local dict, other = self.dict, self.misses
  if absent then dict, other = other, dict end
  local number, length = native.write(dict, name, value, ttl)
  if not number then
    if length ~= "no memory" then return nil, "could not encode value: " .. length end
    ngx.log(ngx.WARN, "no room in the shared dictionary for a value of the cache ", self.name)
  end
  if other ~= dict then native.remove(other, name) end
  return keep(self, name, options, number, length, value)
end

-- The value that has expired, kept for some time more; nothing if there is none.
local function resurrect(self, name, options)
  local ttl = option(self, options, "resurrect_ttl")
  if not ttl then return false end
  local found, value = look_in(self, self.dict, name, nil, true)
  if not found then return false end
  local _, _, _, _, raw = native.read(self.dict, name)
  if raw == nil or not native.write(self.dict, name, raw, ttl) then return false end
  return true, value
end

-- Has the callback make the value, while no other coroutine of the node does.
local function make(self, name, options, callback, ...)
  local ok, value, message, ttl = pcall(callback, ...)
  if not ok then return nil, "callback threw an error: " .. tostring(value) end
  if message then
    local kept, stale = resurrect(self, name, options)
    if kept then
      ngx.log(ngx.WARN, "callback returned an error (", tostring(message), "), a value that has expired is used")
      return stale, nil, 4
    end
    return nil, tostring(message)
  end
  if type(ttl) ~= "number" then ttl = nil end
  if ttl and ttl < 0 then return value, nil, 3 end
  local kept, failure = store(self, name, value, options, ttl)
  if failure then return nil, failure end
  return kept, nil, 3
end

local function locked(self, name, options)
  local lock, message = locks:new(self.lock_dict, option(self, options, "resty_lock_opts"))
  if not lock then return nil, "could not create lock: " .. message end
  local waited
  waited, message = lock:lock("lua-resty-mlcache:lock:" .. name)
  if not waited then return nil, "could not acquire callback lock: " .. message end
  return lock
end

local function released(lock, ...)
  lock:unlock()
  return ...
end

-- The value, an error, and where it came from: 1 this worker, 2 the dictionary, 3 the callback, 4 a value that has expired.
function Cache:get(key, options, callback, ...)
  if type(key) ~= "string" then error("key must be a string", 2) end
  check(options)
  if callback ~= nil and type(callback) ~= "function" then error("callback must be a function", 0) end
  local name = self.name .. key
  local found, value, message, level = look(self, name, options)
  if found then
    if message then return nil, message end
    return value, nil, level
  end
  if not callback then return nil end
  local lock
  lock, message = locked(self, name, options)
  if not lock then
    local kept, stale = resurrect(self, name, options)
    if kept then return stale, nil, 4 end
    return nil, message
  end
  -- Another coroutine may have made it meanwhile.
  found, value, message = look(self, name, options)
  if found then
    lock:unlock()
    if message then return nil, message end
    return value, nil, 2
  end
  return released(lock, make(self, name, options, callback, ...))
end

-- Makes the value anew. Returns it, an error, and the seconds that it is kept.
function Cache:renew(key, options, callback, ...)
  if type(key) ~= "string" then error("key must be a string", 2) end
  check(options)
  if type(callback) ~= "function" then error("callback must be a function", 0) end
  local name = self.name .. key
  local lock, message = locked(self, name, options)
  if not lock then return nil, message end
  local value, failure = released(lock, make(self, name, options, callback, ...))
  if failure then return nil, failure end
  return value, nil, (self:peek(key))
end

-- `bulk` has a key, options, a callback and its argument for each of `n` values.
function Cache:get_bulk(bulk, options)
  if type(bulk) ~= "table" then error("bulk must be a table", 2) end
  if type(bulk.n) ~= "number" then error("bulk must have n field", 2) end
  check(options)
  local result = { n = bulk.n * 3 }
  for i = 0, bulk.n - 1 do
    local at, to = i * 4, i * 3
    local own = bulk[at + 2] or options
    result[to + 1], result[to + 2], result[to + 3] = self:get(bulk[at + 1], own, bulk[at + 3], bulk[at + 4])
  end
  return result
end

-- The seconds that are left, an error, the value, and whether it has expired.
function Cache:peek(key, stale)
  if type(key) ~= "string" then error("key must be a string", 2) end
  local found, value, message, _, left, expired = look(self, self.name .. key, nil, stale)
  if message then return nil, message end
  if found then return left, nil, value, expired or nil end
end

function Cache:set(key, options, value)
  if type(key) ~= "string" then error("key must be a string", 2) end
  check(options)
  local _, message = store(self, self.name .. key, value, options)
  if message then return nil, message end
  return true
end

-- The same, without making room for it.
function Cache:safe_set(key, value)
  local name = self.name .. key
  local ttl = option(self, nil, "ttl", DEFAULT_TTL)
  local number, message = native.write(self.dict, name, value, ttl, true)
  if not number then return nil, message end
  return true
end

function Cache:delete(key)
  if type(key) ~= "string" then error("key must be a string", 2) end
  local name = self.name .. key
  native.remove(self.dict, name)
  native.remove(self.misses, name)
  self.near:delete(name)
  return true
end

function Cache:purge()
  native.purge(self.dict, self.name)
  native.purge(self.misses, self.name)
  self.near:flush_all()
  return true
end

-- Each value that is read is compared with the dictionary's, so that there is nothing to learn from other workers.
function Cache:update() return true end

local function new_bulk(count)
  local bulk = { n = 0 }
  function bulk:add(key, options, callback, arg)
    local at = self.n * 4
    self[at + 1], self[at + 2], self[at + 3], self[at + 4] = key, options, callback, arg
    self.n = self.n + 1
  end
  return bulk, count
end

local function each_bulk_res(result)
  if type(result) ~= "table" or type(result.n) ~= "number" then error("res must have res.n field", 2) end
  local at = 0
  return function()
    if at >= result.n / 3 then return nil end
    local from = at * 3
    at = at + 1
    return at, result[from + 1], result[from + 2], result[from + 3]
  end
end

return { _VERSION = "2.6.0", NO_TTL_FLAG = 1, new = new, new_bulk = new_bulk, each_bulk_res = each_bulk_res }
