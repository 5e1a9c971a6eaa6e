return {
  name = "consumer-lookup",
  fields = { { config = { type = "record", fields = { { header = { type = "string", default = "X-Name" } } } } } },
}
