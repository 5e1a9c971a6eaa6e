-- pl.List: arrays with methods.
local List = {}
List.__index = List
List._name = "List"

local function wrap(t) return setmetatable(t or {}, List) end

function List.new(items)
  local list = wrap()
  if type(items) == "function" then
    for item in items do list[#list + 1] = item end
  else
    for i, item in ipairs(items or {}) do list[i] = item end
  end
  return list
end

function List.split(text, separator) return require("pl.stringx").split(text, separator) end
function List.range(first, last, step) return require("pl.tablex").range(first, last, step) end

function List:clone() return List.new(self) end
function List:append(item) self[#self + 1] = item return self end
List.push = List.append
function List:extend(items) for i = 1, #items do self[#self + 1] = items[i] end return self end
function List:insert(position, item) table.insert(self, position, item) return self end
function List:put(item) return self:insert(1, item) end
function List:remove(position) table.remove(self, position) return self end
function List:pop(position) return table.remove(self, position) end
function List:len() return #self end
function List:sort(by) table.sort(self, by) return self end
function List:sorted(by) return self:clone():sort(by) end
function List:join(separator) return self:map(tostring):concat(separator or "") end
function List:concat(separator) return table.concat(self, separator or "") end
function List:slice(first, last) return require("pl.tablex").sub(self, first, last or -1) end
function List:index(item, from) return require("pl.tablex").find(self, item, from) end
function List:contains(item) return self:index(item) ~= nil end
function List:filter(predicate, argument) return require("pl.tablex").filter(self, predicate, argument) end
function List:map(f, ...) return require("pl.tablex").imap(f, self, ...) end
function List:reduce(f, start) return require("pl.tablex").reduce(f, self, start) end
function List:foreach(f, ...) for i = 1, #self do f(self[i], ...) end end
function List:iter() local i = 0 return function() i = i + 1 return self[i] end end
function List:clear() for i = #self, 1, -1 do self[i] = nil end return self end

function List:remove_value(item)
  for i = 1, #self do
    if self[i] == item then
      table.remove(self, i)
      break
    end
  end
  return self
end

function List:count(item)
  local count = 0
  for i = 1, #self do
    if self[i] == item then count = count + 1 end
  end
  return count
end

function List:reverse()
  local count = #self
  for i = 1, math.floor(count / 2) do
    self[i], self[count - i + 1] = self[count - i + 1], self[i]
  end
  return self
end

function List.__concat(a, b) return a:clone():extend(b) end

function List.__eq(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

function List:__tostring() return "{" .. self:map(tostring):concat(",") .. "}" end

return setmetatable(List, { __call = function(_, items) return List.new(items) end })
