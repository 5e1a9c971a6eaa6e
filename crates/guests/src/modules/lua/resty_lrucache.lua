-- resty.lrucache: a bounded map that forgets what was used longest ago. Entries form a ring, the newest first.
local Cache = {}
Cache.__index = Cache

local function unlink(entry)
  entry.before.after, entry.after.before = entry.after, entry.before
end

local function link_first(ring, entry)
  entry.before, entry.after = ring, ring.after
  ring.after.before = entry
  ring.after = entry
end

local function new(size)
  if type(size) ~= "number" or size < 1 then return nil, "size too small" end
  local cache = setmetatable({ size = size }, Cache)
  cache:flush_all()
  return cache
end

-- The value and nothing, or nothing and the value that has expired; then its flags.
function Cache:get(key)
  local entry = self.entries[key]
  if not entry then return nil end
  unlink(entry)
  link_first(self.ring, entry)
  if entry.expires and entry.expires <= ngx.now() then return nil, entry.value, entry.flags end
  return entry.value, nil, entry.flags
end

function Cache:set(key, value, ttl, flags)
  local entry = self.entries[key]
  if entry then
    unlink(entry)
  elseif self.used >= self.size then
    entry = self.ring.before
    unlink(entry)
    self.entries[entry.key] = nil
  else
    entry = {}
    self.used = self.used + 1
  end
  entry.key, entry.value, entry.flags = key, value, flags or 0
  entry.expires = ttl and ttl > 0 and ngx.now() + ttl or nil
  self.entries[key] = entry
  link_first(self.ring, entry)
end

function Cache:delete(key)
  local entry = self.entries[key]
  if not entry then return false end
  unlink(entry)
  self.entries[key], self.used = nil, self.used - 1
  return true
end

function Cache:count() return self.used end
function Cache:capacity() return self.size end

function Cache:get_keys(max, result)
  local keys, entry = result or {}, self.ring.after
  while entry ~= self.ring and (not max or max <= 0 or #keys < max) do
    keys[#keys + 1], entry = entry.key, entry.after
  end
  return keys
end

function Cache:flush_all()
  local ring = {}
  ring.before, ring.after = ring, ring
  self.ring, self.entries, self.used = ring, {}, 0
end

return { _VERSION = "0.13", new = new }
