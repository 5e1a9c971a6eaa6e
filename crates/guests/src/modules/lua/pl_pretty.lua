-- pl.pretty: tables as Lua source.
local _M = {}

local KEYWORDS = {}
for word in ([[and break do else elseif end false for function goto if in local nil not or repeat return then true
  until while]]):gmatch("%a+") do
  KEYWORDS[word] = true
end

local function key_text(key)
  if type(key) == "string" and key:find("^[%a_][%w_]*$") and not KEYWORDS[key] then return key end
  return "[" .. (type(key) == "string" and ("%q"):format(key) or tostring(key)) .. "]"
end

local function order(a, b)
  if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
  return type(a) < type(b)
end

local function write(value, indent, space, open, out)
  if type(value) == "string" then
    out[#out + 1] = ("%q"):format(value)
  elseif type(value) ~= "table" then
    out[#out + 1] = tostring(value)
  elseif open[value] then
    out[#out + 1] = "<cycle>"
  else
    open[value] = true
    local inner, line = indent .. space, space == "" and "" or "\n"
    local keys, count = {}, #value
    for key in pairs(value) do
      if not (type(key) == "number" and key >= 1 and key <= count and key % 1 == 0) then keys[#keys + 1] = key end
    end
    table.sort(keys, order)
    out[#out + 1] = "{" .. line
    local function entry(name, item, last)
      out[#out + 1] = inner .. name
      write(item, inner, space, open, out)
      out[#out + 1] = (last and "" or ",") .. line
    end
    for i = 1, count do entry("", value[i], i == count and #keys == 0) end
    local equals = space == "" and "=" or " = "
    for i, key in ipairs(keys) do entry(key_text(key) .. equals, value[key], i == #keys) end
    out[#out + 1] = indent .. "}"
    open[value] = nil
  end
end

-- A value as source; `space` is the indentation, none for a single line.
function _M.write(value, space)
  local out = {}
  write(value, "", space or "  ", {}, out)
  return table.concat(out)
end

function _M.dump(value) ngx.log(ngx.NOTICE, _M.write(value)) end

-- The table that a text without calls describes.
function _M.read(text)
  if text:find("[^'\"%w_]function[^'\"%w_]") or text:find("%(") then
    return nil, "cannot have functions in table definition"
  end
  local chunk, message = loadstring("return " .. text, "tbl")
  if not chunk then return nil, message end
  local ok, value = pcall(setfenv and setfenv(chunk, {}) or chunk)
  if ok then return value end
  return nil, value
end

-- A number with thousands marked, or as an amount of memory.
function _M.number(value, kind, digits)
  if kind == "T" then
    local text, count = tostring(value), 1
    while count > 0 do text, count = text:gsub("^(-?%d+)(%d%d%d)", "%1,%2") end
    return text
  end
  local step, units = 1000, { "", "K", "M", "B" }
  if kind == "M" then step, units = 1024, { "B", "KiB", "MiB", "GiB" } end
  local unit = 1
  while value >= step and unit < #units do value, unit = value / step, unit + 1 end
  if unit == 1 then return tostring(value) .. units[1] end
  return ("%." .. (digits or 1) .. "f%s"):format(value, units[unit])
end

return _M
