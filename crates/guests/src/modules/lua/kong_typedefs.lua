-- kong.db.schema.typedefs: declarations of fields by name, each of which can be called with members to add.
local Schema = require "kong.db.schema"
local http, ip, text = require "kong.tools.http", require "kong.tools.ip", require "kong.tools.string"
local url, pkey, x509 = require "socket.url", require "resty.openssl.pkey", require "resty.openssl.x509"
local is_reference = require("kong.db.schema.rules").is_reference
local null = ngx.null
local typedefs = {}

local function define(name, declared) typedefs[name] = Schema.define(declared) end

local function validated(name, validate)
  define(name, { type = "string", custom_validator = validate })
end

local function host_of(host)
  local parsed, wrong = ip.normalize_ip(host)
  if parsed == nil and wrong ~= "invalid port number" then return nil, "invalid value: " .. host end
  return parsed or {}, wrong
end

local function has_port(parsed, wrong)
  return wrong == "invalid port number" or type(parsed.port) == "number"
end

local function validate_host(host)
  local parsed, wrong = host_of(host)
  if not parsed then return nil, wrong end
  if has_port(parsed, wrong) then return nil, "must not have a port" end
  return true
end

local function validate_host_and_port(host)
  local parsed, wrong = host_of(host)
  if not parsed then return nil, wrong end
  if wrong then return nil, wrong end
  return true
end

local function validate_sni(host)
  local parsed, wrong = host_of(host)
  if not parsed then return nil, wrong end
  if parsed.type and parsed.type ~= "name" then return nil, "must not be an IP" end
  if has_port(parsed, wrong) then return nil, "must not have a port" end
  return true
end

local function validate_wildcard_host(host)
  local count = select(2, host:gsub("%*", ""))
  local starts, ends = host:sub(1, 2) == "*.", host:sub(-2) == ".*"
  if count > 1 then return nil, "Only one wildcard must be specified" end
  if count == 1 and not starts and not ends then
    return nil, "wildcard must be leftmost or rightmost character"
  end
  return validate_host_and_port((host:gsub("%*", "abc")))
end

local function validate_path(path)
  if not path:match("^/[%w%.%-_~/%%:@!$&'()*+,;=]*$") then
    return nil, "invalid path: '" .. path .. "' (characters outside of the reserved list of RFC 3986 found)"
  end
  local wrong = path:gsub("%%%x%x", "___"):match("%%.?.?")
  if wrong then return nil, "invalid url-encoded value: '" .. wrong .. "'" end
  return true
end

local function validate_router_path(path)
  if path:sub(1, 1) ~= "~" then return validate_path(path) end
  local _, wrong = ngx.re.match("", path:sub(2), "aj")
  if wrong then return nil, ("invalid regex: '%s' (PCRE returned: %s)"):format(path:sub(2), wrong) end
  return true
end

local function validate_url(value)
  local parsed, wrong = url.parse(value)
  if not parsed then return nil, "could not parse url. " .. tostring(wrong) end
  if not parsed.host then return nil, "missing host in url" end
  if not parsed.scheme then return nil, "missing scheme in url" end
  return true
end

local function validate_name(name)
  if name:match("^[%w%.%-_~]+$") then return true end
  return nil, "invalid value '" .. name .. "': it must only contain alphanumeric and '., -, _, ~' characters"
end

local function validate_utf8(value)
  local ok, index = text.validate_utf8(value)
  if ok then return true end
  return nil, "invalid value '" .. value .. "': it must be valid utf-8, character " .. tostring(index)
end

local function validate_tag(tag)
  if tag:find("[,/]") then return nil, "invalid tag '" .. tag .. "': expected printable ascii (except `,` and `/`)" end
  return validate_utf8(tag)
end

local function loads(make, what)
  return function(value)
    if is_reference(value) then return true end
    local ok, made, wrong = pcall(make, value)
    if ok and made then return true end
    return nil, "invalid " .. what .. ": " .. tostring(ok and wrong or made)
  end
end

local function validate_jwk(key)
  if is_reference(key) then return true end
  local ok, made = pcall(pkey.new, key, { format = "JWK" })
  if ok and made then return true end
  return nil, "could not load JWK, likely not a valid key"
end

local function compiles(code)
  local ok, wrong = load(code)
  if ok then return true end
  return nil, "error parsing function: " .. tostring(wrong)
end

-- Texts

define("http_method", { type = "string", match = "^%u+$" })
validated("host", validate_host)
validated("host_with_optional_port", validate_host_and_port)
validated("wildcard_host", validate_wildcard_host)
validated("ip", ip.validate_ip)
validated("ip_or_cidr", ip.validate_ip_or_cidr)
validated("cidr_v4", ip.validate_cidr_v4)
validated("cidr", ip.validate_cidr_v4)
validated("url", validate_url)
validated("cookie_name", http.validate_cookie_name)
validated("header_name", http.validate_header_name)
validated("sni", validate_sni)
validated("redis_server_name", validate_sni)
validated("certificate", loads(x509.new, "certificate"))
validated("key", loads(pkey.new, "key"))
validated("jwk", validate_jwk)
define("lua_code", {
  type = "map",
  keys = { type = "string", len_min = 1 },
  values = { type = "string", len_min = 1, custom_validator = compiles },
})
define("name", { type = "string", unique = true, custom_validator = validate_name })
define("utf8_name", { type = "string", unique = true, custom_validator = validate_utf8 })
define("tag", { type = "string", required = true, custom_validator = validate_tag })
define("tags", { type = "set", elements = typedefs.tag })
define("uuid", { type = "string", uuid = true, auto = true })
local NO_EMPTY_SEGMENTS = { { pattern = "//", err = "must not have empty segments" } }
define("path", { type = "string", starts_with = "/", match_none = NO_EMPTY_SEGMENTS, custom_validator = validate_path })
define("router_path", {
  type = "string",
  match_any = {
    patterns = { "^/", "^~/" },
    err = "should start with: / (fixed path) or ~/ (regex path)",
  },
  match_none = NO_EMPTY_SEGMENTS,
  custom_validator = validate_router_path,
})
define("semantic_version", {
  type = "string",
  match_any = { patterns = { "^%d+[%.%d]*$", "^%d+[%.%d]*%-?.*$" }, err = "invalid version number: must be in format of X.Y.Z" },
  match_none = { { pattern = "%.%.", err = "must not have empty version segments" } },
})
define("capability", { type = "string", one_of = { "proxy", "analytics", "admin" } })

-- Numbers

define("port", { type = "integer", between = { 0, 65535 } })
define("timeout", { type = "integer", between = { 0, 2 ^ 31 - 2 } })
define("ttl", { type = "number", gt = 0 })
define("auto_timestamp_s", { type = "integer", timestamp = true, auto = true })
define("auto_timestamp_ms", { type = "number", timestamp = true, auto = true })

-- Entities

for field, reference in pairs({ route = "routes", service = "services", consumer = "consumers", consumer_group = "consumer_groups" }) do
  define("no_" .. field, { type = "foreign", reference = reference, eq = null })
end

-- Protocols and parts of routes

local OF_HTTP = { "grpc", "grpcs", "http", "https" }
local ALL = { "grpc", "grpcs", "http", "https", "tcp", "tls", "tls_passthrough", "udp" }
define("protocol", { type = "string", one_of = ALL })
define("protocols", { type = "set", required = true, default = OF_HTTP, elements = typedefs.protocol })
define("protocols_http", {
  type = "set", required = true, default = OF_HTTP, elements = { type = "string", one_of = OF_HTTP },
})
local ADDRESS = {
  type = "record",
  fields = { { ip = typedefs.ip_or_cidr }, { port = typedefs.port } },
  entity_checks = { { at_least_one_of = { "ip", "port" } } },
}
define("sources", { type = "set", elements = ADDRESS })
define("destinations", { type = "set", elements = ADDRESS })
define("no_sources", { type = "set", elements = ADDRESS, eq = null })
define("no_destinations", { type = "set", elements = ADDRESS, eq = null })
define("methods", { type = "set", elements = typedefs.http_method })
define("no_methods", { type = "set", elements = typedefs.http_method, eq = null })
define("hosts", { type = "array", elements = typedefs.wildcard_host })
define("no_hosts", { type = "array", elements = typedefs.wildcard_host, eq = null })
define("router_paths", { type = "array", elements = typedefs.router_path })
define("no_paths", { type = "array", elements = typedefs.router_path, eq = null })
define("headers", {
  type = "map", keys = typedefs.header_name, values = { type = "array", elements = { type = "string" } },
})
define("no_headers", typedefs.headers { eq = null })

-- Records

define("pem", {
  type = "record",
  fields = {
    { public_key = { type = "string", referenceable = true, custom_validator = loads(pkey.new, "key") } },
    { private_key = { type = "string", referenceable = true, encrypted = true, custom_validator = loads(pkey.new, "key") } },
  },
  entity_checks = { { at_least_one_of = { "public_key", "private_key" } } },
})
define("queue", {
  type = "record", required = true,
  fields = {
    { max_batch_size = { type = "integer", default = 1, between = { 1, 1000000 } } },
    { max_coalescing_delay = { type = "number", default = 1, between = { 0, 3600 } } },
    { max_entries = { type = "integer", default = 10000, between = { 1, 1000000 } } },
    { max_bytes = { type = "integer" } },
    { max_retry_time = { type = "number", default = 60 } },
    { initial_retry_delay = { type = "number", default = 0.01, between = { 0.001, 1000000 } } },
    { max_retry_delay = { type = "number", default = 60, between = { 0.001, 1000000 } } },
    { concurrency_limit = { type = "integer", default = 1, one_of = { -1, 1 } } },
  },
})
local FORMATS = { "preserve", "ignore", "b3", "b3-single", "w3c", "jaeger", "ot", "aws", "datadog", "gcp" }
local EXTRACTED = { "w3c", "b3", "jaeger", "ot", "aws", "datadog", "gcp" }
local INJECTED = { "preserve", "w3c", "b3", "b3-single", "jaeger", "ot", "aws", "datadog", "gcp" }
define("propagation", {
  type = "record", required = true,
  fields = {
    { extract = { type = "array", elements = { type = "string", one_of = EXTRACTED } } },
    { clear = { type = "array", elements = { type = "string" } } },
    { inject = { type = "array", elements = { type = "string", one_of = INJECTED } } },
    { default_format = { type = "string", required = true, one_of = FORMATS } },
  },
})
define("redis_host", { type = "string", custom_validator = validate_host, referenceable = true })

return setmetatable(typedefs, {
  __index = function(_, name) error("schema typedef error: definition " .. tostring(name) .. " does not exist", 2) end,
})
