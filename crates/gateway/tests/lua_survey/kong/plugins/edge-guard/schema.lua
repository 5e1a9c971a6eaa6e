return {
  name = "edge-guard",
  fields = {
    { config = {
        type = "record",
        fields = {
          { name = { type = "string", required = true } },
          { blocked = { type = "array", elements = { type = "string" }, default = {} } },
        },
      },
    },
  },
}
