return {
  name = "canary-router",
  fields = {
    { config = {
        type = "record",
        fields = {
          { upstream = { type = "string", required = true } },
          { target = { type = "string", match = "^[^:]+:%d+$" } },
        },
      },
    },
  },
}
