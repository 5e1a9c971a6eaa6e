-- ngx.re: splits a text at what an expression matches.
local _M = { version = "0.1.28" }

-- Splits `subject` at each match from `context.pos` on; captures of a match come between the parts. With `max` the
-- last part is the rest, otherwise empty parts at the end are dropped.
function _M.split(subject, regex, options, context, max, result)
  subject, max, result = tostring(subject), max or 0, result or {}
  if type(result) ~= "table" then error("res is not a table", 2) end
  local start = context and context.pos or 1
  local at, count = { pos = start }, 0
  local function add(part)
    count = count + 1
    result[count] = part
  end
  local parts = 1
  while start <= #subject and (max <= 0 or parts < max) do
    local captures, message = ngx.re.match(subject, regex, options, at)
    if message then return nil, message end
    if not captures then break end
    local stop, whole = at.pos - 1, captures[0]
    local from = stop - #whole + 1
    if whole == "" then at.pos = at.pos + 1 end
    if whole ~= "" or from > start then
      if from > #subject and whole == "" then break end
      add(subject:sub(start, from - 1))
      if captures[1] then add(captures[1]) end
      parts, start = parts + 1, stop + 1
    end
  end
  if start <= #subject or (max > 0 and count > 0) then
    add(subject:sub(start))
  end
  while max <= 0 and result[count] == "" do
    result[count] = nil
    count = count - 1
  end
  result[count + 1] = nil
  return result
end

-- Options of PCRE's compiler have no meaning here.
function _M.opt() end

return _M
