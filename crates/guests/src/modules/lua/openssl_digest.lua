-- resty.openssl.digest, .hmac and .mac: digests and codes in parts.
local name, native = ...
local kind = name:match("[^.]+$")

local Digest = {}
Digest.__index = Digest

function Digest:update(...)
  for _, part in ipairs({ ... }) do self.parts[#self.parts + 1] = part end
  return true
end

function Digest:final(last)
  return self.finish(table.concat(self.parts) .. (last or ""))
end

function Digest:reset()
  self.parts = {}
  return true
end

local function make(algorithm, finish)
  if not finish("") then
    return nil, ("%s.new: invalid digest type \"%s\""):format(kind, tostring(algorithm))
  end
  return setmetatable({ parts = {}, algorithm = algorithm, finish = finish }, Digest)
end

local makers = {}

function makers.digest(algorithm)
  algorithm = algorithm or "sha1"
  return make(algorithm, function(data) return native.digest(algorithm, data) end)
end

function makers.hmac(key, algorithm)
  algorithm = algorithm or "sha1"
  return make(algorithm, function(data) return native.hmac(algorithm, key, data) end)
end

function makers.mac(key, code, _, algorithm)
  if tostring(code):upper() ~= "HMAC" then
    return nil, ("mac.new: invalid mac type \"%s\""):format(tostring(code))
  end
  return makers.hmac(key, algorithm)
end

return {
  new = makers[kind],
  istype = function(value) return type(value) == "table" and getmetatable(value) == Digest end,
}
