-- Runs a snippet and writes its results down.
local show

local function text(value)
  return "'" .. value:gsub("[%c'\\\128-\255]", function(c)
    if c == "\n" then return "\\n" end
    return c:find("[\\']") and "\\" .. c or ("\\x%02x"):format(c:byte())
  end) .. "'"
end

local function key_order(a, b)
  if type(a) == type(b) and (type(a) == "number" or type(a) == "string") then return a < b end
  return tostring(a) < tostring(b)
end

local function fields(value)
  local out, keys = {}, {}
  for i, item in ipairs(value) do out[i] = show(item) end
  local count = #out
  for key in pairs(value) do
    local listed = type(key) == "number" and key >= 1 and key <= count and key % 1 == 0
    if not listed then keys[#keys + 1] = key end
  end
  table.sort(keys, key_order)
  for _, key in ipairs(keys) do
    local name = type(key) == "string" and key or "[" .. show(key) .. "]"
    out[#out + 1] = name .. " = " .. show(value[key])
  end
  return "{" .. table.concat(out, ", ") .. "}"
end

function show(value)
  local kind = type(value)
  if kind == "string" then return text(value) end
  if kind == "table" then return fields(value) end
  if kind == "function" or kind == "thread" then return kind end
  return tostring(value)
end

local function results(ok, ...)
  if not ok then return "error: " .. tostring((...)):match("^[^\n]*") end
  local out = {}
  for i = 1, select("#", ...) do out[i] = show((select(i, ...))) end
  return table.concat(out, ", ")
end

return function(snippet)
  local chunk, message = loadstring("return " .. snippet, "=case")
  if not chunk then chunk, message = loadstring(snippet, "=case") end
  if not chunk then return "syntax: " .. message end
  return results(pcall(chunk))
end
