local typedefs = require "kong.db.schema.typedefs"

return {
  name = "maintenance",
  fields = {
    { consumer = typedefs.no_consumer },
    { config = {
        type = "record",
        fields = {
          { allow = { type = "set", elements = typedefs.ip_or_cidr, default = {} } },
          { retry_after = { type = "integer", gt = 0, default = 60 } },
          { message = { type = "string", default = "Back soon" } },
          { bypass_header = typedefs.header_name { default = "x-bypass" } },
          { bypass_secret = { type = "string", encrypted = true, referenceable = true } },
        },
      },
    },
  },
}
