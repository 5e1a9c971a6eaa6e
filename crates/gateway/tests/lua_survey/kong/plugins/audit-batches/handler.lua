local Queue = require "kong.tools.queue"
local http = require "resty.http"
local cjson = require "cjson"

local AuditBatches = { PRIORITY = 1, VERSION = "1.0.0" }

local function send(conf, entries)
  local res, err = http.new():request_uri(conf.url, { method = "POST", body = cjson.encode(entries) })
  if not res then
    return nil, err
  end
  if res.status >= 300 then
    return nil, "status " .. res.status
  end
  return true
end

function AuditBatches:log(conf)
  kong.log.set_serialize_value("audit.kind", "batch")
  local record = kong.log.serialize()
  local entry = { method = record.request.method, status = record.response.status, kind = record.audit.kind }
  local ok, err = Queue.enqueue(Queue.get_plugin_params("audit-batches", conf), send, conf, entry)
  if not ok then
    kong.log.err(err)
  end
end

return AuditBatches
