local ConsumerHeaders = { PRIORITY = 900, VERSION = "1.0.0" }

function ConsumerHeaders:access(conf)
  local consumer = kong.client.get_consumer()
  local credential = kong.client.get_credential()
  local set = kong.service.request.set_header
  if not consumer then
    if not conf.anonymous then
      return kong.response.exit(401, { message = "No consumer" })
    end
    return set(conf.prefix .. "Anonymous", true)
  end
  set(conf.prefix .. "Name", consumer.username)
  set(conf.prefix .. "Credential", credential and credential.id or "none")
  if ngx.ctx.authenticated_consumer.custom_id then
    set(conf.prefix .. "Custom", ngx.ctx.authenticated_consumer.custom_id)
  end
end

return ConsumerHeaders
