return {
  name = "consumer-headers",
  fields = {
    { config = {
        type = "record",
        fields = {
          { prefix = { type = "string", default = "X-User-", starts_with = "X-" } },
          { anonymous = { type = "boolean", default = false } },
        },
      },
    },
  },
}
