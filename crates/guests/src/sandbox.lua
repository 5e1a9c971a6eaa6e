-- The globals of code of a configuration: what Kong's sandbox shows, read-only.
-- `load` makes a module of the host whose globals are a table. `hidden` names what it does not see: shared dictionaries (`dicts`),
-- members of `kong`, and of `kong.vault` those that fail. `cache` makes
-- its own `kong.cache`. What is in `kong` and `ngx` is made when code first reads it.
local real, kong, ngx, requires, environment, load, hidden, cache = ...
local error, setmetatable, pairs, ipairs, type = error, setmetatable, pairs, ipairs, type
local getmetatable, rawset, require, format, select = getmetatable, rawset, require, string.format, select

local BASE = "_VERSION assert error ipairs next pairs pcall select tonumber tostring type unpack xpcall"
local MODULES = {
  coroutine = "create resume running status wrap yield",
  math = "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min modf pi pow rad "
    .. "random sin sinh sqrt tan tanh",
  os = "clock date difftime time",
  string = "byte char find format gmatch gsub len lower match rep reverse sub upper",
  table = "concat insert maxn remove sort",
}

local function protected(name, members)
  local function refuse(_, key)
    error(format("Can not modify %s.%s. Protected by the sandbox.", name, key), 2)
  end
  return setmetatable({}, { __index = members, __newindex = refuse, __metatable = false })
end

local base = {}
for name in BASE:gmatch("%S+") do
  base[name] = real[name]
end
for name, members in pairs(MODULES) do
  local chosen = {}
  for member in members:gmatch("%S+") do
    chosen[member] = real[name][member]
  end
  base[name] = protected(name, chosen)
end

-- What is protected takes nothing by `table.insert` either: assignments ask its metatable.
local insert, is_protected = real.table.insert, function(items)
  return type(items) == "table" and getmetatable(items) == false
end

local function insert_by_assigning(items, count, at, value)
  for i = count, at, -1 do
    items[i + 1] = items[i]
  end
  items[at] = value
end

local of_tables = {}
for member in MODULES.table:gmatch("%S+") do
  of_tables[member] = real.table[member]
end
function of_tables.insert(items, ...)
  if not is_protected(items) then
    return insert(items, ...)
  end
  local count, first, second = #items, ...
  if select("#", ...) == 2 and type(first) == "number" then
    return insert_by_assigning(items, count, first, second)
  end
  return insert_by_assigning(items, count, count + 1, first)
end
base.table = protected("table", of_tables)

-- What plugins keep is not for all to see, or to change.
local own = { cache = cache }
function own.vault()
  local vault = { is_reference = kong.vault.is_reference, parse_reference = kong.vault.parse_reference }
  for _, name in ipairs(hidden.vault) do
    vault[name] = function() error(format("kong.vault.%s is not available in the sandbox", name), 2) end
  end
  return protected("kong.vault", vault)
end
function own.tracing() return protected("kong.tracing", kong.tracing) end
local hidden_of_kong = {}
for _, name in ipairs(hidden.kong) do
  hidden_of_kong[name] = true
end
-- What was read once need not be looked up again.
base.kong = protected("kong", setmetatable({}, {
  __index = function(seen, key)
    if hidden_of_kong[key] then
      return nil
    end
    local make = own[key]
    local member
    if make then
      member = make()
    else
      member = kong[key]
    end
    if member ~= nil then
      rawset(seen, key, member)
    end
    return member
  end,
}))

local settable = { ctx = true, status = true }
local of_request = { ctx = true, status = true, headers_sent = true }
local protected_of_ngx = {}
for _, name in ipairs({ "re", "req", "resp", "location", "timer", "thread", "worker", "config" }) do
  protected_of_ngx[name] = true
end

local function visible(all)
  local dicts = {}
  for name, dict in pairs(all) do
    dicts[name] = dict
  end
  for _, name in ipairs(hidden.dicts) do
    dicts[name] = nil
  end
  return protected("ngx.shared", dicts)
end

local shown = setmetatable({}, {
  __index = function(seen, key)
    if key == "socket" then
      return nil
    end
    local member = ngx[key]
    if member == nil or of_request[key] then
      return member
    elseif key == "shared" then
      member = visible(member)
    elseif protected_of_ngx[key] then
      member = protected("ngx." .. key, member)
    end
    rawset(seen, key, member)
    return member
  end,
})
base.ngx = setmetatable({}, {
  __index = shown,
  __metatable = false,
  __newindex = function(_, key, value)
    if not settable[key] then
      error(format("Can not modify ngx.%s. Protected by the sandbox.", key), 2)
    end
    ngx[key] = value
  end,
})

local allowed = {}
for _, name in ipairs(requires) do
  allowed[name] = true
end

-- What modules see as `ngx`: all but the dictionaries that the sandbox does not see.
local function ngx_of_modules()
  return setmetatable({ shared = shown.shared }, {
    __index = ngx,
    __newindex = function(_, key, value)
      ngx[key] = value
    end,
  })
end

-- Makes modules that no other chunk has, with those that they require. Libraries of Lua, which all have, are protected.
local function modules()
  local loaded, env = {}, setmetatable({ ngx = ngx_of_modules(), kong = base.kong }, { __index = real })
  function env.require(name)
    if loaded[name] == nil then
      local module = load(name, env)
      if module == nil then
        module = require(name)
        module = type(module) == "table" and protected(name, module) or module
      end
      loaded[name] = module
    end
    return loaded[name]
  end
  return env.require
end

-- The `require` of one chunk.
local function requirer()
  local own
  return function(name)
    if not allowed[name] then
      error(format("require '%s' not allowed within sandbox", name), 2)
    end
    own = own or modules()
    return own(name)
  end
end

-- Names such as `a.b`, as what the globals have there; tables as copies that take nothing.
for _, path in ipairs(environment) do
  local from, to, last = real, base, nil
  if path == "ngx.socket" or path:find("^ngx%.socket%.") then
    shown.socket, path = protected("ngx.socket", ngx.socket), ""
  end
  for name in path:gmatch("[^.]+") do
    if last then
      local inner = to[last]
      if type(inner) ~= "table" then
        inner = {}
      end
      local copy = protected(last, inner)
      rawset(to, last, copy)
      to = copy
    end
    from = type(from) == "table" and from[name] or nil
    last = name
  end
  if last then
    rawset(to, last, type(from) == "table" and protected(path, from) or from)
  end
end

-- The globals of one chunk.
return function()
  local env = { require = requirer(), kong = base.kong, ngx = base.ngx }
  env._G = env
  return setmetatable(env, { __index = base, __metatable = false })
end
