local typedefs = require "kong.db.schema.typedefs"

return {
  name = "redis-quota",
  fields = {
    { config = {
        type = "record",
        fields = {
          { host = typedefs.redis_host { required = true } },
          { port = typedefs.port { default = 6379 } },
          { database = { type = "integer", between = { 0, 15 }, default = 0 } },
          { timeout = typedefs.timeout { default = 2000 } },
          { limit = { type = "integer", required = true, gt = 0 } },
          { window = { type = "integer", gt = 0, default = 3600 } },
        },
      },
    },
  },
}
