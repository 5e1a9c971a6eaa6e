-- The globals of code of a configuration: what Kong's sandbox shows, read-only.
-- `load` makes a module of the host whose globals are a table.
local real, kong, ngx, requires, environment, load = ...
local error, setmetatable, pairs, ipairs, type = error, setmetatable, pairs, ipairs, type
local rawset, require, format = rawset, require, string.format

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

local settable = { ctx = true, status = true }
base.kong = protected("kong", kong)
local shown = setmetatable({}, { __index = ngx })
for _, name in ipairs({ "re", "req", "resp", "location" }) do
  shown[name] = protected("ngx." .. name, ngx[name])
end
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

-- Makes modules that no other chunk has, with those that they require. Libraries of Lua, which all have, are protected.
local function modules()
  local loaded, env = {}, setmetatable({}, { __index = real })
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
  local env = { require = requirer() }
  env._G = env
  return setmetatable(env, { __index = base, __metatable = false })
end
