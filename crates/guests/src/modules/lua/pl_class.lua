-- pl.class: classes with a base, a constructor `_init`, and `is_a`.
local function is_a(self, class)
  local own = getmetatable(self)
  if class == nil then return own end
  while own do
    if own == class then return true end
    own = rawget(own, "_base")
  end
  return false
end

local function construct(class, ...)
  local object = setmetatable({}, class)
  local init = class._init
  if init then
    if class._base and class._base._init then
      object.super = function(...)
        object.super = nil
        return class._base._init(...)
      end
    end
    local made = init(object, ...)
    object.super = nil
    if made then object = setmetatable(made, class) end
  end
  return object
end

local METAMETHODS = { "__tostring", "__eq", "__lt", "__le", "__call", "__len", "__concat", "__add", "__sub", "__mul" }

local function define(base, name, methods)
  local class = methods or {}
  for _, event in ipairs(METAMETHODS) do
    if base and class[event] == nil then class[event] = base[event] end
  end
  class.__index, class._base, class._name, class._class = class, base, name, class
  class.is_a = is_a
  class.class_of = function(self, object) return type(object) == "table" and is_a(object, self) end
  return setmetatable(class, { __index = base, __call = construct })
end

-- class(Base), class({ methods }), class.Name(Base)
local function make(name)
  return function(first, second)
    if type(first) == "table" and rawget(first, "_class") == nil then
      return define(rawget(first, "_base"), name, first)
    end
    return define(first, name, second)
  end
end

local anonymous = make()
return setmetatable({}, {
  __call = function(_, ...) return anonymous(...) end,
  __index = function(_, name) return make(name) end,
})
