-- The globals of code of a configuration: what Kong's sandbox shows, read-only.
local real, kong, ngx, requires, environment = ...
local error, setmetatable, pairs, ipairs, type = error, setmetatable, pairs, ipairs, type
local require, format = require, string.format

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
base.ngx = setmetatable({}, {
  __index = ngx,
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
function base.require(name)
  if not allowed[name] then
    error(format("require '%s' not allowed within sandbox", name), 2)
  end
  return require(name)
end

-- Names such as `a.b`, as what the globals have there; tables as copies.
for _, path in ipairs(environment) do
  local from, to, last = real, base, nil
  for name in path:gmatch("[^.]+") do
    if last then
      local inner = to[last]
      if type(inner) ~= "table" then
        inner = {}
      end
      local copy = setmetatable({}, { __index = inner, __metatable = false })
      to[last] = copy
      to = copy
    end
    from = type(from) == "table" and from[name] or nil
    last = name
  end
  if last then
    to[last] = type(from) == "table" and setmetatable({}, { __index = from, __metatable = false }) or from
  end
end

-- The globals of one chunk.
return function()
  local env = {}
  env._G = env
  return setmetatable(env, { __index = base, __metatable = false })
end
