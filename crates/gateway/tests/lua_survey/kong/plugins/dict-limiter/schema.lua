return {
  name = "dict-limiter",
  fields = {
    { config = {
        type = "record",
        fields = { { limit = { type = "integer", required = true, gt = 0 } }, { window = { type = "integer", default = 3600 } } },
      },
    },
  },
}
