-- resty.string: hexadecimal digits and numbers.
local _, native = ...
return {
  _VERSION = "0.15",
  to_hex = native.hex,
  atoi = function(text) return tonumber(text:match("^%s*([+-]?%d+)")) or 0 end,
}
