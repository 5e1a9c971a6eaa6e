//! Limits how many requests a client can make per second, minute, hour, day, month or year.
//!
//! Windows follow the calendar in UTC: a minute's count starts again with the next minute of the clock. Counting is
//! exact: of k concurrent requests against n remaining, min(k, n) pass, on any number of workers; a request that one
//! limit refuses uses up nothing of the others. Counts survive reloads.
//!
//! ```yaml
//! plugins:
//!   - name: rate-limiting
//!     service: orders
//!     config:
//!       minute: 60
//!       hour: 1000
//!       limit_by: consumer
//! ```
//!
//! ## What requests are counted by
//!
//! `limit_by` says which requests are counted together. If a request has no such identifier, it is counted by the
//! client's address; `consumer` falls back to the credential first. Counts belong to the scope of the plugin: one on a
//! service counts the requests of all its routes together, a global one counts all requests.
//!
//! ## Responses
//!
//! | header | on | value |
//! |---|---|---|
//! | `X-RateLimit-Limit-Minute` and so on | every response, per limit | the limit |
//! | `X-RateLimit-Remaining-Minute` and so on | every response, per limit | what is left after this request |
//! | `RateLimit-Limit`, `RateLimit-Remaining` | every response | those of the limit with the least left; if two are equal, the longer one |
//! | `RateLimit-Reset` | every response | seconds until that limit is reset |
//! | `Retry-After` | refused requests | the same |
//!
//! A refused request is answered with `error_code` (429) and `error_message`. `hide_client_headers` leaves out all of
//! these headers.
//!
//! ## Policies
//!
//! | policy | where counts are | how many pass |
//! |---|---|---|
//! | `local` | in this node's memory | exactly the limit, on each node by itself |
//! | `redis` | in Redis or Valkey | exactly the limit, on all nodes together |
//! | `redis` with a `sync_rate` | in memory, exchanged in the background | the limit, and what the nodes let pass within `sync_rate` seconds of each other |
//! | `cluster` | in the PostgreSQL database of the nodes | exactly the limit, on all nodes together |
//!
//! Memory holds up to a million clients at a time; beyond that the counts of some are evicted early. With
//! ten nodes and a `sync_rate` of 0.5, a window lets at most as many requests pass beyond the limit as nine nodes receive
//! in half a second. A crash of PostgreSQL may lose the last counts, because requests do not wait for its disk; what
//! Redis persists depends on its configuration.
//!
//! With `redis` and `cluster` a request waits for one reply of the store. The queries of concurrent requests are sent
//! together over one connection to each server; those with the same key are one query. With a `sync_rate` requests do
//! not wait.
//!
//! Keys in Redis and rows in PostgreSQL are Kong's (`ratelimit:ROUTE:SERVICE:IDENTIFIER:MILLISECONDS:PERIOD`, and the
//! table `ratelimiting_metrics`), so nodes of Kong and of Weir can count together. In a Redis Cluster, which Kong does
//! not support, the part of the key that identifies the client is in braces, so that all its keys are on one server;
//! while a slot moves to another server, each node counts by itself. An identifier of more than 256 bytes, or one that
//! is not UTF-8, is replaced by its SHA-256.
//!
//! If the Redis user is restricted by ACLs, it needs `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `GET`, `INCRBY` and `EXPIRE` on
//! the keys `ratelimit:*` (Weir probes a server that failed with `ratelimit:probe`) and, for response-ratelimiting,
//! `response-ratelimit:*`. PostgreSQL must have an encoding that can store every text, such as UTF8.
//! ```yaml
//! plugins:
//!   - name: rate-limiting
//!     config:
//!       minute: 600
//!       policy: redis
//!       sync_rate: 0.5
//!       redis: { host: redis.example.com, ssl: true, ssl_verify: true, password: secret }
//! ```
//!
//! The fields of `redis` also have their former names in Kong, `redis_host` and the like: they are accepted, and the
//! Admin API shows them. If both are set they must be equal.
//!
//! Sentinels are configured by `sentinel_master` and `sentinel_nodes`, a Redis Cluster by `cluster_nodes`, as in Kong
//! Enterprise. `ssl_verify` verifies with the node's `lua_ssl_trusted_certificate`.
//!
//! ## When the store is unavailable
//!
//! If a request gets no reply within `timeout`, no further request waits for the store until it replies again, which
//! Weir checks every second. Meanwhile this node counts requests itself, beginning with what it knows of the shared
//! counts, and reports its counts when the store is back. With `fault_tolerant: false` requests are answered 500
//! instead, except with a `sync_rate`, which never waits. Kong lets requests pass without limits meanwhile.
//!
//! A query that was in flight when the store failed may be counted twice, by the store and by this node: limits are
//! then reached earlier, never later.
//!
//! ## Sliding windows
//!
//! With `window_type: sliding`, which only Kong Enterprise has, a client cannot use its limit twice around the end of a
//! window. The usage is
//!
//! ```text
//! used = count of this window + ⌊ count of the last window × what is left of this window ÷ length of this window ⌋
//! ```
//!
//! in milliseconds. A refused client that sends nothing until then is admitted after `Retry-After` (or
//! `RateLimit-Reset`) seconds.

use super::limits::{
    HANDOVERS, Identifier, Limit, Limiter, Periods, Policy, Redis, Reserved, SentQuery, Usage, written,
};
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Fingerprinter, Flow, Handover, Headers, Hooks, Known, LocalResponse,
    Phases, Plugin, Record, Resume,
};

/// The limits, and what clients see of them.
#[derive(Debug, Clone, Record)]
#[record(check = violations, old_names = Redis::OLD_NAMES)]
#[record(hint(
    "limit",
    "window_size",
    "this is Kong Enterprise's; write the limit under its period: `minute: 5` for a `limit` of 5 with a `window_size` \
     of 60"
))]
#[record(hint("strategy", "this is Kong Enterprise's; write `policy`"))]
#[record(hint("identifier", "this is Kong Enterprise's; write `limit_by`"))]
#[record(hint(
    "namespace",
    "dictionary_name",
    "lock_dictionary_name",
    "disable_penalty",
    "retry_after_jitter_max",
    "throttling",
    "consumer_groups",
    "enforce_consumer_groups",
    "this is Kong Enterprise's; leave it out"
))]
pub(super) struct Config {
    /// The limits.
    #[field(flatten)]
    pub periods: Periods,
    /// The identifier that requests are counted by.
    #[field(nullable, default = "consumer", one_of = ["consumer", "credential", "ip", "service", "header", "path"])]
    pub limit_by: String,
    /// With `limit_by: header`: the header.
    #[field(matches = header_name)]
    pub header_name: Option<String>,
    /// With `limit_by: path`: the path.
    #[field(starts_with = "/")]
    pub path: Option<String>,
    /// Where counts are kept.
    #[field(nullable, default = "local", one_of = ["local", "cluster", "redis"])]
    pub policy: String,
    /// Counts requests on this node while the store is unavailable; otherwise they are answered 500.
    #[field(default = true)]
    pub fault_tolerant: bool,
    /// How to connect to Redis, for policy `redis`.
    #[field(default = {})]
    pub redis: Redis,
    /// Sends clients no headers about limits.
    #[field(default = false)]
    pub hide_client_headers: bool,
    /// The status of refused requests.
    #[field(nullable, default = 429, between = [200, 599])]
    pub error_code: u16,
    /// The message of refused requests.
    #[field(nullable, default = "API rate limit exceeded")]
    pub error_message: String,
    /// How often counts are synchronized with Redis, in seconds from 0.02; -1 for each request.
    #[field(default = -1)]
    pub sync_rate: f64,
    /// Whether windows are fixed or sliding.
    #[field(extension, default = "fixed", one_of = ["fixed", "sliding"])]
    pub window_type: String,
}

impl Config {
    fn policy(&self) -> Policy<'_> {
        let Self { policy, redis, sync_rate, window_type, .. } = self;
        Policy { name: policy, redis, sync_rate: *sync_rate, window_type }
    }
}

/// The identifier that requests are counted by.
enum LimitBy {
    Consumer,
    Credential,
    Ip,
    Service,
    Header(String),
    Path(String),
}

/// One configured instance.
pub(super) struct RateLimiting {
    rules: Arc<Rules>,
    by: LimitBy,
    limiter: Limiter,
    /// Fingerprints of this scope's identifiers, and of addresses for requests without an identifier.
    identifiers: Fingerprinter,
    addresses: Fingerprinter,
}

/// The limits, and the responses to requests that exceed them.
struct Rules {
    limits: Arc<[Limit]>,
    fault_tolerant: bool,
    hide_client_headers: bool,
    error_code: u16,
    error_message: String,
}

impl Plugin for RateLimiting {
    const NAME: &'static str = "rate-limiting";
    const PRIORITY: i32 = 910;
    const HANDOVERS: &'static [Handover] = HANDOVERS;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let limiter = Limiter::new(config.policy(), build)?;
        Ok(Self {
            identifiers: limiter.key.clone().with(config.limit_by.as_bytes()),
            addresses: limiter.key.clone().with(b"ip"),
            limiter,
            rules: Arc::new(Rules {
                limits: config.periods.limits().into(),
                fault_tolerant: config.fault_tolerant,
                hide_client_headers: config.hide_client_headers,
                error_code: config.error_code,
                error_message: config.error_message,
            }),
            by: match (config.limit_by.as_str(), config.header_name, config.path) {
                ("credential", ..) => LimitBy::Credential,
                ("ip", ..) => LimitBy::Ip,
                ("service", ..) => LimitBy::Service,
                ("header", Some(name), _) => LimitBy::Header(name),
                ("path", _, Some(path)) => LimitBy::Path(path),
                _ => LimitBy::Consumer,
            },
        })
    }
}

/// The rules that span several fields.
fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = config.policy().violations();
    let needed =
        [("header", "header_name", config.header_name.is_some()), ("path", "path", config.path.is_some())];
    for (by, field, given) in needed {
        if config.limit_by == by && !given {
            found.push(FieldError::new(field, format!("required with `limit_by: {by}`")));
        }
    }
    found
}

impl Hooks for RateLimiting {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(!self.rules.hide_client_headers)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let identifier = self.identifier(exchange);
        let (key, identifier) = match identifier {
            Some(identifier) => (&self.identifiers, identifier),
            None => (&self.addresses, Identifier::Address(exchange.client_ip)),
        };
        match self.limiter.reserve(identifier.fingerprint(key), identifier, &self.rules.limits) {
            Reserved::Now(usage) => self.rules.decide(exchange, usage),
            Reserved::Later(query) => self.rules.clone().decide_later(exchange, query),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        if let Some(usage) = exchange.extensions.get::<Usage>().copied() {
            self.rules.set_headers(&usage, &mut exchange.response.headers);
        }
    }
}

impl RateLimiting {
    fn identifier<'e>(&self, exchange: &'e Exchange) -> Option<Identifier<'e>> {
        let consumer = || exchange.consumer().map(|consumer| consumer.entity.id);
        match &self.by {
            LimitBy::Consumer => consumer().or_else(|| exchange.credential()).map(Identifier::Id),
            LimitBy::Credential => exchange.credential().map(Identifier::Id),
            LimitBy::Ip => None,
            LimitBy::Service => exchange.service().map(|service| Identifier::Id(service.id)),
            LimitBy::Header(name) => exchange.request.headers.get(name).map(Identifier::Sent),
            LimitBy::Path(path) => {
                let sent = exchange.path();
                (sent == path).then_some(Identifier::Sent(sent.as_bytes()))
            }
        }
    }
}

impl Rules {
    fn decide(&self, exchange: &mut Exchange, usage: Usage) -> Flow {
        if !self.hide_client_headers {
            exchange.extensions.insert(usage);
        }
        if usage.admitted {
            return Flow::Continue;
        }
        Flow::Respond(LocalResponse::error(self.error_code, &self.error_message))
    }

    /// Decides when the store has replied, or else as the configuration says.
    fn decide_later(self: Arc<Self>, exchange: &mut Exchange, mut query: SentQuery) -> Flow {
        if query.is_unavailable() {
            return self.decide_alone(exchange, &query);
        }
        Flow::Wait(Box::pin(async move {
            let answered = query.answered().await;
            let resume: Resume = Box::new(move |exchange| match answered {
                Some(usage) => self.decide(exchange, usage),
                None => self.decide_alone(exchange, &query),
            });
            resume
        }))
    }

    fn decide_alone(&self, exchange: &mut Exchange, query: &SentQuery) -> Flow {
        if self.fault_tolerant {
            return self.decide(exchange, query.reserve_here());
        }
        Flow::Respond(LocalResponse::error(500, "An unexpected error occurred"))
    }

    fn set_headers(&self, usage: &Usage, headers: &mut Headers) {
        let mut numbers = Numbers::new(headers);
        let mut scarcest: Option<(f64, &Limit)> = None;
        for limit in &*self.limits {
            let remaining = (limit.value - usage.used[limit.period as usize] as f64).max(0.0);
            numbers.put(limit.period.limit_header(), limit.value);
            numbers.put(limit.period.remaining_header(), remaining);
            // Limits are sorted, shortest first, so if two are equal the longer one wins.
            if scarcest.is_none_or(|(least, _)| remaining <= least) {
                scarcest = Some((remaining, limit));
            }
        }
        let Some((remaining, limit)) = scarcest else { return };
        let reset = match usage.wait {
            0 => limit.period.reset(usage.now) as f64,
            wait => f64::from(wait),
        };
        numbers.put("RateLimit-Limit", limit.value);
        numbers.put("RateLimit-Remaining", remaining);
        numbers.put("RateLimit-Reset", reset);
        if !usage.admitted {
            numbers.put("Retry-After", reset);
        }
    }
}

/// Writes numbers into headers, which replace those of the upstream's own limits.
struct Numbers<'h> {
    headers: &'h mut Headers,
    /// Whether the upstream sent such headers; checked once, because hardly any does.
    replace: bool,
}

impl<'h> Numbers<'h> {
    fn new(headers: &'h mut Headers) -> Self {
        let starts = |name: &[u8], with: &[u8]| {
            name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
        };
        let replace = headers.iter().filter(|field| field.known == Known::Other).any(|field| {
            starts(field.name, b"ratelimit-")
                || starts(field.name, b"x-ratelimit-")
                || starts(field.name, b"retry-after")
        });
        Self { headers, replace }
    }

    fn put(&mut self, name: &'static str, value: f64) {
        written(value, |value| {
            if self.replace {
                self.headers.set(name, value.as_bytes());
            } else {
                self.headers.append_unchecked(Known::Other, name, value.as_bytes());
            }
        });
    }
}

#[cfg(test)]
mod tests;
