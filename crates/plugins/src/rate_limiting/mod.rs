//! Lets a client make only so many requests per second, minute, hour, day, month or year.
//!
//! Windows follow the calendar in UTC: a minute's count starts anew when the clock's minute does. Counting is exact:
//! of k requests at once against n remaining, min(k, n) pass, on however many workers; a request that one limit
//! refuses uses up nothing of the others. Counts are kept across reloads.
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
//! ## Who is counted
//!
//! `limit_by` says by what requests are counted together. A request that lacks it is counted by the client's address;
//! `consumer` falls back on the credential first. Counts belong to the scope of the plugin: one on a service counts
//! the requests of all its routes together, a global one counts all requests.
//!
//! ## Responses
//!
//! | header | on | value |
//! |---|---|---|
//! | `X-RateLimit-Limit-Minute` and so on | every response, per limit | the limit |
//! | `X-RateLimit-Remaining-Minute` and so on | every response, per limit | what is left after this request |
//! | `RateLimit-Limit`, `RateLimit-Remaining` | every response | those of the limit with the least left, of equals the longest |
//! | `RateLimit-Reset` | every response | seconds until that limit starts anew |
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
//! Memory holds up to a million clients at a time; beyond that the counts of some are forgotten early. A `sync_rate` of
//! 0.5 with ten nodes lets at most what reaches nine of them within half a second pass beyond the limit, once a window. A
//! crash of PostgreSQL may cost the counts of its last moments, as they are not waited for on its disk; Redis keeps as much
//! as it is told to.
//!
//! With `redis` and `cluster` a request waits for one answer of the store. The questions of all requests that wait at the
//! same time travel together, over one connection to each server; those that count the same are one question. With a
//! `sync_rate` requests wait for nothing.
//!
//! Keys in Redis and rows in PostgreSQL are Kong's (`ratelimit:ROUTE:SERVICE:IDENTIFIER:MILLISECONDS:PERIOD`, and the
//! table `ratelimiting_metrics`), so that nodes of Kong and of Weir can count together. In a cluster of Redis, which Kong
//! does not use, what names the client stands in braces, so that all its keys are on one server; while they move to
//! another, each node counts by itself. An identifier of more than 256 bytes, or that is no UTF-8, is named by its SHA-256.
//!
//! A user of Redis with rights of its own needs `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `GET`, `INCRBY` and `EXPIRE` on the keys
//! `ratelimit:*` (where `ratelimit:probe` tells whether a server that failed counts again) and, for response-ratelimiting,
//! `response-ratelimit:*`. PostgreSQL must have an encoding with every text, which UTF8 is.
//!
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
//! The fields of `redis` are also understood, and told by the Admin API, under the names that Kong gave them up for:
//! `redis_host` and the like. Where both are written they must say the same.
//!
//! Sentinels are named by `sentinel_master` and `sentinel_nodes`, a cluster by `cluster_nodes`, as in the plugins of Kong
//! Enterprise. `ssl_verify` verifies by the node's `lua_ssl_trusted_certificate`.
//!
//! ## When the store is away
//!
//! The first request that gets no answer within `timeout` has the store left alone: from then on no request waits for it,
//! until it answers again, which is tried every second. Meanwhile requests are counted by this node, beginning with what
//! it knows of the counts of all, and the store is told when it is back. With `fault_tolerant: false` they are answered
//! 500 instead, except with a `sync_rate`, which never waits. Kong lets requests pass without limits meanwhile.
//!
//! A question that was under way when the store failed may have been counted there and be counted again here: limits are
//! then reached earlier, never later.
//!
//! ## Sliding windows
//!
//! With `window_type: sliding`, which Kong has in its Enterprise edition alone, there is no moment at which a client may
//! use its limit twice. What is used is
//!
//! ```text
//! used = count of this window + ⌊ count of the last window × what is left of this window ÷ length of this window ⌋
//! ```
//!
//! by milliseconds. `Retry-After` and `RateLimit-Reset` then tell a refused client when it will be let in if it sends
//! nothing until then.

use super::limits::{Asked, Identifier, Limit, Limiter, Periods, Policy, Redis, Reserved, Usage, written};
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Fingerprinter, Flow, Headers, Hooks, Known, LocalResponse, Phases,
    Plugin, Record, Resume,
};

/// What is limited, and how clients are told.
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
    /// How many requests pass.
    #[field(flatten)]
    pub periods: Periods,
    /// What requests are counted by.
    #[field(default = "consumer", one_of = ["consumer", "credential", "ip", "service", "header", "path"])]
    pub limit_by: String,
    /// The header to count by, with `limit_by: header`.
    #[field(matches = header_name)]
    pub header_name: Option<String>,
    /// The path that is counted, with `limit_by: path`.
    #[field(starts_with = "/")]
    pub path: Option<String>,
    /// Where counts are kept.
    #[field(default = "local", one_of = ["local", "cluster", "redis"])]
    pub policy: String,
    /// Counts requests on this node while the store is away; otherwise they are answered 500.
    #[field(default = true)]
    pub fault_tolerant: bool,
    /// How to reach Redis, for policy `redis`.
    #[field(default = {})]
    pub redis: Redis,
    /// Tells clients nothing of limits.
    #[field(default = false)]
    pub hide_client_headers: bool,
    /// The status of refused requests.
    #[field(default = 429, between = [200, 599])]
    pub error_code: u16,
    /// The message of refused requests.
    #[field(default = "API rate limit exceeded")]
    pub error_message: String,
    /// How often counts are exchanged with Redis, in seconds from 0.02 on; -1 for each request.
    #[field(default = -1)]
    pub sync_rate: f64,
    /// How a window ends: at once, or bit by bit.
    #[field(default = "fixed", one_of = ["fixed", "sliding"])]
    pub window_type: String,
}

impl Config {
    fn policy(&self) -> Policy<'_> {
        let Self { policy, redis, sync_rate, window_type, .. } = self;
        Policy { name: policy, redis, sync_rate: *sync_rate, window_type }
    }
}

/// What requests are counted by.
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
    /// Fingerprints of this scope's identifiers, and of addresses where the identifier is missing.
    identifiers: Fingerprinter,
    addresses: Fingerprinter,
}

/// What the limits are, and what becomes of those who exceed them.
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
            Reserved::Later(asked) => self.rules.clone().decide_later(exchange, asked),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        if let Some(usage) = exchange.extensions.get::<Usage>().copied() {
            self.rules.tell(&usage, &mut exchange.response.headers);
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

    /// When the store has answered, or else as the configuration says.
    fn decide_later(self: Arc<Self>, exchange: &mut Exchange, mut asked: Asked) -> Flow {
        if asked.is_in_vain() {
            return self.decide_alone(exchange, &asked);
        }
        Flow::Wait(Box::pin(async move {
            let answered = asked.answered().await;
            let resume: Resume = Box::new(move |exchange| match answered {
                Some(usage) => self.decide(exchange, usage),
                None => self.decide_alone(exchange, &asked),
            });
            resume
        }))
    }

    fn decide_alone(&self, exchange: &mut Exchange, asked: &Asked) -> Flow {
        if self.fault_tolerant {
            return self.decide(exchange, asked.reserve_here());
        }
        Flow::Respond(LocalResponse::error(500, "An unexpected error occurred"))
    }

    fn tell(&self, usage: &Usage, headers: &mut Headers) {
        let mut numbers = Numbers::new(headers);
        let mut scarcest: Option<(f64, &Limit)> = None;
        for limit in &*self.limits {
            let remaining = (limit.value - usage.used[limit.period as usize] as f64).max(0.0);
            numbers.put(limit.period.limit_header(), limit.value);
            numbers.put(limit.period.remaining_header(), remaining);
            // Limits come shortest first, so of equals the longest wins.
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

/// Puts numbers into headers, in place of what the upstream says of its own limits.
struct Numbers<'h> {
    headers: &'h mut Headers,
    /// The upstream has such headers: looked for once, since hardly any has.
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
