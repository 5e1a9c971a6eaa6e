local typedefs = require "kong.db.schema.typedefs"

return {
  name = "profile-cache",
  fields = { { config = { type = "record", fields = { { url = typedefs.url { required = true } } } } } },
}
