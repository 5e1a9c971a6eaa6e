return {
  name = "route-labels",
  fields = { { config = { type = "record", fields = { { separator = { type = "string", default = "," } } } } } },
}
