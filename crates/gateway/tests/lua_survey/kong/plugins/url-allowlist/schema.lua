local typedefs = require "kong.db.schema.typedefs"

return {
  name = "url-allowlist",
  fields = {
    { config = {
        type = "record",
        fields = {
          { hosts = { type = "array", required = true, elements = typedefs.host } },
          { parameter = { type = "string", default = "redirect_uri" } },
        },
      },
    },
  },
}
