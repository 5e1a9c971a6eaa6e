return {
  name = "body-mapper",
  fields = {
    { config = {
        type = "record",
        fields = {
          { rename = { type = "map", required = true, keys = { type = "string" }, values = { type = "string", len_min = 1 } } },
          { add = { type = "record", required = true, fields = { { source = { type = "string", default = "gateway" } } } } },
        },
      },
    },
  },
}
