-- kong.cache: what plugins keep for all workers of the node. `make` returns the modules that it is made of, `tell_others` has other
-- nodes forget a key.
local name, make, tell_others = ...
local error, type, pairs = error, type, pairs
local FAILURES = {
  get = "failed to get from node cache: ",
  renew = "failed to renew key in node cache: ",
  get_bulk = "failed to get_bulk from node cache: ",
  probe = "failed to probe from node cache: ",
}

local cache

-- The cache, made at its first use.
local function own()
  if not cache then
    local message
    cache, message = make("resty.mlcache").new(name, "kong_db_cache", {
      shm_miss = "kong_db_cache_miss",
      shm_locks = "kong_locks",
      lru_size = 1000,
      ttl = 0,
      neg_ttl = 0,
      resurrect_ttl = 30,
    })
    if not cache then error("failed to instantiate mlcache: " .. message) end
  end
  return cache
end

local function check(key)
  if type(key) ~= "string" then error("key must be a string", 3) end
end

local function result(what, value, message, level)
  if message then return nil, FAILURES[what] .. message end
  return value, nil, level
end

local Cache = {}

function Cache.get(_, key, options, callback, ...)
  check(key)
  return result("get", own():get(key, options, callback, ...))
end

function Cache.renew(_, key, options, callback, ...)
  check(key)
  return result("renew", own():renew(key, options, callback, ...))
end

function Cache.get_bulk(_, bulk, options)
  if type(bulk) ~= "table" then error("bulk must be a table", 2) end
  if options ~= nil and type(options) ~= "table" then error("opts must be a table", 2) end
  return result("get_bulk", own():get_bulk(bulk, options))
end

function Cache.probe(_, key)
  check(key)
  local left, message, value = own():peek(key)
  if message then return nil, FAILURES.probe .. message end
  return left, nil, value
end

function Cache.safe_set(_, key, value)
  check(key)
  return own():safe_set(key, value)
end

function Cache.invalidate_local(_, key)
  check(key)
  own():delete(key)
end

function Cache.invalidate(_, key)
  check(key)
  own():delete(key)
  tell_others(key)
end

function Cache.purge()
  own():purge()
end

-- A table whose methods nobody replaces.
local methods = {}
for method, f in pairs(Cache) do
  methods[method] = f
end
return setmetatable({}, {
  __index = methods,
  __newindex = function() error("kong.cache is read-only", 2) end,
  __metatable = false,
})
