return {
  name = "labelled-clients",
  fields = {
    { config = {
        type = "record",
        fields = {
          { labels = { type = "array", required = true, elements = { type = "string" } } },
          { inspect = { type = "boolean", default = true } },
        },
      },
    },
  },
}
