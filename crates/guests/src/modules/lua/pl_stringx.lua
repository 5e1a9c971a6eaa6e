-- pl.stringx: operations on strings.
local List = require "pl.List"
local _M = {}

local function escape(text)
  return (text:gsub("[%-%.%+%[%]%(%)%$%^%%%?%*]", "%%%0"))
end

-- Characters as a set of a pattern; white space by default.
local function set(chars)
  return chars and "[" .. escape(chars) .. "]" or "%s"
end

function _M.isalpha(s) return s:find("^%a+$") == 1 end
function _M.isdigit(s) return s:find("^%d+$") == 1 end
function _M.isalnum(s) return s:find("^%w+$") == 1 end
function _M.isspace(s) return s:find("^%s+$") == 1 end
function _M.islower(s) return s:find("^[%l%s]+$") == 1 end
function _M.isupper(s) return s:find("^[%u%s]+$") == 1 end

local function any(s, affix, test)
  if type(affix) == "table" then
    for _, one in ipairs(affix) do
      if test(s, one) then return true end
    end
    return false
  end
  return test(s, affix)
end

local function begins(s, prefix) return s:sub(1, #prefix) == prefix end
local function ends(s, suffix) return #s >= #suffix and s:sub(#s - #suffix + 1) == suffix end

function _M.startswith(s, prefix) return any(s, prefix, begins) end
function _M.endswith(s, suffix) return any(s, suffix, ends) end

function _M.join(s, sequence) return table.concat(sequence, s) end

-- The parts of a text between separators: a list. `limit` is the highest number of parts.
function _M.split(s, separator, limit)
  local parts, at = {}, 1
  if separator == "" then return List({ s }) end
  if s == "" then return List() end
  if not separator then
    s = s:match("^%s*(.-)$")
    if s == "" then return List() end
  end
  while not limit or limit < 1 or #parts + 1 < limit do
    local from, to
    if separator then from, to = s:find(separator, at, true) else from, to = s:find("%s+", at) end
    if not from then break end
    parts[#parts + 1] = s:sub(at, from - 1)
    at = to + 1
  end
  local rest = s:sub(at)
  if separator or rest ~= "" then parts[#parts + 1] = rest end
  return List(parts)
end

function _M.splitlines(s, keep_ends)
  local lines = {}
  for line, stop in s:gmatch("([^\r\n]*)(\r?\n?)") do
    if line ~= "" or stop ~= "" then lines[#lines + 1] = keep_ends and line .. stop or line end
  end
  return List(lines)
end

function _M.expandtabs(s, size)
  size = size or 8
  return (s:gsub("([^\t\r\n]*)\t", function(before)
    return before .. (" "):rep(size - #before % size)
  end))
end

function _M.lfind(s, sub, first, last)
  local at, to = s:find(sub, first or 1, true)
  return at and (not last or to <= last) and at or nil
end

function _M.rfind(s, sub, first, last)
  for at = math.min(last or #s, #s) - #sub + 1, first or 1, -1 do
    if s:sub(at, at + #sub - 1) == sub then return at end
  end
  return nil
end

function _M.replace(s, old, new, count)
  return (s:gsub(escape(old), (new:gsub("%%", "%%%%")), count))
end

function _M.count(s, sub, overlap)
  if sub == "" then return #s end
  local count, at = 0, 1
  while true do
    local from, to = s:find(sub, at, true)
    if not from then return count end
    count, at = count + 1, (overlap and from or to) + 1
  end
end

local function pad(s, width, fill)
  return (fill or " "):rep(math.max(width - #s, 0))
end

function _M.ljust(s, width, fill) return s .. pad(s, width, fill) end
function _M.rjust(s, width, fill) return pad(s, width, fill) .. s end
function _M.center(s, width, fill)
  local total = math.max(width - #s, 0)
  local left = math.floor(total / 2)
  return (fill or " "):rep(left) .. s .. (fill or " "):rep(total - left)
end

function _M.lstrip(s, chars) return (s:gsub("^" .. set(chars) .. "+", "")) end
function _M.rstrip(s, chars)
  local class, stop = "^" .. set(chars), #s
  while stop > 0 and s:sub(stop, stop):find(class) do stop = stop - 1 end
  return s:sub(1, stop)
end
function _M.strip(s, chars) return _M.rstrip(_M.lstrip(s, chars), chars) end

-- The parts as results; `pattern` is one.
function _M.splitv(s, pattern) return require("pl.utils").splitv(s, pattern) end

function _M.partition(s, separator)
  local from, to = s:find(separator, 1, true)
  if not from then return s, "", "" end
  return s:sub(1, from - 1), separator, s:sub(to + 1)
end

function _M.rpartition(s, separator)
  local from = _M.rfind(s, separator)
  if not from then return "", "", s end
  return s:sub(1, from - 1), separator, s:sub(from + #separator)
end

function _M.at(s, index) return s:sub(index, index) end

function _M.lines(s) return s:gmatch("([^\n]*)\n?") end

function _M.title(s)
  return (s:gsub("(%S)(%S*)", function(first, rest) return first:upper() .. rest:lower() end))
end
_M.capitalize = _M.title

function _M.shorten(s, width, from_end)
  if #s <= width then return s end
  if width < 3 then return ("..."):sub(1, width) end
  if from_end then return "..." .. s:sub(#s - width + 4) end
  return s:sub(1, width - 3) .. "..."
end

-- Adds all of these to the methods of strings.
function _M.import()
  for name, method in pairs(_M) do
    if name ~= "import" and not string[name] then string[name] = method end
  end
end

return _M
