local typedefs = require "kong.db.schema.typedefs"

return {
  name = "own-auth",
  fields = {
    { consumer = typedefs.no_consumer },
    { config = {
        type = "record",
        fields = {
          { tokens = {
              type = "array",
              required = true,
              elements = {
                type = "record",
                fields = {
                  { token = { type = "string", required = true, encrypted = true } },
                  { username = { type = "string", required = true } },
                },
              },
            },
          },
          { realm = { type = "string", default = "own" } },
        },
      },
    },
  },
}
