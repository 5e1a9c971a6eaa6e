-- resty.jit-uuid: random identifiers, and names as identifiers.
local _, native = ...
local _M = { _VERSION = "0.0.7" }

function _M.seed() end

function _M.is_valid(text)
  return type(text) == "string" and native.is_uuid(text)
end

_M.generate_v4 = native.uuid

-- The identifier of a name: a digest of it and of the namespace.
local function named(namespace, name, version, digest)
  local hex = digest(namespace:gsub("-", ""):gsub("%x%x", function(byte)
    return string.char(tonumber(byte, 16))
  end) .. name):gsub(".", function(c)
    return ("%02x"):format(c:byte())
  end)
  local variant = ("%x"):format(tonumber(hex:sub(17, 17), 16) % 4 + 8)
  return table.concat({ hex:sub(1, 8), hex:sub(9, 12), version .. hex:sub(14, 16), variant .. hex:sub(18, 20),
    hex:sub(21, 32) }, "-")
end

local function generator(version, digest)
  return function(namespace, name)
    if type(name) ~= "string" then
      return nil, "bad argument #2: string expected"
    elseif not _M.is_valid(namespace) then
      return nil, "namespace must be a valid UUID"
    end
    return named(namespace, name, version, digest)
  end
end

_M.generate_v3 = generator("3", ngx.md5_bin)
_M.generate_v5 = generator("5", ngx.sha1_bin)

local function factory(generate)
  return function(namespace)
    if not _M.is_valid(namespace) then
      return nil, "namespace must be a valid UUID"
    end
    return function(name)
      return generate(namespace, name)
    end
  end
end

_M.factory_v3, _M.factory_v5 = factory(_M.generate_v3), factory(_M.generate_v5)

return setmetatable(_M, { __call = native.uuid })
