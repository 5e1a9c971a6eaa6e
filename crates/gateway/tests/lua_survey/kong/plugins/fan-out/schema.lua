return {
  name = "fan-out",
  fields = { { config = { type = "record", fields = { { urls = { type = "array", required = true, elements = { type = "string" } } } } } } },
}
