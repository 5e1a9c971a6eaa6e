return {
  name = "chunk-filter",
  fields = { { config = { type = "record", fields = { { tail = { type = "string", default = "-- end" } } } } } },
}
