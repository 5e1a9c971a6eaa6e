local typedefs = require "kong.db.schema.typedefs"

return {
  name = "method-guard",
  fields = {
    { protocols = typedefs.protocols_http },
    { config = {
        type = "record",
        fields = {
          { allow = { type = "set", required = true, elements = typedefs.http_method, default = { "GET", "HEAD" } } },
          { status = { type = "integer", one_of = { 403, 405 }, default = 405 } },
        },
      },
    },
  },
}
