return {
  name = "body-masker",
  fields = {
    { config = {
        type = "record",
        fields = {
          { patterns = { type = "array", elements = { type = "string" }, default = { "%d%d%d%d" } } },
          { mask = { type = "string", default = "****" } },
        },
      },
    },
  },
}
