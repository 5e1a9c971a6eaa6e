local typedefs = require "kong.db.schema.typedefs"

return {
  name = "header-injector",
  fields = {
    { consumer = typedefs.no_consumer },
    { protocols = typedefs.protocols_http },
    { config = {
        type = "record",
        fields = {
          { request = { type = "map", keys = typedefs.header_name, values = { type = "string" }, default = {} } },
          { response = { type = "map", keys = typedefs.header_name, values = { type = "string" }, default = {} } },
          { replace = { type = "boolean", required = true, default = true } },
        },
        entity_checks = { { at_least_one_of = { "request", "response" } } },
      },
    },
  },
}
