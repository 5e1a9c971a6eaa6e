-- resty.openssl.bn: integers without bound, from one form to another.
local _, native = ...
local _M = {}

local Number = {}
Number.__index = Number

local function make(bytes)
  if not bytes then return nil, "bn: not a number" end
  return setmetatable({ bytes = (bytes:gsub("^%z+", "")) }, Number)
end

function _M.new(number) return make(native.integer_parse(("%d"):format(number or 0), 10)) end
function _M.from_binary(bytes) return make(bytes) end
function _M.from_hex(digits) return make(native.integer_parse(digits, 16)) end
function _M.from_dec(digits) return make(native.integer_parse(digits, 10)) end
function _M.istype(value) return type(value) == "table" and getmetatable(value) == Number end

function Number:to_binary(length)
  return ("\0"):rep(math.max((length or 0) - #self.bytes, 0)) .. self.bytes
end

function Number:to_hex()
  local digits = native.hex(self.bytes):upper()
  return digits == "" and "0" or digits
end

function Number:to_dec() return native.integer_to_decimal(self.bytes) end
function Number:to_number() return tonumber(self:to_dec()) end
function Number:is_zero() return self.bytes == "" end
Number.__tostring = Number.to_dec
function Number.__eq(a, b) return a.bytes == b.bytes end
function Number.__lt(a, b)
  if #a.bytes ~= #b.bytes then return #a.bytes < #b.bytes end
  return a.bytes < b.bytes
end

return _M
