-- kong.tools.rand: random bytes and texts.
local random = require "resty.random"
return {
  get_rand_bytes = function(length) return random.bytes(length) end,
  random_string = function() return random.token(32) end,
}
