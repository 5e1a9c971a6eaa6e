-- kong.tools.redis.schema: the fields of plugins that name a Redis server.
local typedefs = require("kong.db.schema.typedefs")
local fields = {
  { host = typedefs.host },
  { port = typedefs.port },
  { timeout = typedefs.timeout({ default = 2000 }) },
  { username = { type = "string", referenceable = true } },
  { password = { type = "string", encrypted = true, referenceable = true, len_min = 0 } },
  { database = { type = "integer", default = 0 } },
  { ssl = { type = "boolean", required = false, default = false } },
  { ssl_verify = { type = "boolean", required = false, default = false } },
  { server_name = typedefs.sni({ required = false }) },
}
return {
  config_schema = {
    type = "record",
    fields = fields,
    entity_checks = { { mutually_required = { "host", "port" } } },
  },
}
