return {
  name = "json-response",
  fields = { { config = { type = "record", fields = { { wrap = { type = "string", default = "data" } } } } } },
}
