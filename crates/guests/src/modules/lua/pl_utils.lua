-- pl.utils: what other modules of Penlight share.
local _M = { _VERSION = "1.14.0", pack = function(...) return { n = select("#", ...), ... } end }

function _M.unpack(t, first, last) return unpack(t, first or 1, last or t.n or #t) end

function _M.split(text, pattern, plain, limit)
  local parts, at = {}, 1
  if not pattern then
    pattern, text = "%s+", text:match("^%s*(.-)$")
  end
  if text == "" then return parts end
  if pattern == "" then return { text } end
  while not limit or #parts + 1 < limit do
    local from, to = text:find(pattern, at, plain)
    if not from or to < from then break end
    parts[#parts + 1] = text:sub(at, from - 1)
    at = to + 1
  end
  local rest = text:sub(at)
  if rest ~= "" or #parts == 0 then parts[#parts + 1] = rest end
  return parts
end

function _M.splitv(text, pattern, plain, limit) return unpack(_M.split(text, pattern, plain, limit)) end

function _M.escape(text) return (text:gsub("[%-%.%+%[%]%(%)%$%^%%%?%*]", "%%%0")) end

function _M.is_type(value, kind)
  if type(kind) == "string" then return type(value) == kind end
  return getmetatable(value) == kind
end

function _M.choose(condition, a, b)
  if condition then return a end
  return b
end

function _M.function_arg(position, f, message)
  local mt = getmetatable(f)
  if type(f) == "function" or mt and mt.__call then return f end
  error(message or ("argument %d: must be callable"):format(position), 2)
end

function _M.assert_arg(position, value, kind, verify, message, level)
  if type(value) ~= kind then
    error(("argument %d expected a '%s', got a '%s'"):format(position, kind, type(value)), level or 2)
  end
  if verify and not verify(value) then
    error(("argument %d: '%s' %s"):format(position, tostring(value), message), level or 2)
  end
  return value
end

function _M.assert_string(position, value) return _M.assert_arg(position, value, "string", nil, nil, 3) end

function _M.fprintf(file, format, ...) return file:write(format:format(...)) end

function _M.memoize(f)
  local results = {}
  return function(key)
    if results[key] == nil then results[key] = f(key) end
    return results[key]
  end
end

function _M.bind1(f, first) return function(...) return f(first, ...) end end

function _M.readfile(path, binary)
  local file, message = io.open(path, binary and "rb" or "r")
  if not file then return nil, message end
  local text = file:read("*a")
  file:close()
  return text
end

function _M.writefile(path, text, binary)
  local file, message = io.open(path, binary and "wb" or "w")
  if not file then return nil, message end
  file:write(text)
  file:close()
  return true
end

return _M
