local OwnAuth = { PRIORITY = 1450, VERSION = "3.0.0" }

local function bearer()
  local header = kong.request.get_header("Authorization")
  return header and header:match("^[Bb]earer%s+(.+)$")
end

function OwnAuth:access(conf)
  local given = bearer()
  for _, known in ipairs(conf.tokens) do
    if known.token == given then
      local consumer = kong.client.load_consumer(known.username, true)
      if not consumer then
        kong.log.warn("no consumer is called ", known.username)
        break
      end
      kong.client.authenticate(consumer, { id = "token-of-" .. known.username })
      kong.service.request.set_headers({
        ["X-Consumer-Username"] = consumer.username,
        ["X-Consumer-ID"] = consumer.id,
      })
      kong.service.request.clear_header("Authorization")
      return
    end
  end
  return kong.response.exit(401, { message = "Unauthorized" }, {
    ["WWW-Authenticate"] = ('Bearer realm="%s"'):format(conf.realm),
  })
end

return OwnAuth
