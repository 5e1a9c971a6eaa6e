-- LuaSocket's `socket.http`, and `ssl.https`, on `resty.http`: other requests go on meanwhile.
local concat, ipairs, pairs, tostring, type = table.concat, ipairs, pairs, tostring, type
local http = { TIMEOUT = 60, USERAGENT = "LuaSocket 3.0" }

local function body_of(request)
  local source = request.source
  if not source then
    return request.body
  end
  local pieces = {}
  for piece in source do
    pieces[#pieces + 1] = piece
  end
  return concat(pieces)
end

local function lowered(headers)
  local all = {}
  for name, value in pairs(headers) do
    all[name:lower()] = type(value) == "table" and concat(value, ", ") or value
  end
  return all
end

local function send(request)
  local client = require("resty.http").new()
  client:set_timeout(http.TIMEOUT * 1000)
  local headers = { ["User-Agent"] = http.USERAGENT, Connection = "close" }
  for name, value in pairs(request.headers or {}) do
    headers[name] = value
  end
  return client:request_uri(request.url, {
    method = request.method or "GET",
    headers = headers,
    body = body_of(request),
    ssl_verify = request.verify ~= nil and request.verify ~= "none",
    keepalive = false,
  })
end

-- `request(url)`, `request(url, body)`, or `request{ url = …, method, headers, source, sink }`.
function http.request(request, body)
  local is_simple = type(request) ~= "table"
  if is_simple then
    request = { url = request, body = body, method = body and "POST" or "GET" }
    if body then
      request.headers = { ["Content-Type"] = "application/x-www-form-urlencoded" }
    end
  end
  local response, err = send(request)
  if not response then
    return nil, err
  end
  local line = "HTTP/1.1 " .. response.status .. " " .. tostring(response.reason)
  if request.sink then
    for _, piece in ipairs({ response.body }) do
      request.sink(piece)
    end
    request.sink(nil)
  end
  return is_simple and response.body or 1, response.status, lowered(response.headers), line
end

return http
