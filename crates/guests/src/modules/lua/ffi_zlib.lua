-- ffi-zlib, as lua-ffi-zlib has it: `input(size)` gives parts until it returns nothing, `output(part)` gets what comes of them.
local zlib = require "zlib"
local pcall, tostring = pcall, tostring
local GZIP_WINDOW, SIZE = 31, 16384
local _M = { _VERSION = "0.6.0" }

-- Passes on what came of a part. Returns why that failed.
local function pass(output, part)
  if part == "" then return nil end
  local ok, err = output(part)
  return ok == nil and err or nil
end

function _M.inflateGzip(input, output, size)
  local stream, ended = zlib.inflate(), false
  while not ended do
    local part = input(size or SIZE)
    if not part or part == "" then return false, "INFLATE: Data error, no input bytes" end
    local ok, out, done = pcall(stream, part)
    if not ok then return false, "INFLATE: " .. tostring(out) end
    local err = pass(output, out)
    if err then return false, "INFLATE: " .. tostring(err) end
    ended = done
  end
  return true
end

function _M.deflateGzip(input, output, size, options)
  local stream = zlib.deflate(options and options.level, GZIP_WINDOW)
  local part
  repeat
    part = input(size or SIZE)
    local is_last = not part or part == ""
    local err = pass(output, (stream(part or "", is_last and "finish" or nil)))
    if err then return false, "DEFLATE: " .. tostring(err) end
  until is_last
  return true
end

return _M
