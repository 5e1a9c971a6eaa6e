return {
  name = "cached-introspection",
  fields = {
    { config = {
        type = "record",
        fields = {
          { endpoint = { type = "string", required = true } },
          { ttl = { type = "number", default = 300 } },
          { neg_ttl = { type = "number", default = 30 } },
        },
      },
    },
  },
}
