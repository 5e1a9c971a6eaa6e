local cjson = require "cjson.safe"

local JsonResponse = { PRIORITY = 40, VERSION = "1.0.0" }

function JsonResponse:response(conf)
  local body = kong.service.response.get_body()
  if not body then
    return kong.response.exit(502, { message = "the service sent no JSON" })
  end
  kong.response.exit(kong.service.response.get_status(), { [conf.wrap] = body, bytes = #kong.service.response.get_raw_body() })
end

return JsonResponse
