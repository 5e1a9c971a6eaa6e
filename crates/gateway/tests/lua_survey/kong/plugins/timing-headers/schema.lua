return {
  name = "timing-headers",
  fields = { { config = { type = "record", fields = { { file = { type = "string" } } } } } },
}
