return {
  name = "request-signer",
  fields = {
    { config = {
        type = "record",
        fields = {
          { public_key = { type = "string", required = true } },
          { private_key = { type = "string", required = true, encrypted = true } },
          { issuer = { type = "string", default = "gateway" } },
        },
      },
    },
  },
}
