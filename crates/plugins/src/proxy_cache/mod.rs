//! Caches responses of the upstream in memory and answers later requests with them.
//!
//! ```yaml
//! plugins:
//!   - name: proxy-cache
//!     service: catalogue
//!     config:
//!       strategy: memory
//!       content_type: ["application/json", "application/json; charset=utf-8"]
//!       cache_ttl: 60
//! ```
//!
//! ## What is cached
//!
//! Responses with a status in `response_code` and a type in `content_type`, to requests with a method in
//! `request_method`, for `cache_ttl` seconds. Types are compared with their parameters; `*` stands for any type or
//! subtype. Never cached are partial responses (206), those with `Set-Cookie` or `Vary: *`, incomplete ones, and those
//! longer than 8 MiB.
//!
//! With `cache_control`, `Cache-Control` or `Expires` of the response sets how long it is fresh. It is not cached if it
//! has `private`, `no-store` or `no-cache`, or neither header. Clients can send `no-store`, `no-cache`, `max-age`,
//! `min-fresh`, `max-stale` and `only-if-cached`; without one that allows it, they never get a stale response. Without
//! `cache_control` all of this is ignored.
//!
//! `storage_ttl` keeps responses longer than they are fresh, for clients that accept stale ones; 0 keeps them as long
//! as there is room.
//!
//! A request that changes a resource, such as a PUT to the same path, does not purge its response; use the Admin API.
//!
//! ## Which requests get it
//!
//! A cached response answers requests with the same route, consumer, method, scheme, host, path (also as it was sent),
//! query parameters (only those in `vary_query_params`, if set), headers in `vary_headers`, headers in the response's
//! `Vary`, `Authorization`, and headers with which authentication plugins identify the consumer. If a request has a
//! body, the body must be the same, too. If an upstream identifies its clients by a cookie, name it: `vary_headers:
//! [Cookie]`.
//!
//! The cache stores the upstream's response before other plugins change it: the other plugins of a route see each
//! response before it is sent, cached or not. A client that already has the response (`If-None-Match`,
//! `If-Modified-Since`) gets a 304.
//!
//! Of concurrent requests with the same key, one goes to the upstream; the others wait for its response, for at most 5
//! seconds. If it fails, one more goes to the upstream; if that fails too, or if the response must not be cached, all
//! do.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `X-Cache-Status` | `Hit`; `Miss`: not in the cache; `Refresh`: the cached response is too old; `Bypass`: not cacheable |
//! | `X-Cache-Key` | the key of the response, for the Admin API |
//! | `Age` | with a cached response: how many seconds ago the upstream made it |
//!
//! `response_headers` switches each of them; a request with `Kong-Debug` gets all of them.
//!
//! ## Memory
//!
//! All instances of a node share 128 MiB; beyond that, responses that were not requested lately are evicted. The cache
//! survives reloads, and each node has its own. Copies in progress count against the setting `mem_bodies_size`, of
//! which they use at most half; without room for a copy, the response is not cached. [The Admin
//! API](../admin-api.md#the-cache) shows and purges the cache.

mod admin;
mod capture;
mod key;
mod media_type;
mod rules;
mod store;
#[cfg(test)]
mod tests;

pub(super) use store::usage;

use capture::Capture;
use media_type::MediaType;
use rules::{Directives, Plan};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Cache, Joined, Lead, Stored, WAIT_TIMEOUT};
use weir_plugin::{
    AdminRoute, BuildContext, Bytes, Exchange, FieldWarning, Fingerprint, Flow, Hooks, Json, Known,
    LocalResponse, Phases, Plugin, Record, Resume, Streams, WantsBody,
};

/// Kong's name of the cache.
const DICTIONARY: &str = "kong_db_cache";

/// Which responses are cached, and for which requests.
#[derive(Debug, Clone, Record)]
#[record(hint("redis", "responses are kept in memory alone; leave it out"))]
pub(super) struct Config {
    /// Statuses of responses that are cached.
    #[field(default = [200, 301, 404], between = [100, 900], len_min = 1)]
    pub response_code: Vec<u16>,
    /// Methods of requests whose responses are cached.
    #[field(default = ["GET", "HEAD"], one_of = ["HEAD", "GET", "POST", "PATCH", "PUT"])]
    pub request_method: Vec<String>,
    /// Media types of responses that are cached, with their parameters.
    #[field(default = ["text/plain", "application/json"])]
    pub content_type: Vec<String>,
    /// How many seconds a response is fresh.
    #[field(default = 300, gt = 0)]
    pub cache_ttl: u32,
    /// Where responses are stored.
    #[field(one_of = ["memory"])]
    pub strategy: String,
    /// Respects `Cache-Control` and `Expires` of requests and responses.
    #[field(default = false)]
    pub cache_control: bool,
    /// Ignores the case of paths.
    #[field(default = false)]
    pub ignore_uri_case: bool,
    /// How many seconds a response is stored, even if it is fresh for a shorter time.
    pub storage_ttl: Option<u32>,
    /// Kong's memory store.
    #[field(default = {})]
    pub memory: Memory,
    /// The query parameters that are part of the key; all if unset.
    pub vary_query_params: Option<Vec<String>>,
    /// The request headers that are part of the key.
    pub vary_headers: Option<Vec<String>>,
    /// The headers that clients get.
    #[field(default = {})]
    pub response_headers: ResponseHeaders,
}

/// The memory that responses are stored in.
#[derive(Debug, Clone, Record)]
pub(super) struct Memory {
    /// Kong's name of the shared dictionary; it is part of the key.
    #[field(default = "kong_db_cache")]
    pub dictionary_name: String,
}

/// Headers about the cache.
#[derive(Debug, Clone, Record)]
pub(super) struct ResponseHeaders {
    /// Whether to send `Age`.
    #[field(default = true)]
    pub age: bool,
    /// Whether to send `X-Cache-Status`.
    #[field(name = "X-Cache-Status", default = true)]
    pub x_cache_status: bool,
    /// Whether to send `X-Cache-Key`.
    #[field(name = "X-Cache-Key", default = true)]
    pub x_cache_key: bool,
}

/// One configured instance.
pub(super) struct ProxyCache(Arc<Instance>);

struct Instance {
    config: Config,
    types: Vec<MediaType>,
    cache: Arc<Cache>,
}

/// The outcome of the lookup, for the response headers.
struct Outcome {
    status: Cell<&'static str>,
    key: Option<Arc<str>>,
    age: Option<u64>,
}

/// A request that the cache may answer.
struct Wanted {
    fingerprint: Fingerprint,
    /// The parts of the key.
    parts: Vec<u8>,
    directives: Directives,
    /// The status of the lookup if the request goes to the upstream.
    status: &'static str,
}

impl Plugin for ProxyCache {
    const NAME: &'static str = "proxy-cache";
    const PRIORITY: i32 = 100;
    const STREAMS: Streams = Streams::Accepted;
    const FOR_CONSUMER_GROUPS: bool = true;
    const ADMIN_ROUTES: &'static [AdminRoute] = admin::ROUTES;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        let other = config["memory"]["dictionary_name"].as_str().is_some_and(|name| name != DICTIONARY);
        let message = "all dictionaries share one cache of 128 MiB";
        if other { vec![FieldWarning::new("memory.dictionary_name", message)] } else { Vec::new() }
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let types = config.content_type.iter().filter_map(|text| MediaType::parse(text.as_bytes())).collect();
        Ok(Self(Arc::new(Instance { types, cache: build.retained.get(), config })))
    }
}

impl Hooks for ProxyCache {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        let mut methods = self.0.config.request_method.iter();
        let with_body = methods.any(|method| !matches!(method.as_str(), "GET" | "HEAD"));
        if with_body { WantsBody::Optional } else { WantsBody::No }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let instance = &self.0;
        let Some(mut wanted) = instance.wanted(exchange) else {
            exchange.extensions.insert(Outcome { status: Cell::new("Bypass"), key: None, age: None });
            return Flow::Continue;
        };
        let now = exchange.timing.start;
        if let Some(stored) = instance.cache.find(wanted.fingerprint, exchange, now) {
            if instance.accepts(&stored, &wanted.directives, now) {
                return hit(&stored, exchange, now);
            }
            wanted.status = "Refresh";
        }
        if wanted.directives.only_if_cached {
            let key = Some(key::text(&wanted.parts));
            exchange.extensions.insert(Outcome { status: Cell::new(""), key, age: None });
            return Flow::Respond(LocalResponse::raw(504, None, Bytes::new()));
        }
        instance.ask(exchange, wanted, None)
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(outcome) = exchange.extensions.get::<Outcome>() else { return };
        let (status, key, age) = (outcome.status.get(), outcome.key.clone(), outcome.age);
        let enabled = &self.0.config.response_headers;
        let all = exchange.header(Known::KongDebug).is_some();
        let headers = &mut exchange.response.headers;
        if let Some(age) = age.filter(|_| enabled.age || all) {
            headers.append("Age", itoa::Buffer::new().format(age).as_bytes());
        }
        if (enabled.x_cache_status || all) && !status.is_empty() {
            headers.set("X-Cache-Status", status.as_bytes());
        }
        if let Some(key) = key.filter(|_| enabled.x_cache_key || all) {
            headers.set("X-Cache-Key", key.as_bytes());
        }
    }
}

impl Instance {
    /// The lookup for this request; none if it is not cacheable.
    fn wanted(&self, exchange: &Exchange) -> Option<Wanted> {
        let method = exchange.request.method_str();
        let headers = &exchange.request.headers;
        let is_cacheable = self.config.request_method.iter().any(|cacheable| cacheable == method)
            && !headers.contains_known(Known::Upgrade)
            && !headers
                .get_known(Known::ContentType)
                .is_some_and(|kind| kind.starts_with(b"application/grpc"))
            && (!exchange.has_body() || self.reads_body(exchange));
        if !is_cacheable {
            return None;
        }
        let directives = match self.config.cache_control {
            true => Directives::of(headers.get_all_known(Known::CacheControl)),
            false => Directives::default(),
        };
        if directives.no_store || directives.no_cache {
            return None;
        }
        let parts = key::parts(&self.config, exchange);
        Some(Wanted { fingerprint: self.cache.key.of(&parts), parts, directives, status: "Miss" })
    }

    /// Whether the body was buffered; another plugin may have requested that, too.
    fn reads_body(&self, exchange: &Exchange) -> bool {
        !matches!(exchange.request.method_str(), "GET" | "HEAD") && exchange.body().is_some()
    }

    /// Whether a cached response may answer the request.
    fn accepts(&self, stored: &Stored, asked: &Directives, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(stored.since);
        if self.config.cache_control {
            stored.is_acceptable(elapsed, asked)
        } else {
            elapsed < Duration::from_secs(self.config.cache_ttl.into())
        }
    }

    /// Sends the request to the upstream, or waits for a request with the same key that is in flight. If that one
    /// fails, one of those that wait takes its place, once and within the same time limit.
    fn ask(self: &Arc<Self>, exchange: &mut Exchange, wanted: Wanted, waited: Option<Instant>) -> Flow {
        let headers = &exchange.request.headers;
        // The response to these may be of no use to other requests.
        let is_particular = headers.contains_known(Known::Range)
            || ["If-None-Match", "If-Modified-Since"].iter().any(|name| headers.get(name).is_some());
        let joined =
            if is_particular { Joined::Alone } else { self.cache.join(wanted.fingerprint, Instant::now()) };
        match joined {
            Joined::Alone => self.fetch(exchange, &wanted, None),
            Joined::Leads(lead) => self.fetch(exchange, &wanted, Some(lead)),
            Joined::Follows(mut leader) => {
                let instance = self.clone();
                let until = waited.unwrap_or_else(|| Instant::now() + WAIT_TIMEOUT);
                let again = Some(until).filter(|_| waited.is_none());
                return Flow::Wait(Box::pin(async move {
                    // No value is ever sent: the channel closes.
                    let _ = tokio::time::timeout_at(until.into(), leader.changed()).await;
                    let resume: Resume = Box::new(move |exchange| instance.waited(exchange, wanted, again));
                    resume
                }));
            }
        }
        Flow::Continue
    }

    /// The other request has ended, with or without a response in the cache.
    fn waited(self: &Arc<Self>, exchange: &mut Exchange, wanted: Wanted, again: Option<Instant>) -> Flow {
        let now = Instant::now();
        match self.cache.find(wanted.fingerprint, exchange, now) {
            Some(stored) if self.accepts(&stored, &wanted.directives, now) => hit(&stored, exchange, now),
            _ if again.is_some_and(|until| now < until) => self.ask(exchange, wanted, again),
            _ => {
                self.fetch(exchange, &wanted, None);
                Flow::Continue
            }
        }
    }

    /// Sends the request to the upstream, and stores the response.
    fn fetch(self: &Arc<Self>, exchange: &mut Exchange, wanted: &Wanted, lead: Option<Lead>) {
        let key = key::text(&wanted.parts);
        exchange.extensions.insert(Outcome {
            status: Cell::new(wanted.status),
            key: Some(key.clone()),
            age: None,
        });
        let plan = Plan { instance: self.clone() };
        exchange.observe_upstream(Capture::new(plan, self.cache.clone(), (wanted.fingerprint, key), lead));
    }
}

/// Answers with a cached response.
fn hit(stored: &Arc<Stored>, exchange: &mut Exchange, now: Instant) -> Flow {
    let elapsed = now.saturating_duration_since(stored.since);
    let age = Some(stored.term.age_before + elapsed.as_secs());
    exchange.extensions.insert(Outcome { status: Cell::new("Hit"), key: Some(stored.key.clone()), age });
    if rules::is_known_to_client(stored, &exchange.request) {
        return Flow::Respond(rules::not_modified(stored));
    }
    Flow::Respond(LocalResponse::cached(stored.status, stored.headers.clone(), stored.body.clone()))
}
