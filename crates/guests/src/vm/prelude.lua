-- What Lua code sees of errors and coroutines, so that neither keeps a call that must end from ending.
local host = ...
local error, select, type, unpack = error, select, type, unpack
local rawpcall, rawxpcall = pcall, xpcall
local create, rawresume, yield = coroutine.create, coroutine.resume, coroutine.yield
local isyieldable = coroutine.isyieldable
-- Returns an error as a string where Rust made it. Raises it again where the call must end.
local plain = host.plain
-- What a coroutine yields that asks something of the host: it passes through every coroutine above.
local UP = {}
-- Coroutines that code has a handle of: they are not used again, so that nobody resumes the code of others by it.
local handed_out = setmetatable({}, { __mode = "k" })
host.handed_out = handed_out
-- Tells the host that there are any, so that it need not look before.
local hands_out, any_handed_out = host.hands_out, false
-- Each coroutine that runs inside another takes room on the stack of the thread. LuaJIT does not limit them.
local MAX_DEPTH = 150
local depth = 0

local function settle(ok, ...)
  if ok then
    return true, ...
  end
  return false, plain((...))
end

function pcall(...)
  return settle(rawpcall(...))
end

function xpcall(f, handler, ...)
  local function handle(err)
    return handler(plain(err))
  end
  return settle(rawxpcall(f, handle, ...))
end

local resume

local function pass(thread, ok, ...)
  depth = depth - 1
  if not ok then
    return false, plain((...))
  end
  if select("#", ...) == 1 and (...) == UP then
    return resume(thread, yield(UP))
  end
  return true, ...
end

function resume(thread, ...)
  if depth >= MAX_DEPTH then
    return false, "C stack overflow"
  end
  depth = depth + 1
  return pass(thread, rawresume(thread, ...))
end

coroutine.resume = resume

local function unwrap(ok, ...)
  if ok then
    return ...
  end
  error((...), 0)
end

local running = coroutine.running

function coroutine.running()
  local thread, is_main = running()
  if thread then
    if not any_handed_out then
      hands_out()
      any_handed_out = true
    end
    handed_out[thread] = true
  end
  return thread, is_main
end

function coroutine.wrap(f)
  local thread = create(f)
  return function(...)
    return unwrap(resume(thread, ...))
  end
end

local function finish(ok, ...)
  if not ok then
    error((...), 2)
  end
  return ...
end

local function await(waits, ...)
  if waits then
    return finish(yield(UP))
  end
  return ...
end

-- A function that waits: `begin` starts the operation, whose outcome is returned. What `begin` returns itself follows `false`.
function host.waiting(begin)
  return function(...)
    if not isyieldable() then
      host.check_waiting()
      error("attempt to yield across C-call boundary", 2)
    end
    return await(begin(...))
  end
end

local function started(ok, ...)
  depth = depth - 1
  if not ok then
    error(plain((...)), 0)
  end
end

-- Runs a coroutine until it ends or yields, whatever it yields.
function host.start(thread, ...)
  if depth >= MAX_DEPTH then
    error("C stack overflow", 0)
  end
  depth = depth + 1
  started(rawresume(thread, ...))
end

-- Passes on what a coroutine that was started has asked of the host: the call ends.
function host.pass_on()
  if isyieldable() then
    yield(UP)
  end
  host.unwind()
end

host.pcall = rawpcall

-- A function with its arguments, as one that takes `premature` before them.
function host.bound(f, ...)
  local args, count = { ... }, select("#", ...)
  return function(premature)
    -- A call that was ended may have left the coroutines that it was in.
    depth = 0
    return f(premature, unpack(args, 1, count))
  end
end

-- A function that ends the call if `prepare` says so.
function host.ending(prepare)
  return function(...)
    if prepare(...) then
      if isyieldable() then
        yield(UP)
      end
      host.unwind()
    end
  end
end

-- A function of a header's name: `by_number` gets the number of a name that has one.
function host.named(numbers, by_number, by_name)
  return function(name, value)
    local number = numbers[name]
    if number then
      return by_number(number, value)
    end
    return by_name(name, value)
  end
end

-- A function that calls a method, which is looked up each time.
function host.method(handler, name, conf)
  return function()
    return handler[name](handler, conf)
  end
end

-- Functions that are run one after the other. A chunk that returns a function is that function from then on.
function host.sequence(chunks)
  local run, count = {}, #chunks
  for i = 1, count do
    local chunk = chunks[i]
    run[i] = function()
      local made = chunk()
      if type(made) == "function" then
        run[i] = made
        return made()
      end
      run[i] = chunk
    end
  end
  return function()
    -- A call that was ended may have left the coroutines that it was in.
    depth = 0
    for i = 1, count do
      run[i]()
    end
  end
end
