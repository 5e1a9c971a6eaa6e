local ConsumerLookup = { PRIORITY = 970, VERSION = "1.0.0" }

local function load(username)
  return kong.db.consumers:select_by_username(username)
end

function ConsumerLookup:access(conf)
  local name = kong.request.get_header(conf.header)
  local key = kong.db.consumers:cache_key(name)
  local consumer, err = kong.cache:get(key, nil, load, name)
  if err then
    return kong.response.exit(500, { message = err })
  end
  if not consumer then
    return kong.response.exit(404, { message = "who is " .. name .. "?" })
  end
  local count = 0
  for credential in kong.db.keyauth_credentials:each_for_consumer({ id = consumer.id }) do
    count = count + 1
  end
  local plugins = 0
  for plugin in kong.db.plugins:each() do
    plugins = plugins + (plugin.name == "consumer-lookup" and 1 or 0)
  end
  kong.service.request.set_headers({ ["X-Custom"] = consumer.custom_id, ["X-Keys"] = count, ["X-Plugins"] = plugins })
end

return ConsumerLookup
