-- kong.constants: names of headers and of other things that plugins share.
local bundled = {}
for name in ([[acl acme ai-prompt-decorator ai-prompt-guard ai-prompt-template ai-proxy ai-request-transformer
  ai-response-transformer aws-lambda azure-functions basic-auth bot-detection correlation-id cors datadog file-log
  grpc-gateway grpc-web hmac-auth http-log ip-restriction jwt key-auth ldap-auth loggly oauth2 opentelemetry
  post-function pre-function prometheus proxy-cache rate-limiting redirect request-size-limiting request-termination
  request-transformer response-ratelimiting response-transformer session standard-webhooks statsd syslog tcp-log
  udp-log zipkin]]):gmatch("%S+") do
  bundled[name] = true
end

return {
  BUNDLED_PLUGINS = bundled,
  DEPRECATED_PLUGINS = {},
  HEADERS = {
    HOST_OVERRIDE = "X-Host-Override",
    PROXY_LATENCY = "X-Kong-Proxy-Latency",
    RESPONSE_LATENCY = "X-Kong-Response-Latency",
    ADMIN_LATENCY = "X-Kong-Admin-Latency",
    UPSTREAM_LATENCY = "X-Kong-Upstream-Latency",
    UPSTREAM_STATUS = "X-Kong-Upstream-Status",
    CONSUMER_ID = "X-Consumer-ID",
    CONSUMER_CUSTOM_ID = "X-Consumer-Custom-ID",
    CONSUMER_USERNAME = "X-Consumer-Username",
    CREDENTIAL_IDENTIFIER = "X-Credential-Identifier",
    RATELIMIT_LIMIT = "X-RateLimit-Limit",
    RATELIMIT_REMAINING = "X-RateLimit-Remaining",
    CONSUMER_GROUPS = "X-Consumer-Groups",
    AUTHENTICATED_GROUPS = "X-Authenticated-Groups",
    FORWARDED_HOST = "X-Forwarded-Host",
    FORWARDED_PATH = "X-Forwarded-Path",
    FORWARDED_PREFIX = "X-Forwarded-Prefix",
    ANONYMOUS = "X-Anonymous-Consumer",
    VIA = "Via",
    SERVER = "Server",
    REQUEST_ID = "X-Kong-Request-Id",
  },
  RATELIMIT = { PERIODS = { "second", "minute", "hour", "day", "month", "year" } },
}
