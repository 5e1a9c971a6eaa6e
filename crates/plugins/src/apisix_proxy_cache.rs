//! Caches responses of the upstream, as APISIX's plugin proxy-cache does. Kong's is [proxy-cache](proxy-cache.md);
//! APISIX's objects call this one `proxy-cache`.
//!
//! ```yaml
//! plugins:
//!   - name: apisix-proxy-cache
//!     service: catalogue
//!     config:
//!       cache_key: ["$host", "$request_uri"]
//!       cache_bypass: ["$arg_bypass"]
//!       cache_http_status: [200]
//!       cache_ttl: 60
//! ```
//!
//! Responses with a status in `cache_http_status` to requests with a method in `cache_method` are stored in memory for
//! `cache_ttl` seconds, with either strategy: Weir has no cache on disk. The memory is that of
//! [proxy-cache](proxy-cache.md#memory). `cache_zone` names a part of it. Never stored are responses with `private`,
//! `no-store` or `no-cache` in `Cache-Control`, with `Set-Cookie`, with `Vary: *`, partial ones and incomplete ones.
//!
//! A stored response answers requests of the same route for which the texts in `cache_key` have the same values, if they
//! have the same method, consumer, `Authorization`, body and headers in the response's `Vary`. In APISIX `cache_key` and
//! `Vary` decide alone; what is for one caller is not for another here.
//!
//! If the values of `cache_bypass`, one after the other, are neither empty nor `0`, the request passes the cache. If those of
//! `no_cache` are, the response is not stored. With `cache_control` the plugin is a shared cache as
//! [proxy-cache](proxy-cache.md#with-cache_control) is, except that no request invalidates what is stored.
//!
//! A request with the method `PURGE` removes what is stored for its `cache_key`, for all callers: the response is 200, or 404 if
//! there was nothing. It passes the other plugins of the route before, such as those that authenticate.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `Apisix-Cache-Status` | `HIT`; `MISS`: not in the cache; `EXPIRED`: the cached response is too old, so the upstream was asked; `BYPASS` |
//! | `Age` | with a cached response: how many seconds ago the upstream made it |
//!
//! `hide_cache_headers` removes `Cache-Control` and `Expires` from responses.

use crate::proxy_cache::{RuledCache, Rules, Terms, have_value};
use crate::shared::variables::{Template, Variable};
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, LocalResponse, Phases, Plugin, Record,
    WantsBody,
};

/// The zone that the strategy `disk` has by default.
const DISK_ZONE: &str = "disk_cache_one";

/// Which responses are cached, and for which requests.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The part of the cache; with `cache_strategy: memory` it must be given.
    #[field(default = "disk_cache_one", len_min = 1, len_max = 100)]
    pub cache_zone: String,
    /// Where responses are stored in APISIX; here always in memory.
    #[field(default = "disk", one_of = ["disk", "memory"])]
    pub cache_strategy: String,
    /// Variables and texts whose values requests must have in common.
    #[field(default = ["$host", "$request_uri"], len_min = 1)]
    pub cache_key: Vec<String>,
    /// Statuses of responses that are cached.
    #[field(default = [200, 301, 404], between = [200, 599], len_min = 1)]
    pub cache_http_status: Vec<u16>,
    /// Methods of requests whose responses are cached.
    #[field(default = ["GET", "HEAD"], one_of = ["GET", "POST", "HEAD"], len_min = 1)]
    pub cache_method: Vec<String>,
    /// Removes `Cache-Control` and `Expires` from responses.
    #[field(default = false)]
    pub hide_cache_headers: bool,
    /// Respects `Cache-Control` of requests, and of responses in full.
    #[field(default = false)]
    pub cache_control: bool,
    /// Variables and texts: the request passes the cache if they have a value.
    #[field(len_min = 1)]
    pub cache_bypass: Option<Vec<String>>,
    /// Variables and texts: the response is not stored if they have a value.
    #[field(len_min = 1)]
    pub no_cache: Option<Vec<String>>,
    /// How many seconds a response is fresh.
    #[field(default = 300, gt = 0)]
    pub cache_ttl: u32,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let lists = [
        ("cache_key", Some(&config.cache_key)),
        ("cache_bypass", config.cache_bypass.as_ref()),
        ("no_cache", config.no_cache.as_ref()),
    ];
    let texts =
        lists.into_iter().flat_map(|(field, list)| list.into_iter().flatten().map(move |text| (field, text)));
    let variables = texts.filter_map(|(field, text)| Some((field, text.strip_prefix('$')?)));
    let mut found: Vec<_> = variables
        .filter_map(|(field, name)| Some(FieldError::new(field, Variable::named(name).err()?)))
        .collect();
    if config.cache_key.iter().any(|text| text == "$request_method") {
        found.push(FieldError::new("cache_key", "cache_key variable $request_method unsupported"));
    }
    if config.cache_strategy == "memory" && config.cache_zone == DISK_ZONE {
        let message =
            "invalid or empty cache_zone for cache_strategy: memory; name another, such as `memory_cache`";
        found.push(FieldError::new("cache_zone", message));
    }
    found
}

fn templates(texts: Option<&Vec<String>>) -> Vec<Template> {
    texts.into_iter().flatten().map(|text| Template::parse(text)).collect()
}

/// One configured instance.
pub(super) struct ApisixProxyCache {
    cache: RuledCache,
    bypass: Vec<Template>,
    hides_headers: bool,
}

impl Plugin for ApisixProxyCache {
    const NAME: &'static str = "apisix-proxy-cache";
    const PRIORITY: i32 = 100;
    const EXTENSION: bool = true;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let rules = Rules {
            zone: config.cache_zone,
            key: templates(Some(&config.cache_key)),
            no_cache: templates(config.no_cache.as_ref()),
        };
        let terms = Terms {
            statuses: config.cache_http_status,
            methods: config.cache_method,
            seconds: config.cache_ttl,
            cache_control: config.cache_control,
        };
        Ok(Self {
            cache: RuledCache::new(terms, rules, build),
            bypass: templates(config.cache_bypass.as_ref()),
            hides_headers: config.hide_cache_headers,
        })
    }
}

impl Hooks for ApisixProxyCache {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        self.cache.wants_body()
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        match exchange.request.method_str() {
            "PURGE" => AccessEffect::Answers,
            method if !self.cache.has_method(method) || have_value(&self.bypass, exchange) => {
                AccessEffect::Passes
            }
            _ => self.cache.access_effect(exchange),
        }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let method = exchange.request.method_str();
        if method == "PURGE" {
            let status = if self.cache.purge(exchange) { 200 } else { 404 };
            return Flow::Respond(LocalResponse::raw(status, None, ""));
        }
        if !self.cache.has_method(method) {
            return RuledCache::pass(exchange, "MISS");
        }
        if have_value(&self.bypass, exchange) {
            return RuledCache::pass(exchange, "BYPASS");
        }
        self.cache.access(exchange)
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some((status, age)) = RuledCache::outcome(exchange) else { return };
        let headers = &mut exchange.response.headers;
        if self.hides_headers {
            headers.remove("Cache-Control");
            headers.remove("Expires");
        }
        if let Some(age) = age {
            headers.append("Age", itoa::Buffer::new().format(age).as_bytes());
        }
        headers.set("Apisix-Cache-Status", status.as_bytes());
    }
}
