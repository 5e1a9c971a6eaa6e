-- resty.lock: locks in a shared dictionary, which all workers of the node see.
local _, native = ...

local Lock = {}
Lock.__index = Lock

local DEFAULTS = { timeout = 5, exptime = 30, step = 0.001, ratio = 2, max_step = 0.5 }

local function new(_, name, options)
  local dict = ngx.shared and ngx.shared[name] and native.dict(name)
  if not dict then return nil, "dictionary not found" end
  options = options or {}
  local lock = { dict = dict }
  for option, default in pairs(DEFAULTS) do
    local value = options[option]
    if value ~= nil and type(value) ~= "number" then error("bad option " .. option .. ": number expected", 2) end
    lock[option] = value or default
  end
  return setmetatable(lock, Lock)
end

-- The seconds that passed, or nothing and why.
function Lock:lock(key)
  if not key then return nil, "nil key" end
  if self.held then return nil, "locked" end
  local held, message = native.hold(self.dict, key, self.exptime)
  local waited, step, left = 0, math.min(self.step, self.max_step), self.timeout
  while not held do
    if message ~= "exists" then return nil, message end
    if left <= 0 then return nil, "timeout" end
    local pause = math.max(math.min(step, left), 0.001)
    ngx.sleep(pause)
    waited, left = waited + pause, left - pause
    step = math.min(step * math.max(self.ratio, 1), self.max_step)
    held, message = native.hold(self.dict, key, self.exptime)
  end
  self.held = held
  return waited
end

function Lock:unlock()
  local held = self.held
  if not held then return nil, "unlocked" end
  self.held = nil
  if not native.release(held) then return nil, "not found" end
  return 1
end

function Lock:expire(time)
  if not self.held then return nil, "unlocked" end
  if not native.extend(self.held, time or self.exptime) then return nil, "not found" end
  return true
end

return { _VERSION = "0.09", new = new }
