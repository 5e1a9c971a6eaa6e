return {
  name = "gunzip-request",
  fields = { { config = { type = "record", fields = { { max_size = { type = "integer", default = 65536 } } } } } },
}
