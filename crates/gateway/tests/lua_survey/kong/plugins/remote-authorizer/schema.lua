local typedefs = require "kong.db.schema.typedefs"

return {
  name = "remote-authorizer",
  fields = {
    { config = {
        type = "record",
        fields = {
          { url = typedefs.url { required = true } },
          { timeout = typedefs.timeout { default = 10000 } },
          { copy = { type = "array", elements = typedefs.header_name, default = { "X-Role" } } },
        },
      },
    },
  },
}
