local utils = require "kong.tools.utils"

local LabelledClients = { PRIORITY = 700, VERSION = "1.0.0" }

local function known_labels(conf, header)
  local labels = {}
  for _, label in ipairs(utils.split(header or "", ",")) do
    label = utils.strip(label)
    if utils.table_contains(conf.labels, label) and not utils.table_contains(labels, label) then
      labels[#labels + 1] = label
    end
  end
  return labels
end

function LabelledClients:access(conf)
  if conf.inspect then kong.log.inspect.on() else kong.log.inspect.off() end
  local id = kong.request.get_header("X-Client-Id")
  local is_known = id ~= nil and utils.is_valid_uuid(id)
  local labels = known_labels(conf, kong.request.get_header("X-Labels"))
  local origin = utils.normalize_ip(kong.request.get_header("X-Origin") or kong.client.get_ip())
  kong.log.inspect("labels", labels, origin)
  kong.service.request.set_headers({
    ["X-Client-Id"] = is_known and id or utils.uuid(),
    ["X-Client-State"] = is_known and "known" or "new",
    ["X-Labels"] = utils.encode_args({ labels = labels }),
    ["X-Origin"] = origin and utils.format_host(origin) or "unknown",
    ["X-Origin-Type"] = origin and origin.type or "none",
    ["X-Nonce"] = utils.random_string(),
  })
  local merged = utils.table_merge(utils.deep_copy(conf), { labels = labels })
  kong.response.set_header("X-Configured", #conf.labels .. "/" .. #merged.labels)
  kong.response.set_header("X-Type", utils.get_mime_type("application/json"))
end

return LabelledClients
