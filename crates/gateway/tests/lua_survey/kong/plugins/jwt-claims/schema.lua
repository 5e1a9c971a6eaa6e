local typedefs = require "kong.db.schema.typedefs"

return {
  name = "jwt-claims",
  fields = {
    { protocols = typedefs.protocols_http },
    { config = {
        type = "record",
        fields = {
          { secret = { type = "string", required = true, encrypted = true, referenceable = true } },
          { claims = { type = "map", keys = { type = "string" }, values = typedefs.header_name, default = { sub = "X-Subject" } } },
          { leeway = { type = "number", default = 0 } },
        },
      },
    },
  },
}
