-- resty.openssl.rand: random bytes.
local _, native = ...
return {
  bytes = function(length)
    if type(length) ~= "number" then return nil, "rand.bytes: expect a number at #1" end
    return native.random(length)
  end,
}
