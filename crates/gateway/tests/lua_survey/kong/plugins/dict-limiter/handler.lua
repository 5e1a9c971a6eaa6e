local DictLimiter = { PRIORITY = 910, VERSION = "1.0.0" }

function DictLimiter:access(conf)
  local dict = ngx.shared.kong
  local key = "dict-limiter:" .. kong.request.get_host() .. ":" .. (kong.request.get_header("X-Client") or kong.client.get_ip())
  local count, err = dict:incr(key, 1, 0, conf.window)
  if not count then
    kong.log.err(err)
    return
  end
  kong.response.set_header("X-Left", math.max(0, conf.limit - count))
  if count > conf.limit then
    local wait = math.ceil(dict:ttl(key))
    return kong.response.exit(429, { message = "slow down" }, { ["Retry-After"] = wait })
  end
end

return DictLimiter
