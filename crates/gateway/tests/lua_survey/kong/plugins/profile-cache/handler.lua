local cjson = require "cjson.safe"
local http = require "resty.http"
local mlcache = require "resty.mlcache"

local ProfileCache = { PRIORITY = 750, VERSION = "1.0.0" }

local cache

local function parse(text)
  return cjson.decode(text)
end

function ProfileCache:init_worker()
  local err
  cache, err = mlcache.new("profiles", "profiles", {
    shm_miss = "profiles_missing",
    lru_size = 100,
    ttl = 3600,
    neg_ttl = 60,
    l1_serializer = parse,
  })
  if not cache then
    kong.log.err("there is no cache: ", err)
  end
end

local function fetch(url, name)
  local res, err = http.new():request_uri(url, { query = { name = name } })
  if not res then
    return nil, err
  end
  if res.status == 404 then
    return nil
  end
  return res.body, nil, tonumber(res.headers["X-Keep"])
end

function ProfileCache:access(conf)
  local name = kong.request.get_query_arg("name") or "none"
  local key = kong.request.get_host() .. ":" .. name
  if kong.request.get_method() == "DELETE" then
    cache:delete(key)
    return kong.response.exit(204)
  end
  local profile, err, level = cache:get(key, nil, fetch, conf.url, name)
  if err then
    return kong.response.exit(503, { message = err })
  end
  if not profile then
    return kong.response.exit(404, { message = "no such profile" }, { ["X-Level"] = tostring(level) })
  end
  local left = cache:peek(key)
  kong.response.set_header("X-Level", level)
  kong.response.set_header("X-Left", left > 100 and "long" or "short")
  kong.service.request.set_header("X-Role", profile.role)
end

return ProfileCache
