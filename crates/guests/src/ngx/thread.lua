-- Light threads: coroutines that run while the one that began them waits.
local host, natives = ...
local create, status = coroutine.create, coroutine.status
local error, pairs, select, setmetatable, type, unpack = error, pairs, select, setmetatable, type, unpack
local rawpcall, plain, start, pass_on = host.pcall, host.plain, host.start, host.pass_on
local begin, group, park, ended, kill, changed =
  natives.begin, natives.group, natives.park, natives.ended, natives.kill, natives.changed
-- What is known of each light thread.
local known = setmetatable({}, { __mode = "k" })
local thread = {}

local function settle(state, ok, ...)
  if ok then
    state.results, state.count = { true, ... }, select("#", ...) + 1
  else
    state.results, state.count = { false, (plain((...))) }, 2
  end
  if not state.is_over then
    ended()
  end
end

function thread.spawn(f, ...)
  if type(f) ~= "function" then
    error("bad argument #1 to 'spawn' (function expected, got " .. (f == nil and "no value" or type(f)) .. ")", 2)
  end
  local state = {}
  state.group, state.number = begin()
  local light = create(function(...)
    settle(state, rawpcall(f, ...))
  end)
  known[light] = state
  start(light, ...)
  if status(light) == "suspended" and not park(light, state.number) then
    pass_on()
  end
  return light
end

local function states(...)
  local found = {}
  for i = 1, select("#", ...) do
    local state = known[(select(i, ...))]
    if not state or state.group ~= group() then
      error("attempt to wait on a coroutine that is not a user thread", 3)
    end
    found[i] = state
  end
  return found
end

function thread.wait(...)
  if select("#", ...) == 0 then
    error("at least one coroutine should be specified", 2)
  end
  local waited = states(...)
  while true do
    for _, state in pairs(waited) do
      if state.is_over then
        return nil, "already waited or killed"
      elseif state.results then
        state.is_over = true
        return unpack(state.results, 1, state.count)
      end
    end
    changed()
  end
end

function thread.kill(light)
  local state = known[light]
  if not state or state.group ~= group() then
    return nil, "not user thread"
  elseif state.is_over then
    return nil, "already waited or killed"
  elseif state.results then
    return nil, "already terminated"
  end
  state.is_over = true
  kill(state.number)
  return true
end

return thread
