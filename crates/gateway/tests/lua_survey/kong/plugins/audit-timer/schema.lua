return {
  name = "audit-timer",
  fields = { { config = { type = "record", fields = { { url = { type = "string", required = true } } } } } },
}
