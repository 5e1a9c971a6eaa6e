-- Semaphores, on which the calls of a worker wait for one another.
local natives = ...
local error, setmetatable, tonumber = error, setmetatable, tonumber
local make, wait, post, count = natives.make, natives.wait, natives.post, natives.count
local semaphore = { version = "0.02" }
local meta = { __index = semaphore }

function semaphore.new(permits)
  permits = tonumber(permits) or 0
  if permits < 0 then
    error("no negative number", 2)
  end
  return setmetatable({ make(permits) }, meta)
end

function semaphore:wait(seconds)
  seconds = tonumber(seconds) or 0
  if seconds < 0 then
    error("time must be greater than or equal to 0", 2)
  end
  return wait(self[1], seconds)
end

function semaphore:post(permits)
  permits = permits == nil and 1 or tonumber(permits)
  if not permits or permits < 1 then
    error("positive number required", 2)
  end
  post(self[1], permits)
  return true
end

function semaphore:count()
  return count(self[1])
end

return semaphore
