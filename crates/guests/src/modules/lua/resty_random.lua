-- resty.random: random bytes. All of them are fit for keys.
local _, native = ...
local _M = { _VERSION = "0.15", bytes = function(length) return native.random(length) end }

local ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

function _M.token(length, alphabet)
  alphabet = alphabet or ALPHABET
  return (native.random(length):gsub(".", function(byte)
    local index = byte:byte() % #alphabet + 1
    return alphabet:sub(index, index)
  end))
end

function _M.number(low, high)
  local a, b, c, d = native.random(4):byte(1, 4)
  return low + (((a * 256 + b) * 256 + c) * 256 + d) % (high - low + 1)
end

return _M
