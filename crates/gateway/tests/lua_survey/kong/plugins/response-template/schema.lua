return {
  name = "response-template",
  fields = {
    { config = {
        type = "record",
        fields = {
          { template = { type = "string", required = true, custom_validator = function(text)
              if text:find("$(", 1, true) then
                return true
              end
              return nil, "has no expression"
            end } },
          { content_type = { type = "string", default = "text/plain" } },
        },
      },
    },
  },
}
