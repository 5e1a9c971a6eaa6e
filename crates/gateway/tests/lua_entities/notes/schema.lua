return { name = "notes", fields = { { config = { type = "record", fields = {} } } } }
