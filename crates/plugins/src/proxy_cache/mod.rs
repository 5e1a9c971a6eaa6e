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
mod conditions;
mod config;
mod directives;
mod freshness;
mod in_flight;
mod key;
mod lookup;
mod media_type;
mod ranges;
mod resources;
mod storable;
mod store;
mod stored;
mod structured;
mod subject;
#[cfg(test)]
mod tests;
mod vary;

pub(super) use store::usage;

use config::Config;
use lookup::{Instance, Outcome};
use media_type::MediaType;
use std::sync::Arc;
use weir_plugin::{
    AdminRoute, BuildContext, Exchange, FieldWarning, Flow, Hooks, Json, Known, Phases, Plugin, Streams,
    WantsBody,
};

/// Kong's name of the cache.
const DICTIONARY: &str = "kong_db_cache";

/// One configured instance.
pub(super) struct ProxyCache(Arc<Instance>);

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
        self.0.access(exchange)
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(outcome) = exchange.extensions.get::<Outcome>() else { return };
        let (status, key, age) = (outcome.status.get(), outcome.key.borrow().clone(), outcome.age);
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
