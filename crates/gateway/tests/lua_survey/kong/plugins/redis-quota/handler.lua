local redis = require "resty.redis"

local RedisQuota = { PRIORITY = 905, VERSION = "1.0.0" }

local COUNT = [[
  local count = redis.call("INCR", KEYS[1])
  if count == 1 then redis.call("EXPIRE", KEYS[1], ARGV[1]) end
  return { count, redis.call("TTL", KEYS[1]) }
]]

local function connect(conf)
  local client = redis:new()
  client:set_timeouts(conf.timeout, conf.timeout, conf.timeout)
  local pool = ("%s:%d:%d"):format(conf.host, conf.port, conf.database)
  local ok, err = client:connect(conf.host, conf.port, { pool = pool })
  if ok and client:get_reused_times() == 0 and conf.database > 0 then
    ok, err = client:select(conf.database)
  end
  if not ok then
    return nil, err
  end
  return client
end

local function count(client, key, window)
  client:init_pipeline()
  client:hmget(key .. ":client", "state", "note")
  client:eval(COUNT, 1, key, window)
  local results, err = client:commit_pipeline()
  if not results then
    return nil, err
  end
  local state, note = unpack(results[1])
  return { blocked = state == "blocked", note = note ~= ngx.null and note or "none", count = results[2][1], left = results[2][2] }
end

function RedisQuota:access(conf)
  local client, err = connect(conf)
  if not client then
    kong.log.err("the quota is unknown: ", err)
    kong.response.set_header("X-Quota", "unknown")
    return
  end
  local key = "quota:" .. kong.request.get_host() .. ":" .. (kong.request.get_header("X-Client") or kong.client.get_ip())
  if kong.request.get_method() == "DELETE" then
    client:hmset(key .. ":client", { state = "blocked", note = "by request" })
    client:set_keepalive(10000, 10)
    return kong.response.exit(204)
  end
  local found, err = count(client, key, conf.window)
  if not found then
    return kong.response.exit(502, { message = err })
  end
  client:set_keepalive(10000, 10)
  kong.response.set_header("X-Note", found.note)
  if found.blocked then
    return kong.response.exit(403, { message = "blocked" })
  end
  kong.response.set_header("X-Quota", math.max(0, conf.limit - found.count))
  if found.count > conf.limit then
    return kong.response.exit(429, { message = "used up" }, { ["Retry-After"] = found.left })
  end
end

return RedisQuota
