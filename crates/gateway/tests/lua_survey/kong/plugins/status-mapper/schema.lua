return {
  name = "status-mapper",
  fields = {
    { config = {
        type = "record",
        fields = {
          { map = {
              type = "map",
              required = true,
              keys = { type = "string", match = "^%d%d%d$" },
              values = { type = "integer", between = { 200, 599 } },
            },
          },
          { hide_body = { type = "boolean", default = true } },
        },
      },
    },
  },
}
