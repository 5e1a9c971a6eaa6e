//! Keeps responses of the upstream in memory and answers later requests with them.
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
//! ## What is kept
//!
//! Responses with a status of `response_code` and a type of `content_type` to requests with a method of
//! `request_method`, for `cache_ttl` seconds. A type is compared with its parameters; `*` stands for any type or
//! subtype. Never kept are parts of a response (206), those with `Set-Cookie` or `Vary: *`, those that break off, and
//! those longer than 8 MiB.
//!
//! With `cache_control` the response says how long it is good for, by `Cache-Control` or `Expires`: it is not kept where
//! it says `private`, `no-store` or `no-cache`, or nothing at all. The client may ask for more by `no-store`, `no-cache`,
//! `max-age`, `min-fresh`, `max-stale` and `only-if-cached`; what none of these allows is never answered from a stale
//! response. Without `cache_control` all of this is ignored.
//!
//! `storage_ttl` keeps responses longer than they are good for, for clients that take stale ones; 0 keeps them for as long
//! as there is room.
//!
//! A request that changes what is kept, such as a PUT to the same path, does not remove it: that is for the Admin API.
//!
//! ## Who gets it
//!
//! A response answers requests that have in common: the route, the consumer, the method, scheme, host and path (as it was sent, too), the query's
//! parameters (`vary_query_params` names those that matter), the headers in `vary_headers`, those that the response
//! names in `Vary`, `Authorization`, and what an authentication plugin tells the upstream of the caller. Of requests with a
//! body, the body too. Where an upstream knows its callers by a cookie, name it: `vary_headers: [Cookie]`.
//!
//! What is kept is what the upstream has said: the other plugins of a route see each response before it goes out, be it
//! kept or new. A client that has the response already (`If-None-Match`, `If-Modified-Since`) is answered 304.
//!
//! Of requests for the same at once, one is passed on; the others wait for its response, for 5 seconds at most. If it
//! fails, another one is; if its response is not to be kept, or that one fails too, all are passed on.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `X-Cache-Status` | `Hit`; `Miss`: not kept yet; `Refresh`: what is kept is too old; `Bypass`: not to be kept |
//! | `X-Cache-Key` | what the Admin API calls the response by |
//! | `Age` | with a kept response: how many seconds ago the upstream made it |
//!
//! `response_headers` switches each of them; a request with `Kong-Debug` gets them all.
//!
//! ## Memory
//!
//! All instances of a node share 128 MiB; beyond that, what was not asked for lately gives way. What is kept outlives
//! reloads, and stays on its node. Copies in the making count against the setting `mem_bodies_size`, of which they use half
//! at most; without room for one, its response is not kept. [The Admin API](../admin-api.md#the-cache) shows and removes it.

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
use store::{Cache, Joined, Lead, PATIENCE, Stored};
use weir_plugin::{
    AdminRoute, BuildContext, Bytes, Exchange, FieldWarning, Fingerprint, Flow, Hooks, Json, Known,
    LocalResponse, Plugin, Record, Resume, Streams, WantsBody,
};

/// The name that Kong gives the memory.
const DICTIONARY: &str = "kong_db_cache";

/// Which responses are kept, and for whom.
#[derive(Debug, Clone, Record)]
#[record(hint("redis", "responses are kept in memory alone; leave it out"))]
pub(super) struct Config {
    /// Statuses of responses that are kept.
    #[field(default = [200, 301, 404], between = [100, 900], len_min = 1)]
    pub response_code: Vec<u16>,
    /// Methods of requests whose responses are kept.
    #[field(default = ["GET", "HEAD"], one_of = ["HEAD", "GET", "POST", "PATCH", "PUT"])]
    pub request_method: Vec<String>,
    /// Types of responses that are kept, with their parameters.
    #[field(default = ["text/plain", "application/json"])]
    pub content_type: Vec<String>,
    /// How many seconds a response is good for.
    #[field(default = 300, gt = 0)]
    pub cache_ttl: u32,
    /// Where responses are kept.
    #[field(one_of = ["memory"])]
    pub strategy: String,
    /// Heeds `Cache-Control` and `Expires`, of requests and of responses.
    #[field(default = false)]
    pub cache_control: bool,
    /// Takes paths that differ in case for the same.
    #[field(default = false)]
    pub ignore_uri_case: bool,
    /// How many seconds a response is kept, however long it is good for.
    pub storage_ttl: Option<u32>,
    /// Kong's memory.
    #[field(default = {})]
    pub memory: Memory,
    /// The query's parameters that matter; all, if none is named.
    pub vary_query_params: Option<Vec<String>>,
    /// The request's headers that matter.
    pub vary_headers: Option<Vec<String>>,
    /// What clients are told.
    #[field(default = {})]
    pub response_headers: ResponseHeaders,
}

/// The memory that responses are kept in.
#[derive(Debug, Clone, Record)]
pub(super) struct Memory {
    /// The name of Kong's memory; responses under another name are other ones.
    #[field(default = "kong_db_cache")]
    pub dictionary_name: String,
}

/// Headers that tell of the cache.
#[derive(Debug, Clone, Record)]
pub(super) struct ResponseHeaders {
    /// Whether `Age` is told.
    #[field(default = true)]
    pub age: bool,
    /// Whether `X-Cache-Status` is told.
    #[field(name = "X-Cache-Status", default = true)]
    pub x_cache_status: bool,
    /// Whether `X-Cache-Key` is told.
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

/// What clients are told.
struct Outcome {
    status: Cell<&'static str>,
    key: Option<Arc<str>>,
    age: Option<u64>,
}

/// A request that a kept response may answer.
struct Wanted {
    fingerprint: Fingerprint,
    /// What makes up the key.
    parts: Vec<u8>,
    directives: Directives,
    /// What it is called if the upstream has to be asked.
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
        let message = "all names share one memory of 128 MiB";
        if other { vec![FieldWarning::new("memory.dictionary_name", message)] } else { Vec::new() }
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let types = config.content_type.iter().filter_map(|text| MediaType::parse(text.as_bytes())).collect();
        Ok(Self(Arc::new(Instance { types, cache: build.retained.get(), config })))
    }
}

impl Hooks for ProxyCache {
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
        let told = &self.0.config.response_headers;
        let all = exchange.header(Known::KongDebug).is_some();
        let headers = &mut exchange.response.headers;
        if let Some(age) = age.filter(|_| told.age || all) {
            headers.append("Age", itoa::Buffer::new().format(age).as_bytes());
        }
        if (told.x_cache_status || all) && !status.is_empty() {
            headers.set("X-Cache-Status", status.as_bytes());
        }
        if let Some(key) = key.filter(|_| told.x_cache_key || all) {
            headers.set("X-Cache-Key", key.as_bytes());
        }
    }
}

impl Instance {
    /// What to look for; nothing, where the request is none that a kept response may answer.
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

    /// Whether the body was collected, which it may be for another plugin too.
    fn reads_body(&self, exchange: &Exchange) -> bool {
        !matches!(exchange.request.method_str(), "GET" | "HEAD") && exchange.body().is_some()
    }

    /// Whether a kept response may answer such a request.
    fn accepts(&self, stored: &Stored, asked: &Directives, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(stored.since);
        if self.config.cache_control {
            stored.is_acceptable(elapsed, asked)
        } else {
            elapsed < Duration::from_secs(self.config.cache_ttl.into())
        }
    }

    /// Leaves the question to the upstream, or to a request that has asked it already. Where that one breaks off, the
    /// others leave it to one of them, once more and no longer than they would have waited.
    fn ask(self: &Arc<Self>, exchange: &mut Exchange, wanted: Wanted, waited: Option<Instant>) -> Flow {
        let headers = &exchange.request.headers;
        // The answer to these may be of no use to others.
        let is_particular = headers.contains_known(Known::Range)
            || ["If-None-Match", "If-Modified-Since"].iter().any(|name| headers.get(name).is_some());
        let joined =
            if is_particular { Joined::Alone } else { self.cache.join(wanted.fingerprint, Instant::now()) };
        match joined {
            Joined::Alone => self.fetch(exchange, &wanted, None),
            Joined::Leads(lead) => self.fetch(exchange, &wanted, Some(lead)),
            Joined::Follows(mut leader) => {
                let instance = self.clone();
                let until = waited.unwrap_or_else(|| Instant::now() + PATIENCE);
                let again = Some(until).filter(|_| waited.is_none());
                return Flow::Wait(Box::pin(async move {
                    // Nothing is ever said: it ends.
                    let _ = tokio::time::timeout_at(until.into(), leader.changed()).await;
                    let resume: Resume = Box::new(move |exchange| instance.waited(exchange, wanted, again));
                    resume
                }));
            }
        }
        Flow::Continue
    }

    /// Another request has brought the response, or not.
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

    /// Has the upstream asked, and its response kept.
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

/// Answers with what is kept.
fn hit(stored: &Arc<Stored>, exchange: &mut Exchange, now: Instant) -> Flow {
    let elapsed = now.saturating_duration_since(stored.since);
    let age = Some(stored.term.age_before + elapsed.as_secs());
    exchange.extensions.insert(Outcome { status: Cell::new("Hit"), key: Some(stored.key.clone()), age });
    if rules::is_known_to_client(stored, &exchange.request) {
        return Flow::Respond(rules::not_modified(stored));
    }
    Flow::Respond(LocalResponse::cached(stored.status, stored.headers.clone(), stored.body.clone()))
}
