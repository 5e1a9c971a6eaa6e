-- Queues of entries that a handler gets in batches, beside requests.
local assert, coroutine, error, ipairs, pairs, pcall, tonumber, tostring, type =
  assert, coroutine, error, ipairs, pairs, pcall, tonumber, tostring, type
local floor, huge, min = math.floor, math.huge, math.min
local format = string.format
local queue = {}
local queues = {}

local DEFAULTS = {
  max_batch_size = 1,
  max_coalescing_delay = 1,
  max_entries = 10000,
  max_retry_time = 60,
  initial_retry_delay = 0.01,
  max_retry_delay = 60,
  concurrency_limit = 1,
}
-- How often a queue that waits looks whether the node is about to exit, and how long it then waits at most.
local GLANCE, LAST_DELAY = 0.1, 0.5
-- How much of a queue is in use when it warns.
local WARNING = 0.8

local function is_ending()
  return ngx.worker.exiting()
end

local function say(level, of, message, ...)
  local tag = of.settings.log_tag
  kong.log[level](format("[%s] queue %s: ", tag or "queue", of.settings.name) .. format(message, ...))
end

-- Waits until `is_over` says so, for at most this long; less if the node is about to exit.
local function wait(seconds, is_over)
  local deadline, is_cut = ngx.now() + seconds, false
  while not (is_over and is_over()) do
    local left = deadline - ngx.now()
    if is_ending() and not is_cut then
      left = min(left, is_over and 0 or LAST_DELAY)
      deadline, is_cut = ngx.now() + left, true
    end
    if left <= 0 then
      return
    end
    ngx.sleep(min(left, GLANCE))
  end
end

local function size_of(entry)
  return type(entry) == "string" and #entry or 0
end

local function count(of)
  return of.last - of.first + 1
end

local function take_oldest(of)
  local entry = of.entries[of.first]
  of.entries[of.first] = nil
  of.first, of.bytes = of.first + 1, of.bytes - size_of(entry)
  return entry
end

local function take_batch(of)
  local batch = {}
  for i = 1, min(count(of), of.settings.max_batch_size) do
    batch[i] = take_oldest(of)
  end
  return batch
end

-- Hands a batch over, again and again until the handler takes it or `max_retry_time` is over.
local function deliver(of, batch)
  local settings, begun, tries = of.settings, ngx.now(), 0
  while true do
    local ran, done, err = pcall(of.handler, of.handler_conf, batch)
    if ran and done then
      of.is_full = false
      return
    end
    err = tostring(not ran and done or err)
    if ngx.now() - begun >= settings.max_retry_time then
      say("err", of, "could not send entries due to max_retry_time exceeded. %d queue entries were lost (%s)", #batch, err)
      return
    end
    say("warn", of, "handler could not process entries: %s", err)
    wait(min(settings.max_retry_delay, settings.initial_retry_delay * 2 ^ tries))
    tries = tries + 1
  end
end

local function serve(_, of)
  of.server = coroutine.running()
  while count(of) > 0 do
    wait(of.settings.max_coalescing_delay, function()
      return count(of) >= of.settings.max_batch_size
    end)
    of.batch = take_batch(of)
    if of.settings.concurrency_limit == -1 then
      local batch = of.batch
      ngx.timer.at(0, function()
        deliver(of, batch)
      end)
    else
      deliver(of, of.batch)
    end
    of.batch = nil
  end
  of.server, queues[of.settings.name] = nil, nil
end

local function begin(of)
  local ok, err = ngx.timer.at(0, serve, of)
  if not ok then
    queues[of.settings.name] = nil
  end
  return ok and true or nil, err
end

-- A handler that took too much time has ended what serves the queue. Its batch is lost.
local function revive(of)
  if of.server and coroutine.status(of.server) == "dead" then
    say("err", of, "the handler was ended. %d queue entries were lost", of.batch and #of.batch or 0)
    of.server, of.batch = nil, nil
    return begin(of)
  end
  return true
end

local function settings_of(given)
  local settings = {}
  for name, default in pairs(DEFAULTS) do
    settings[name] = default
  end
  for name, value in pairs(given) do
    if value ~= ngx.null then
      settings[name] = value
    end
  end
  for name in pairs(DEFAULTS) do
    if type(settings[name]) ~= "number" then
      error(format("arg #1 (queue_conf) must have a number as %s", name), 3)
    end
  end
  return settings
end

local function make_room(of, entry)
  local settings, dropped, bytes = of.settings, 0, size_of(entry)
  while count(of) > 0 and (count(of) >= settings.max_entries or of.bytes + bytes > (settings.max_bytes or huge)) do
    take_oldest(of)
    dropped = dropped + 1
  end
  if dropped > 0 and not of.is_full then
    of.is_full = true
    say("err", of, "queue full, dropping old entries until processing is successful again")
  end
  local is_nearly_full = count(of) >= settings.max_entries * WARNING
  if is_nearly_full and not of.has_warned then
    say("warn", of, "queue at %d%% capacity", floor(WARNING * 100))
  end
  of.has_warned = is_nearly_full
end

-- Adds an entry. The handler is called with `handler_conf` and a list of entries, and returns true, or false and why not.
function queue.enqueue(settings, handler, handler_conf, entry)
  assert(type(settings) == "table", "arg #1 (queue_conf) must be a table")
  assert(type(handler) == "function", "arg #2 (handler) must be a function")
  assert(handler_conf == nil or type(handler_conf) == "table", "arg #3 (handler_conf) must be a table or nil")
  assert(type(settings.name) == "string", "arg #1 (queue_conf) must include a name")
  if entry == nil then
    return nil, "entry must be a non-nil Lua value"
  end
  settings = settings_of(settings)
  if settings.max_bytes and size_of(entry) > settings.max_bytes then
    return nil, format("string to be queued is longer (%d bytes) than the queue's max_bytes (%d bytes)", #entry, settings.max_bytes)
  end
  local of = queues[settings.name]
  local is_new = not of
  of = of or { entries = {}, first = 1, last = 0, bytes = 0 }
  queues[settings.name] = of
  of.settings, of.handler, of.handler_conf = settings, handler, handler_conf
  make_room(of, entry)
  of.last, of.bytes = of.last + 1, of.bytes + size_of(entry)
  of.entries[of.last] = entry
  if is_new then
    return begin(of)
  end
  return revive(of)
end

function queue.exists(name)
  return queues[name] ~= nil
end

function queue.is_full(settings)
  local of = queues[settings.name]
  return of ~= nil and count(of) >= (tonumber(settings.max_entries) or DEFAULTS.max_entries)
end

function queue.can_enqueue(settings, entry)
  local of = queues[settings.name]
  if not of then
    return true
  end
  local room = (settings.max_bytes or huge) - of.bytes
  return not queue.is_full(settings) and size_of(entry) <= room
end

local function given(value, default)
  return value ~= nil and value ~= ngx.null and value ~= default
end

-- The settings of a plugin's queue, with those of fields from before there was `queue`.
function queue.get_plugin_params(plugin, config, name)
  local settings = {}
  for field, value in pairs(type(config.queue) == "table" and config.queue or {}) do
    settings[field] = value
  end
  for _, legacy in ipairs({
    { config.queue_size, 1, "max_batch_size" },
    { config.flush_timeout, 2, "max_coalescing_delay" },
    { config.batch_span_count, 200, "max_batch_size" },
    { config.batch_flush_delay, 3, "max_coalescing_delay" },
  }) do
    if given(legacy[1], legacy[2]) then
      settings[legacy[3]] = legacy[1]
    end
  end
  settings.name = settings.name or name or kong.plugin.get_id()
  settings.log_tag = settings.log_tag or plugin
  return settings
end

return queue
