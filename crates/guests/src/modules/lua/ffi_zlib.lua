-- ffi-zlib, as lua-ffi-zlib has it: `input(size)` gives parts until it returns nothing, `output(part)` gets what comes of them.
local zlib = require "zlib"
local pcall = pcall
local GZIP_WINDOW, SIZE = 31, 16384
local _M = { _VERSION = "0.6.0" }

local function run(stream, input, output, size, last)
  local ended = false
  while true do
    local part = input(size or SIZE)
    if not part or part == "" then break end
    local ok, out, done = pcall(stream, part)
    if not ok then return false, out end
    if out ~= "" then output(out) end
    ended = done
  end
  if last then
    output((stream("", last)))
  elseif not ended then
    return false, "INFLATE: Data error, no input bytes left"
  end
  return true
end

function _M.inflateGzip(input, output, size)
  return run(zlib.inflate(), input, output, size)
end

function _M.deflateGzip(input, output, size, options)
  local level = options and options.level
  return run(zlib.deflate(level, GZIP_WINDOW), input, output, size, "finish")
end

return _M
