//! Caches responses of the upstream, in memory or in Redis, and answers later requests with them.
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
//! ## With `cache_control`
//!
//! The plugin is then a shared cache as RFC 9111 describes it. Without `cache_control` it ignores all of this section, as
//! Kong does by default.
//!
//! `Cache-Control` or `Expires` of the response sets how long it is fresh; `cache_ttl` does not count. A response that has
//! neither is fresh for a tenth of the time since its `Last-Modified`, for a day at most, if its status allows that. It is not
//! cached if it has `private` or `no-store`, or if it is not fresh and nothing lets the upstream confirm it. Headers that
//! `private` or `no-cache` names are not stored. If there is a `CDN-Cache-Control` (RFC 9213), it counts instead of both.
//!
//! | directive of the response | effect |
//! |---|---|
//! | `no-cache` | the upstream confirms the response before each use |
//! | `must-revalidate`, `proxy-revalidate`, `s-maxage` | no client gets it stale |
//! | `stale-while-revalidate=SECONDS` | it is sent stale for so long, and the upstream is asked in the background |
//! | `stale-if-error=SECONDS` | it is sent stale for so long if the upstream fails, or answers 500, 502, 503 or 504 |
//! | `must-understand` | it is cached in spite of `no-store` if its status is one of the registered ones, and not otherwise |
//! | `public`, `s-maxage`, `must-revalidate` | it answers requests with any `Authorization`, and without one |
//!
//! A stale response with an `ETag` or a `Last-Modified` is not fetched again: the upstream is asked with `If-None-Match` and
//! `If-Modified-Since`, and its 304 makes the response fresh. Such responses are stored as long as there is room; others
//! for as long as they may be sent.
//!
//! Clients can send `no-store`, `no-cache`, `max-age`, `min-fresh`, `max-stale`, `stale-if-error` and `only-if-cached`. A `Range`
//! is served from a response that is stored whole (206, or 416), also with `If-Range`; several ranges get the whole. A
//! response to GET answers HEAD.
//!
//! A successful response to a request with another method, such as PUT or DELETE, removes what is stored of that URI, for
//! all consumers, and of the URIs in its `Location` and `Content-Location` if they have the same host. GET, HEAD,
//! OPTIONS, TRACE, PROPFIND, REPORT, SEARCH, QUERY and the methods in `request_method` remove nothing.
//!
//! `storage_ttl` sets how long responses are stored, fresh or stale; 0 keeps them as long as there is room.
//!
//! ## Which requests get it
//!
//! A cached response answers requests with the same route, consumer, method, scheme, host, path (also as it was sent),
//! query parameters (only those in `vary_query_params`, if set), headers in `vary_headers`, headers in the response's
//! `Vary`, `Authorization`, and headers with which authentication plugins identify the consumer. If a request has a
//! body, the body must be the same, too. If an upstream identifies its clients by a cookie, name it: `vary_headers:
//! [Cookie]`. In headers that `Vary` names, blanks around commas do not matter, and in `Accept`, `Accept-Charset`,
//! `Accept-Encoding` and `Accept-Language` neither do case and order.
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
//! | `X-Cache-Status` | `Hit`; `Miss`: not in the cache; `Refresh`: the cached response is too old, so the upstream was asked; `Bypass`: not cacheable |
//! | `X-Cache-Key` | the key of the response, for the Admin API |
//! | `Age` | with a cached response: how many seconds ago the upstream made it |
//!
//! `response_headers` switches each of them; a request with `Kong-Debug` gets all of them. A cached response also has
//! `X-Kong-Upstream-Latency`, `X-Kong-Proxy-Latency` and `X-Kong-Upstream-Status`, as one of the upstream does.
//!
//! ## Memory
//!
//! All instances of a node share 128 MiB; beyond that, responses that were not requested lately are evicted. The cache
//! survives reloads, and each node has its own. Copies in progress count against the setting `mem_bodies_size`, of
//! which they use at most half; without room for a copy, the response is not cached.
//!
//! ## Redis
//!
//! With `strategy: redis` the nodes share what they store, in Redis or Valkey:
//!
//! ```yaml
//! plugins:
//!   - name: proxy-cache
//!     config:
//!       strategy: redis
//!       redis: { host: redis.example.com, timeout: 100 }
//! ```
//!
//! A request waits for the server's reply, for at most `redis.timeout` milliseconds. While the server does not answer,
//! requests go on without the cache, and the log says so once. A response is stored for a day at most, and not if
//! it is longer than 1 MiB. Let Redis evict what is over its memory: `maxmemory-policy allkeys-lru`. The user needs GET,
//! SET, DEL, EXISTS, SCAN, ZADD, ZRANGE, ZREMRANGEBYSCORE, PEXPIRE and SCRIPT LOAD on the keys `proxy-cache:*`.
//!
//! ## Purges
//!
//! [The Admin API](../admin-api.md#the-cache) shows what a node has in memory, and purges responses by key, by the
//! beginning of their path, and by tag. The upstream names the tags of a response in `Surrogate-Key`, separated by spaces,
//! or in `Cache-Tag`, separated by commas. A purge on any node removes what is in Redis, some time soon. If Redis does not
//! answer, that node makes it later, and does not use the cache before, not even with other settings in `redis`. If Redis
//! refuses it, because the user lacks a permission, the node gives it up after ten seconds, and the log says which: the
//! responses are then sent until they expire.

mod admin;
mod capture;
mod conditions;
mod config;
mod directives;
mod freshness;
mod handover;
mod in_flight;
mod key;
mod lookup;
mod media_type;
mod ranges;
mod record;
mod redis;
mod resources;
mod ruled;
mod shared_lookup;
mod storable;
mod store;
mod stored;
mod structured;
mod subject;
#[cfg(test)]
mod tests;
mod vary;

pub(super) use ruled::{RuledCache, Rules, Terms, have_value};
pub(super) use store::usage;

use config::Config;
use lookup::{Instance, Outcome};
use media_type::MediaType;
use redis::RedisCache;
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, AdminRoute, BuildContext, Exchange, FieldWarning, Flow, Handover, Hooks, Json, Known,
    Phases, Plugin, Streams, WantsBody,
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
    const HANDOVERS: &'static [Handover] = &[handover::HANDOVER];
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        let other = config["memory"]["dictionary_name"].as_str().is_some_and(|name| name != DICTIONARY);
        let message = "all dictionaries share one cache of 128 MiB";
        if other { vec![FieldWarning::new("memory.dictionary_name", message)] } else { Vec::new() }
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let types = config.content_type.iter().filter_map(|text| MediaType::parse(text.as_bytes())).collect();
        let redis = config.redis.as_ref().map(|redis| RedisCache::of(redis, build)).transpose()?;
        Ok(Self(Arc::new(Instance {
            types: Some(types),
            cache: build.retained.get(),
            redis,
            rules: None,
            config,
        })))
    }
}

impl Hooks for ProxyCache {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn wants_body(&self) -> WantsBody {
        self.0.wants_body()
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        self.0.access_effect(exchange)
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
