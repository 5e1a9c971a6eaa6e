return {
  name = "query-filter",
  fields = {
    { config = {
        type = "record",
        fields = {
          { keep = { type = "set", elements = { type = "string" } } },
          { drop = { type = "set", elements = { type = "string" } } },
          { max_args = { type = "integer", between = { 1, 1000 }, default = 100 } },
        },
        entity_checks = { { only_one_of = { "keep", "drop" } } },
      },
    },
  },
}
