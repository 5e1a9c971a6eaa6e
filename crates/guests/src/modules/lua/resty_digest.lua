-- resty.md5, resty.sha1, resty.sha224 … resty.sha512: a digest in parts.
local name, native = ...
local algorithm = name:match("[^.]+$")

local Digest = {}
Digest.__index = Digest

function Digest:reset()
  self.parts = {}
  return true
end

function Digest:update(part, length)
  if type(part) ~= "string" then return false end
  self.parts[#self.parts + 1] = length and part:sub(1, length) or part
  return true
end

function Digest:final()
  return native.digest(algorithm, table.concat(self.parts))
end

return {
  _VERSION = "0.15",
  new = function() return setmetatable({ parts = {} }, Digest) end,
}
