-- inspect: values as text that people read.
local math, rawget, string, table, tostring, type = math, rawget, string, table, tostring, type
local inspect = {
  _VERSION = "inspect.lua 3.1.0",
  KEY = setmetatable({}, { __tostring = function() return "inspect.KEY" end }),
  METATABLE = setmetatable({}, { __tostring = function() return "inspect.METATABLE" end }),
}

local ESCAPES = { ["\a"] = "\\a", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
  ["\v"] = "\\v" }
for code = 0, 31 do
  local c = string.char(code)
  ESCAPES[c] = ESCAPES[c] or ("\\" .. code)
end
ESCAPES["\127"] = "\\127"

local KEYWORDS = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while"):gmatch("%a+") do
  KEYWORDS[word] = true
end

local function quoted(text)
  local quote = text:find('"', 1, true) and not text:find("'", 1, true) and "'" or '"'
  text = text:gsub("\\", "\\\\"):gsub("[%c\127]", ESCAPES)
  return quote .. (quote == '"' and text:gsub('"', '\\"') or text) .. quote
end

local function is_name(key)
  return type(key) == "string" and key:match("^[_%a][_%a%d]*$") and not KEYWORDS[key]
end

local ORDER = { number = 1, boolean = 2, string = 3, table = 4, ["function"] = 5, userdata = 6, thread = 7 }

local function before(a, b)
  local one, other = type(a), type(b)
  if one == other and (one == "string" or one == "number") then
    return a < b
  end
  local first, second = ORDER[one] or 100, ORDER[other] or 100
  return first == second and one < other or first < second
end

local function length_of(value)
  local length = 0
  while rawget(value, length + 1) ~= nil do
    length = length + 1
  end
  return length
end

local function other_keys(value, length)
  local keys = {}
  for key in next, value do
    if not (type(key) == "number" and key >= 1 and key <= length and math.floor(key) == key) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, before)
  return keys
end

-- How often each table occurs.
local function count(value, seen)
  if type(value) ~= "table" then
    return
  elseif seen[value] then
    seen[value] = seen[value] + 1
    return
  end
  seen[value] = 1
  for key, item in next, value do
    count(key, seen)
    count(item, seen)
  end
  count(getmetatable(value), seen)
end

local function processed(process, item, path, done)
  if item == nil then
    return nil
  elseif done[item] then
    return done[item]
  end
  local made = process(item, path)
  if type(made) ~= "table" then
    return made
  end
  local copy = {}
  done[item] = copy
  local function below(key)
    local longer = {}
    for i = 1, #path do longer[i] = path[i] end
    longer[#longer + 1] = key
    return longer
  end
  for key, value in next, made do
    local shown = processed(process, key, below(key), done)
    if shown ~= nil then
      copy[shown] = processed(process, value, below(shown), done)
    end
  end
  local meta = processed(process, getmetatable(made), below(inspect.METATABLE), done)
  return setmetatable(copy, type(meta) == "table" and meta or nil)
end

local Writer = {}
Writer.__index = Writer

function Writer:put(text)
  self.out[#self.out + 1] = text
end

function Writer:line()
  self:put(self.newline .. self.indent:rep(self.level))
end

function Writer:id(value)
  if not self.ids[value] then
    local kind = type(value)
    self.numbers[kind] = (self.numbers[kind] or 0) + 1
    self.ids[value] = self.numbers[kind]
  end
  return tostring(self.ids[value])
end

function Writer:table(value)
  if self.ids[value] then
    return self:put("<table " .. self:id(value) .. ">")
  elseif self.level >= self.depth then
    return self:put("{...}")
  elseif (self.seen[value] or 0) > 1 then
    self:put("<" .. self:id(value) .. ">")
  end
  local length = length_of(value)
  local keys, meta = other_keys(value, length), getmetatable(value)
  self:put("{")
  self.level = self.level + 1
  for i = 1, length + #keys do
    self:put(i > 1 and "," or "")
    if i <= length then
      self:put(" ")
      self:value(value[i])
    else
      local key = keys[i - length]
      self:line()
      if is_name(key) then
        self:put(key)
      else
        self:put("[")
        self:value(key)
        self:put("]")
      end
      self:put(" = ")
      self:value(value[key])
    end
  end
  if type(meta) == "table" then
    self:put(length + #keys > 0 and "," or "")
    self:line()
    self:put("<metatable> = ")
    self:value(meta)
  end
  self.level = self.level - 1
  if #keys > 0 or type(meta) == "table" then
    self:line()
  elseif length > 0 then
    self:put(" ")
  end
  self:put("}")
end

function Writer:value(value)
  local kind = type(value)
  if kind == "string" then
    self:put(quoted(value))
  elseif kind == "number" or kind == "boolean" or kind == "nil" or kind == "cdata" then
    self:put(tostring(value))
  elseif kind == "table" then
    self:table(value)
  else
    self:put("<" .. kind .. " " .. self:id(value) .. ">")
  end
end

function inspect.inspect(value, options)
  options = options or {}
  if options.process then
    value = processed(options.process, value, {}, {})
  end
  local writer = setmetatable({
    depth = options.depth or math.huge,
    newline = options.newline or "\n",
    indent = options.indent or "  ",
    level = 0,
    out = {},
    ids = {},
    numbers = {},
    seen = {},
  }, Writer)
  count(value, writer.seen)
  writer:value(value)
  return table.concat(writer.out)
end

return setmetatable(inspect, {
  __call = function(_, value, options)
    return inspect.inspect(value, options)
  end,
})
