return {
  name = "worker-greeter",
  fields = { { config = { type = "record", fields = { { greeting = { type = "string", required = true } } } } } },
}
