return {
  name = "sealed-cookie",
  fields = {
    { config = {
        type = "record",
        fields = {
          { password = { type = "string", required = true, len_min = 8, encrypted = true } },
          { salt = { type = "string", len_eq = 8 } },
          { cookie = { type = "string", default = "sealed" } },
        },
      },
    },
  },
}
