local typedefs = require "kong.db.schema.typedefs"

return {
  name = "every-type",
  fields = {
    { consumer = typedefs.no_consumer },
    { service = typedefs.no_service },
    { protocols = typedefs.protocols_http },
    { config = {
        type = "record",
        fields = {
          { host = typedefs.host { default = "localhost" } },
          { port = typedefs.port { default = 6379 } },
          { mode = { type = "string", one_of = { "a", "b" }, default = "a" } },
          { secret = { type = "string" } },
          { name = { type = "string", not_match = "%s", len_max = 8 } },
          { ratio = { type = "number", between = { 0, 1 }, default = 0.5 } },
          { ids = { type = "set", elements = typedefs.uuid { auto = false } } },
          { nested = { type = "record", required = true, fields = {
              { deep = { type = "array", elements = { type = "map", keys = { type = "string" }, values = { type = "integer" } } } },
              { flag = { type = "boolean", default = true } },
          } } },
        },
        shorthand_fields = {
          { server = { type = "string", func = function(value)
              local host, port = value:match("^(.-):(%d+)$")
              return { host = host, port = tonumber(port) }
            end } },
        },
        entity_checks = {
          { conditional = { if_field = "mode", if_match = { eq = "b" }, then_field = "secret", then_match = { required = true } } },
          { custom_entity_check = { field_sources = { "name", "ratio" }, fn = function(entity)
              if entity.name == "half" and entity.ratio ~= 0.5 then
                return nil, "half must have a ratio of 0.5"
              end
              return true
            end } },
        },
      },
    },
  },
}
