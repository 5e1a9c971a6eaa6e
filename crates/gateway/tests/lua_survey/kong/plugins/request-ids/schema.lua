return {
  name = "request-ids",
  fields = {
    { config = {
        type = "record",
        fields = {
          { header = { type = "string", default = "X-Trace" } },
          { generator = { type = "string", one_of = { "uuid", "counter" }, default = "uuid" } },
          { echo = { type = "boolean", default = true } },
        },
      },
    },
  },
}
