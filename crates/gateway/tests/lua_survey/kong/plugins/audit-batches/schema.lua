local typedefs = require "kong.db.schema.typedefs"

return {
  name = "audit-batches",
  fields = {
    { config = {
        type = "record",
        fields = {
          { url = typedefs.url { required = true } },
          { queue = typedefs.queue },
        },
      },
    },
  },
}
