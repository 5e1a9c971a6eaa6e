local template = require "pl.template"

local ResponseTemplate = { PRIORITY = 4, VERSION = "1.0.0" }

function ResponseTemplate:access(conf)
  local text, err = template.substitute(conf.template, {
    method = kong.request.get_method(),
    args = kong.request.get_query(),
    ipairs = ipairs,
  })
  if not text then
    return kong.response.error(500, err)
  end
  return kong.response.exit(200, text, { ["Content-Type"] = conf.content_type })
end

return ResponseTemplate
