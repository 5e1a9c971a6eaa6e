-- kong.worker_events. Handlers get the data, the event, its source, and the worker it is from.
local native = ...
local type, error, tostring, pcall, pairs, ipairs = type, error, tostring, pcall, pairs, ipairs
local MAX_HANDLERS = 1000
local handlers, count, listens = {}, 0, false

local function run(list, data, event, source, worker)
  for _, handler in ipairs(list or {}) do
    local ok, message = pcall(handler, data, event, source, worker)
    if not ok then kong.log.err("event handler failed: ", tostring(message)) end
  end
end

-- Handlers of all events, of all of the source, and of this one.
local function dispatch(source, event, data, worker)
  for _, of in ipairs({ "*", source }) do
    local known = handlers[of]
    run(known and known["*"], data, event, source, worker)
    if of == source then run(known and known[event], data, event, source, worker) end
  end
end

local function checked(name, value)
  if type(value) ~= "string" or value == "" then error(name .. " is required", 3) end
end

local events = {}

function events.register(handler, source, event, ...)
  if type(handler) ~= "function" then error("expected function, got: " .. type(handler), 2) end
  source = source or "*"
  for _, name in ipairs({ event or "*", ... }) do
    if count >= MAX_HANDLERS then error("a worker has at most " .. MAX_HANDLERS .. " event handlers", 2) end
    handlers[source] = handlers[source] or {}
    local list = handlers[source][name] or {}
    handlers[source][name], list[#list + 1], count = list, handler, count + 1
  end
  if not listens then
    native.listen(dispatch)
    listens = true
  end
  return true
end

function events.subscribe(source, event, handler) return events.register(handler, source, event) end

function events.unregister(handler)
  for _, of in pairs(handlers) do
    for _, list in pairs(of) do
      for i = #list, 1, -1 do
        if list[i] == handler then
          table.remove(list, i)
          count = count - 1
        end
      end
    end
  end
  return true
end

function events.post(source, event, data)
  checked("source", source)
  checked("event", event)
  local ok, message = native.send(source, event, data)
  if not ok then return nil, message end
  return true
end

function events.post_local(source, event, data)
  checked("source", source)
  checked("event", event)
  dispatch(source, event, data, ngx.worker.id())
  return true
end

function events.publish(target, source, event, data)
  if target == "current" then return events.post_local(source, event, data) end
  return events.post(source, event, data)
end

function events.poll() return "done" end

return events
