-- What is left of `io`. `refusal` says why a path is not opened, `take_bytes` takes steps for what is written.
local refusal, take_bytes = ...
local error, open, lines, select, stdout, type = error, io.open, io.lines, select, io.stdout, type

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

local write = methods.write
function methods.write(file, ...)
  local bytes = 0
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "string" then
      bytes = bytes + #value
    end
  end
  take_bytes(bytes)
  return write(file, ...)
end

function io.write(...)
  return methods.write(stdout, ...)
end
