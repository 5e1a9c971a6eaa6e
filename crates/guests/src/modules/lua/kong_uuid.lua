-- kong.tools.uuid: random identifiers.
local _, native = ...
return {
  uuid = native.uuid,
  generate_v4 = native.uuid,
  is_valid_uuid = function(text) return type(text) == "string" and native.is_uuid(text) end,
}
