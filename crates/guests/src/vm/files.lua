-- What is left of `io`. `refusal` says why a path is not opened.
local refusal = ...
local error, open, lines = error, io.open, io.lines

function io.open(path, ...)
  local reason = refusal(path)
  if reason then
    return nil, path .. ": " .. reason, 13
  end
  return open(path, ...)
end

function io.lines(path, ...)
  local reason = refusal(path)
  if reason then
    error(path .. ": " .. reason, 2)
  end
  return lines(path, ...)
end

-- A read of a terminal or a pipe waits.
io.read, io.input, io.output, io.stdin = nil, nil, nil, nil

-- Nobody gives files a finalizer: no hook ends one.
local meta, methods = getmetatable(io.stdout), {}
for name, member in pairs(meta) do
  if name:sub(1, 2) ~= "__" then
    methods[name] = member
  end
end
meta.__index, meta.__metatable = methods, false
