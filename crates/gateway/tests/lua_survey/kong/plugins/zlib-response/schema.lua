return {
  name = "zlib-response",
  fields = { { config = { type = "record", fields = { { level = { type = "integer", between = { 0, 9 }, default = 6 } } } } } },
}
