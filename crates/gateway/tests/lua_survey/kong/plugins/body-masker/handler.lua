local BodyMasker = { PRIORITY = 700, VERSION = "1.0.0" }

function BodyMasker:header_filter(conf)
  kong.response.clear_header("Content-Length")
end

function BodyMasker:body_filter(conf)
  local body = kong.response.get_raw_body()
  if not body then
    return
  end
  for _, pattern in ipairs(conf.patterns) do
    body = body:gsub(pattern, function() return conf.mask end)
  end
  kong.response.set_raw_body(body)
end

return BodyMasker
