return {
  name = "legacy-fetch",
  fields = { { config = { type = "record", fields = { { url = { type = "string", required = true } } } } } },
}
