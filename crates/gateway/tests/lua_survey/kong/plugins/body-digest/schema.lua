return {
  name = "body-digest",
  fields = { { config = { type = "record", fields = { { required = { type = "boolean", default = false } } } } } },
}
