-- kong.tools.gzip: whole texts.
local zlib = require "zlib"
local GZIP_WINDOW = 31
local _M = {}

function _M.deflate_gzip(text)
  return (zlib.deflate(nil, GZIP_WINDOW)(text, "finish"))
end

function _M.inflate_gzip(text)
  local ok, plain, ended = pcall(zlib.inflate(), text)
  if not ok then return nil, plain end
  if not ended then return nil, "unexpected end of the compressed data" end
  return plain
end

return _M
