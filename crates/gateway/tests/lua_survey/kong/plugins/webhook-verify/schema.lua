return {
  name = "webhook-verify",
  fields = {
    { config = {
        type = "record",
        fields = {
          { secret = { type = "string", required = true, encrypted = true } },
          { header = { type = "string", default = "X-Hub-Signature-256" } },
          { algorithm = { type = "string", one_of = { "sha1", "sha256", "sha512" }, default = "sha256" } },
        },
      },
    },
  },
}
