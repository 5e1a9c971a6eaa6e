local BodyMapper = { PRIORITY = 780, VERSION = "1.0.0" }

function BodyMapper:access(conf)
  local body, err, mime = kong.request.get_body()
  if not body then
    return kong.response.error(400, err)
  end
  for from, to in pairs(conf.rename) do
    body[to], body[from] = body[from], nil
  end
  body.source = conf.add.source
  kong.service.request.set_body(body, mime)
end

return BodyMapper
