local typedefs = require "kong.db.schema.typedefs"

return {
  name = "my-redirect",
  fields = {
    { protocols = typedefs.protocols_http },
    { config = {
      type = "record",
      fields = {
        { status_code = { type = "integer", required = true, default = 301, between = { 200, 599 } } },
        { location = typedefs.url { required = true } },
        { keep_incoming_path = { type = "boolean", required = true, default = false } },
      },
    } },
  },
}
