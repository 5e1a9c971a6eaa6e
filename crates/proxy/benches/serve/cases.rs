//! What is measured: for every plugin that can stand here a case at least. Not here are those that call functions, and
//! forward-auth, whose price is another server's, grpc-gateway and grpc-transcode, which need a `.proto` file, acme and mtls-auth,
//! whose price is paid in handshakes, and those of AI that ask a model beside the upstream.

use crate::gateway::Gateway;
use crate::sinks::Sinks;
use crate::traffic::{Algorithm, OAUTH2, SECRET, SESSION, Traffic};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// What it is compared with.
    pub(crate) base: Gateway,
    pub(crate) gateway: Gateway,
}

/// Every operation on headers.
const REQUEST_HEADERS: &str = "{remove: {headers: [accept]}, rename: {headers: ['user-agent:x-agent']}, \
                               replace: {headers: ['x-agent:replaced']}, add: {headers: ['x-a:1']}, \
                               append: {headers: ['x-a:2']}}";

/// The same, on those of the response.
const RESPONSE_HEADERS: &str = "{remove: {headers: [server]}, rename: {headers: ['content-type:x-type']}, \
                                replace: {headers: ['x-type:replaced']}, add: {headers: ['x-a:1']}, \
                                append: {headers: ['x-a:2']}}";

/// What Supabase's file does to nearly every request.
const TEMPLATES: &str = "{replace: &authorization {headers: [\"Authorization: \
                         $((headers.authorization ~= nil and headers.authorization:sub(1, 10) ~= 'Bearer sb_' and \
                         headers.authorization) or headers.apikey)\"]}, add: *authorization}";

const EVERY_METRIC: &str = "{per_consumer: true, status_code_metrics: true, latency_metrics: true, \
                            bandwidth_metrics: true, upstream_health_metrics: true}";

/// For a chat with the words of [`Traffic::Chat`].
const PROMPTS: &str = "{prompts: {prepend: [{role: system, content: 'Answer in English.'}], append: [{role: user, content: 'Be brief.'}]}}";

const PATTERNS: &str =
    "{deny_patterns: ['.*password.*', '.*(secret|token).*'], allow_patterns: ['.*capital.*', '.*river.*']}";

const TEMPLATE: &str = "{templates: [{name: city, template: '{\"messages\": [{\"role\": \"user\", \"content\": \
                        \"What is the capital of {{country}}?\"}]}'}]}";

/// For the body of [`Traffic::Order`].
const SCHEMA: &str = "{body_schema: {type: object, required: [name, count], properties: {name: {type: string, maxLength: 100}, \
                      count: {type: integer, minimum: 1}, tags: {type: array, items: {type: string}}}}}";

const LIMITS: &str = "{minute: 1000000000, policy: local}";

/// Enough room that nothing is dropped, and batches as large as a busy node needs.
const QUEUE: &str = "{max_entries: 1000000, max_batch_size: 200, max_coalescing_delay: 0.01}";

fn plugin(name: &str, config: &str) -> String {
    format!("- {{name: {name}, config: {config}}}\n")
}

/// A plugin alone.
fn alone(name: &'static str, traffic: Traffic, plugin: String) -> Case {
    beside(name, traffic, Vec::new(), vec![plugin])
}

/// What some plugins add to others.
fn beside(name: &'static str, traffic: Traffic, others: Vec<String>, plugins: Vec<String>) -> Case {
    let base = Gateway { routes: 1, paths: 1, consumers: 1, traffic, plugins: others };
    let plugins = base.plugins.iter().cloned().chain(plugins).collect();
    Case { name, gateway: Gateway { plugins, ..base.clone() }, base }
}

/// What many routes and consumers add to one of each, whose requests ask for the same paths.
fn many(name: &'static str, routes: usize, consumers: usize, traffic: Traffic, plugins: Vec<String>) -> Case {
    let base = Gateway { routes: 1, paths: routes, consumers: 1, traffic, plugins };
    Case { name, gateway: Gateway { routes, consumers, ..base.clone() }, base }
}

pub(crate) fn all(sinks: &Sinks) -> Vec<Case> {
    let ours = [routes(), authentication(), admission(), limits(), changes(), bodies(), answers()];
    ours.into_iter().chain([with_servers(sinks), logs(sinks)]).flatten().collect()
}

fn routes() -> Vec<Case> {
    let limited = |auth: &str| vec![plugin("rate-limiting", LIMITS), plugin(auth, "{}")];
    vec![
        // Both sides are the same, so the reported difference is measurement error.
        many("nothing", 1, 1, Traffic::Plain, Vec::new()),
        many("100-routes", 100, 100, Traffic::Plain, Vec::new()),
        many("10000-routes", 10_000, 1, Traffic::Plain, Vec::new()),
        many("100-routes-key-auth", 100, 100, Traffic::Key, limited("key-auth")),
        many("100-routes-basic-auth", 100, 100, Traffic::Basic, limited("basic-auth")),
    ]
}

fn authentication() -> Vec<Case> {
    let jwt = || plugin("jwt", "{claims_to_verify: [exp]}");
    vec![
        alone("key-auth", Traffic::Key, plugin("key-auth", "{}")),
        alone("basic-auth", Traffic::Basic, plugin("basic-auth", "{}")),
        alone(
            "hmac-auth",
            Traffic::Hmac,
            plugin("hmac-auth", "{enforce_headers: [date, '@request-target']}"),
        ),
        alone("jwt-known-token", Traffic::Token, jwt()),
        alone("jwt-hs256", Traffic::Tokens(Algorithm::Hs256), jwt()),
        alone("jwt-rs256", Traffic::Tokens(Algorithm::Rs256), jwt()),
        alone("jwt-es256", Traffic::Tokens(Algorithm::Es256), jwt()),
        alone("jwt-eddsa", Traffic::Tokens(Algorithm::EdDsa), jwt()),
        alone("openid-connect-es256", Traffic::Tokens(Algorithm::Es256), openid_connect(Algorithm::Es256)),
        alone("oauth2", Traffic::AccessToken, OAUTH2.to_owned()),
        session(),
    ]
}

/// With key-auth, which gives way to a session. The second consumer stands for clients without one.
fn session() -> Case {
    let base = Gateway { routes: 1, paths: 1, consumers: 2, traffic: Traffic::Session, plugins: Vec::new() };
    Case { name: "session", gateway: Gateway { plugins: vec![SESSION.to_owned()], ..base.clone() }, base }
}

/// Bearer tokens of an issuer whose key is known.
fn openid_connect(algorithm: Algorithm) -> String {
    let key = algorithm.public_key().expect("signatures by a pair of keys");
    let claims = "{issuer: {valid_issuers: [issuer]}}";
    let config = format!(
        "{{client_id: a, discovery: 'https://issuer.test/', ssl_verify: false, bearer_only: true, public_key: {key:?}, claim_validator: {claims}}}"
    );
    plugin("openid-connect", &config)
}

fn admission() -> Vec<Case> {
    let key_auth = vec![plugin("key-auth", "{}")];
    let origins = "{origins: ['https://shop.example.com', 'https://.*\\.example\\.org'], credentials: true}";
    let addresses = "{allow: [127.0.0.0/8, 10.0.0.0/8, 192.168.0.0/16, '2001:db8::/32']}";
    vec![
        beside("acl", Traffic::Key, key_auth, vec![plugin("acl", "{allow: [staff, readers]}")]),
        alone("cors", Traffic::Origin, plugin("cors", "{}")),
        alone("cors-origins", Traffic::Origin, plugin("cors", origins)),
        alone("ip-restriction", Traffic::Plain, plugin("ip-restriction", addresses)),
        alone("bot-detection", Traffic::Browser, plugin("bot-detection", "{}")),
        alone("request-size-limiting", Traffic::Plain, plugin("request-size-limiting", "{}")),
    ]
}

fn limits() -> Vec<Case> {
    let rate_limiting = || plugin("rate-limiting", LIMITS);
    let with =
        |name, traffic, auth| beside(name, traffic, Vec::new(), vec![rate_limiting(), plugin(auth, "{}")]);
    let count = "{count: 1000000000, time_window: 60, key: remote_addr}";
    let mut cases = vec![
        alone("rate-limiting", Traffic::Plain, rate_limiting()),
        with("rate-limiting-key-auth", Traffic::Key, "key-auth"),
        with("rate-limiting-basic-auth", Traffic::Basic, "basic-auth"),
        alone("limit-count", Traffic::Plain, plugin("limit-count", count)),
        alone(
            "response-ratelimiting",
            Traffic::Plain,
            plugin("response-ratelimiting", "{limits: {video: {minute: 1000000000}}}"),
        ),
    ];
    // A real server, if there is one: `bench/plugins.py` starts it.
    if let Ok(port) = std::env::var("REDIS_PORT") {
        let shared = format!(
            "{{second: 1000000000, policy: redis, sync_rate: 0.5, redis: {{host: 127.0.0.1, port: {port}}}}}"
        );
        cases.push(alone("rate-limiting-redis", Traffic::Plain, plugin("rate-limiting", &shared)));
    }
    cases
}

fn changes() -> Vec<Case> {
    vec![
        alone("correlation-id", Traffic::Plain, plugin("correlation-id", "{}")),
        alone("correlation-id-uuid", Traffic::Plain, plugin("correlation-id", "{generator: uuid}")),
        alone("correlation-id-echo", Traffic::Plain, plugin("correlation-id", "{echo_downstream: true}")),
        alone("request-id", Traffic::Plain, plugin("request-id", "{}")),
        alone("request-transformer", Traffic::Plain, plugin("request-transformer", REQUEST_HEADERS)),
        alone("request-transformer-templates", Traffic::Plain, plugin("request-transformer", TEMPLATES)),
        alone("response-transformer", Traffic::Plain, plugin("response-transformer", RESPONSE_HEADERS)),
    ]
}

/// Those that read the request's body.
fn bodies() -> Vec<Case> {
    let webhooks = format!("{{secret_v1: '{SECRET}', tolerance_second: 1000000}}");
    vec![
        alone("ai-prompt-decorator", Traffic::Chat, plugin("ai-prompt-decorator", PROMPTS)),
        alone("ai-prompt-guard", Traffic::Chat, plugin("ai-prompt-guard", PATTERNS)),
        alone("ai-prompt-template", Traffic::Template, plugin("ai-prompt-template", TEMPLATE)),
        alone("request-validation", Traffic::Order, plugin("request-validation", SCHEMA)),
        alone("standard-webhooks", Traffic::Webhook, plugin("standard-webhooks", &webhooks)),
    ]
}

/// Those of a server that is asked once in a while, or in the upstream's place.
fn with_servers(sinks: &Sinks) -> Vec<Case> {
    let ldap = format!(
        "{{ldap_host: 127.0.0.1, ldap_port: {}, base_dn: 'dc=example,dc=com', attribute: uid, header_type: basic, cache_ttl: 3600}}",
        sinks.ldap
    );
    let model =
        "{provider: openai, name: m, options: {upstream_url: 'http://127.0.0.1:9/v1/chat/completions'}}";
    let auth = "{header_name: Authorization, header_value: Bearer key}";
    let ai_proxy = format!("{{route_type: llm/v1/chat, auth: {auth}, model: {model}}}");
    vec![
        alone("ldap-auth", Traffic::Basic, plugin("ldap-auth", &ldap)),
        alone("ai-proxy", Traffic::Chat, plugin("ai-proxy", &ai_proxy)),
        alone("grpc-web", Traffic::GrpcWeb { is_text: false }, plugin("grpc-web", "{}")),
        alone("grpc-web-text", Traffic::GrpcWeb { is_text: true }, plugin("grpc-web", "{}")),
    ]
}

/// Those who answer themselves: what is added is less than nothing.
fn answers() -> Vec<Case> {
    let redirect = "{status_code: 200, location: 'https://example.com'}";
    vec![
        alone("mocking", Traffic::Plain, plugin("mocking", "{response_example: '{\"id\": 42}'}")),
        alone("cors-preflight", Traffic::Preflight, plugin("cors", "{}")),
        alone("proxy-cache-hit", Traffic::Plain, plugin("proxy-cache", "{strategy: memory}")),
        alone("request-termination", Traffic::Plain, plugin("request-termination", "{status_code: 200}")),
        alone("redirect", Traffic::Plain, plugin("redirect", redirect)),
    ]
}

fn logs(sinks: &Sinks) -> Vec<Case> {
    let Sinks { http, tcp, udp, .. } = sinks;
    let http_log = format!("{{http_endpoint: 'http://127.0.0.1:{http}/', queue: {QUEUE}}}");
    let statsd = format!("{{host: 127.0.0.1, port: {udp}, queue: {QUEUE}}}");
    let loggly = format!("{{host: 127.0.0.1, port: {udp}, key: a}}");
    let traces = |rate| {
        format!("{{traces_endpoint: 'http://127.0.0.1:{http}/', sampling_rate: {rate}, queue: {QUEUE}}}")
    };
    let zipkin = |ratio| {
        format!("{{http_endpoint: 'http://127.0.0.1:{http}/', sample_ratio: {ratio}, queue: {QUEUE}}}")
    };
    let to = |port| format!("{{host: 127.0.0.1, port: {port}}}");
    vec![
        alone("prometheus", Traffic::Plain, plugin("prometheus", EVERY_METRIC)),
        beside(
            "prometheus-consumer",
            Traffic::Key,
            vec![plugin("key-auth", "{}")],
            vec![plugin("prometheus", EVERY_METRIC)],
        ),
        alone("file-log", Traffic::Plain, plugin("file-log", "{path: /dev/null}")),
        alone("http-log", Traffic::Plain, plugin("http-log", &http_log)),
        alone("tcp-log", Traffic::Plain, plugin("tcp-log", &to(tcp))),
        alone("udp-log", Traffic::Plain, plugin("udp-log", &to(udp))),
        alone("loggly", Traffic::Plain, plugin("loggly", &loggly)),
        alone("syslog", Traffic::Plain, plugin("syslog", "{}")),
        alone("datadog", Traffic::Plain, plugin("datadog", &statsd)),
        alone("statsd", Traffic::Plain, plugin("statsd", &statsd)),
        alone("opentelemetry-sampled", Traffic::Plain, plugin("opentelemetry", &traces("1"))),
        alone("opentelemetry-not-sampled", Traffic::Plain, plugin("opentelemetry", &traces("0"))),
        alone("zipkin-sampled", Traffic::Plain, plugin("zipkin", &zipkin("1"))),
        alone("zipkin-not-sampled", Traffic::Plain, plugin("zipkin", &zipkin("0"))),
    ]
}
