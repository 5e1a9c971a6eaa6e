-- kong.tools.cjson: an instance of its own, which knows arrays from objects.
local cjson = require("cjson.safe").new()
cjson.decode_array_with_array_mt(true)
cjson.encode_sparse_array(nil, nil, 2 ^ 15)
cjson.encode_number_precision(16)

return {
  new = function()
    local instance = require("cjson.safe").new()
    instance.decode_array_with_array_mt(true)
    return instance
  end,
  decode_with_array_mt = cjson.decode,
  encode = cjson.encode,
  array_mt = cjson.array_mt,
  null = cjson.null,
  empty_array = cjson.empty_array,
}
