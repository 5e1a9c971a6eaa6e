return {
  name = "path-rewriter",
  fields = {
    { config = {
        type = "record",
        fields = {
          { rules = {
              type = "array",
              required = true,
              len_min = 1,
              elements = {
                type = "record",
                fields = {
                  { pattern = { type = "string", required = true, is_regex = true } },
                  { to = { type = "string", required = true } },
                },
              },
            },
          },
        },
      },
    },
  },
}
