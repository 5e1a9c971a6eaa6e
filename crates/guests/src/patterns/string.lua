-- gmatch and gsub, as far as they call Lua: a callback may yield, and its errors pass as they are.
local scan, strings, replace = ...
local concat, error, sub, type = table.concat, error, string.sub, type

local function gmatch(subject, pattern)
  subject, pattern = strings(subject, pattern)
  local at = 1
  local function advance(from, to, ...)
    if from then
      at = to > from and to or to + 1
      return ...
    elseif from == false then
      error(to, 2)
    end
  end
  return function() return advance(scan(subject, pattern, at, false, false)) end
end

-- The value that takes the place of a match.
local function value_for(subject, replacement, from, to, first, ...)
  local value
  if type(replacement) == "table" then
    value = replacement[first]
  else
    value = replacement(first, ...)
  end
  if not value then return sub(subject, from, to - 1) end
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" then
    error("invalid replacement value (a " .. kind .. ")", 4)
  end
  return value
end

-- Adds what precedes the match and its replacement to `pieces`, and returns where to go on.
local function substitute(pieces, subject, replacement, at, from, to, ...)
  if from == false then error(to, 3) end
  if not from then return end
  local count = #pieces
  pieces[count + 1] = sub(subject, at, from - 1)
  pieces[count + 2] = value_for(subject, replacement, from, to, ...)
  if to > from then return to end
  pieces[count + 3] = sub(subject, from, from)
  return from + 1
end

local function gsub(subject, pattern, replacement, limit)
  local kind = type(replacement)
  if kind ~= "table" and kind ~= "function" then return replace(subject, pattern, replacement, limit) end
  subject, pattern, limit = strings(subject, pattern, limit)
  local anchored = sub(pattern, 1, 1) == "^"
  local pieces, count, at = {}, 0, 1
  while count < limit and at <= #subject + 1 do
    local next = substitute(pieces, subject, replacement, at, scan(subject, pattern, at, anchored, kind == "table"))
    if not next then break end
    count, at = count + 1, next
    if anchored then break end
  end
  pieces[#pieces + 1] = sub(subject, at)
  return concat(pieces), count
end

return gmatch, gsub
