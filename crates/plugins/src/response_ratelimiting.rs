//! Limits usage that the upstream reports in its responses.
//!
//! ```yaml
//! plugins:
//!   - name: response-ratelimiting
//!     service: media
//!     config:
//!       limits:
//!         video: { minute: 10 }
//!         image: { minute: 100, hour: 1000 }
//! ```
//!
//! The upstream sends `X-Kong-Limit: video=1, image=3`, or another header by `header_name`, which clients do not get.
//! Weir counts that usage. When a limit is used up, a response that uses more of it becomes a 429 without a body. With
//! `block_on_first_violation`, requests do not reach the upstream when any limit is used up.
//!
//! Windows follow the calendar in UTC. Counts survive reloads, and belong to the scope of the plugin: one on a service
//! counts all its routes together. `limit_by` says what usage is counted by; a client without such an identifier is
//! counted by its address. Values below 0 and unknown names are ignored; fractions are rounded up.
//!
//! `policy`, `window_type`, `redis` and `fault_tolerant` are those of [rate-limiting](rate-limiting.md#policies), with
//! Kong's keys `response-ratelimit:…` and Kong's table `response_ratelimiting_metrics`. With `redis` and `cluster` a
//! request waits until the store has returned the usage. Usage that the upstream then reports is counted after the
//! response, so concurrent requests may use more than is left, as in Kong.
//!
//! ## Responses
//!
//! | header | to | value |
//! |---|---|---|
//! | `X-RateLimit-Limit-video-minute` and so on | clients | the limit |
//! | `X-RateLimit-Remaining-video-minute` and so on | clients | what is left after this response |
//! | `X-RateLimit-Remaining-video` and so on | the upstream | what is left in the period with the least |
//!
//! `hide_client_headers` leaves out the headers for clients.

use super::limits::{HANDOVERS, Identifier, Limit, Limiter, Periods, Policy, Redis, SentQuery, written};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Fingerprint, Fingerprinter, Flow, Handover, Headers, Hooks,
    LocalResponse, Phases, Plugin, Record, Resume, Source, Uuid,
};

/// The limits, and what usage is counted by.
#[derive(Debug, Clone, Record)]
#[record(check = violations, old_names = Redis::OLD_NAMES)]
pub(super) struct Config {
    /// The header in which the upstream reports usage.
    #[field(nullable, default = "x-kong-limit", matches = header_name)]
    pub header_name: String,
    /// The identifier that usage is counted by.
    #[field(nullable, default = "consumer", one_of = ["consumer", "credential", "ip"])]
    pub limit_by: String,
    /// Where counts are kept.
    #[field(nullable, default = "local", one_of = ["local", "cluster", "redis"])]
    pub policy: String,
    /// Uses the counts of this node while the store is unavailable; otherwise requests are answered 500.
    #[field(default = true)]
    pub fault_tolerant: bool,
    /// How to connect to Redis, for policy `redis`.
    #[field(default = {})]
    pub redis: Redis,
    /// Answers 429 instead of sending the request to the upstream, when any limit is used up.
    #[field(default = false)]
    pub block_on_first_violation: bool,
    /// Sends clients no headers about limits.
    #[field(default = false)]
    pub hide_client_headers: bool,
    /// The limits by name.
    #[field(len_min = 1)]
    pub limits: BTreeMap<String, Periods>,
    /// Whether windows are fixed or sliding.
    #[field(extension, default = "fixed", one_of = ["fixed", "sliding"])]
    pub window_type: String,
}

impl Config {
    fn policy(&self) -> Policy<'_> {
        let Self { policy, redis, window_type, .. } = self;
        Policy { name: policy, redis, sync_rate: -1.0, window_type }
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = config.policy().violations();
    if config.limits.is_empty() {
        found.push(FieldError::new(
            "limits",
            "set at least one limit, as in `limits: { video: { minute: 10 } }`",
        ));
    }
    found
}

/// A named limit, and its headers.
struct Named {
    name: String,
    scope: Fingerprinter,
    limits: Arc<[Limit]>,
    /// For each limit: the headers with the limit, and with what is left.
    to_client: Vec<(String, String)>,
    to_upstream: String,
}

impl Named {
    fn new(name: &str, periods: &Periods, scope: &Fingerprinter) -> Self {
        let limits = periods.limits();
        let header_names = |limit: &Limit| {
            let of = |what: &str| format!("X-RateLimit-{what}-{name}-{}", limit.period.name());
            (of("Limit"), of("Remaining"))
        };
        Self {
            name: name.to_owned(),
            scope: scope.clone().with(name.as_bytes()),
            to_client: limits.iter().map(header_names).collect(),
            limits: limits.into(),
            to_upstream: format!("X-RateLimit-Remaining-{name}"),
        }
    }

    fn fingerprint(&self, caller: Caller) -> Fingerprint {
        let kind: &[u8] = if matches!(caller, Caller::Id(_)) { b"id" } else { b"ip" };
        caller.identifier().fingerprint(&self.scope.clone().with(kind))
    }
}

/// The identifier that usage is counted by.
#[derive(Clone, Copy)]
enum Caller {
    Id(Uuid),
    Address(IpAddr),
}

impl Caller {
    fn identifier(self) -> Identifier<'static> {
        match self {
            Caller::Id(id) => Identifier::Id(id),
            Caller::Address(address) => Identifier::Address(address),
        }
    }
}

/// One configured instance.
pub(super) struct ResponseRateLimiting(Arc<Rules>);

struct Rules {
    config: Config,
    limits: Vec<Named>,
    limiter: Limiter,
}

impl Plugin for ResponseRateLimiting {
    const NAME: &'static str = "response-ratelimiting";
    const PRIORITY: i32 = 900;
    const HANDOVERS: &'static [Handover] = HANDOVERS;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let limiter = Limiter::new(config.policy(), build)?;
        let scope = limiter.key.clone().with(Self::NAME.as_bytes());
        let limits = config.limits.iter().map(|(name, limits)| Named::new(name, limits, &scope)).collect();
        Ok(Self(Arc::new(Rules { limits, limiter, config })))
    }
}

impl Hooks for ResponseRateLimiting {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let rules = &self.0;
        let caller = rules.identify(exchange);
        let queries: Vec<_> = rules.limits.iter().filter_map(|named| rules.query(named, caller)).collect();
        if queries.is_empty() {
            rules.admit(exchange, caller)
        } else {
            rules.clone().admit_later(caller, queries)
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let rules = &self.0;
        let of_upstream = exchange.source == Source::Service;
        let headers = &mut exchange.response.headers;
        let used = if of_upstream { rules.used(headers) } else { vec![0; rules.limits.len()] };
        headers.remove(&rules.config.header_name);
        let Some(caller) = exchange.extensions.get::<Caller>().copied() else { return };
        let left: Vec<_> = rules.limits.iter().map(|named| rules.left(named, caller)).collect();
        let is_over = |(left, used): (&Vec<f64>, &u64)| *used > 0 && left.iter().any(|left| *left <= 0.0);
        if left.iter().zip(&used).any(is_over) {
            refuse(exchange);
        } else {
            rules.count(caller, &used);
        }
        if !rules.config.hide_client_headers {
            rules.set_headers(&mut exchange.response.headers, &left, &used);
        }
    }
}

impl Rules {
    fn identify(&self, exchange: &Exchange) -> Caller {
        let consumer = || exchange.consumer().map(|consumer| consumer.entity.id);
        let id = match self.config.limit_by.as_str() {
            "consumer" => consumer().or_else(|| exchange.credential()),
            "credential" => exchange.credential(),
            _ => None,
        };
        id.map_or(Caller::Address(exchange.client_ip), Caller::Id)
    }

    /// Queries the usage, if the policy queries the store for each request.
    fn query(&self, named: &Named, caller: Caller) -> Option<SentQuery> {
        self.limiter.refresh(named.fingerprint(caller), caller.identifier(), &named.name, &named.limits)
    }

    /// Sends the upstream what is left, unless the request is refused.
    fn admit(&self, exchange: &mut Exchange, caller: Caller) -> Flow {
        for named in &self.limits {
            let left = self.left(named, caller);
            if self.config.block_on_first_violation && left.iter().any(|left| *left <= 0.0) {
                let message = format!("API rate limit exceeded for '{}'", named.name);
                return Flow::Respond(LocalResponse::error(429, &message));
            }
            let least = left.into_iter().fold(f64::INFINITY, f64::min);
            written(least, |least| exchange.request.headers.set(&named.to_upstream, least.as_bytes()));
        }
        exchange.extensions.insert(caller);
        Flow::Continue
    }

    /// Admits when the store has replied, or else as the configuration says.
    fn admit_later(self: Arc<Self>, caller: Caller, mut queries: Vec<SentQuery>) -> Flow {
        let fault_tolerant = self.config.fault_tolerant;
        Flow::Wait(Box::pin(async move {
            let mut answered = true;
            for query in &mut queries {
                answered &= query.answered().await.is_some();
            }
            let resume: Resume = Box::new(move |exchange| match answered || fault_tolerant {
                true => self.admit(exchange, caller),
                false => Flow::Respond(LocalResponse::error(500, "An unexpected error occurred")),
            });
            resume
        }))
    }

    /// What is left of each period's limit, as far as this node knows.
    fn left(&self, named: &Named, caller: Caller) -> Vec<f64> {
        let usage = self.limiter.usage(named.fingerprint(caller), &named.limits);
        named.limits.iter().map(|limit| limit.value - usage.used[limit.period as usize] as f64).collect()
    }

    /// The usage that the upstream reports, in the order of the limits.
    fn used(&self, headers: &Headers) -> Vec<u64> {
        let mut used = vec![0; self.limits.len()];
        let fields =
            headers.get_all(&self.config.header_name).filter_map(|field| std::str::from_utf8(field).ok());
        for (name, value) in fields.flat_map(|field| field.split(',')).filter_map(|part| part.split_once('='))
        {
            let value = value.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
            let place = self.limits.iter().position(|named| named.name == name.trim());
            if let (Some(value), Some(place)) = (value, place) {
                used[place] = value.ceil() as u64;
            }
        }
        used
    }

    fn count(&self, caller: Caller, used: &[u64]) {
        for (named, used) in self.limits.iter().zip(used).filter(|(_, used)| **used > 0) {
            let (key, identifier) = (named.fingerprint(caller), caller.identifier());
            self.limiter.add(key, identifier, &named.name, &named.limits, *used);
        }
    }

    fn set_headers(&self, headers: &mut Headers, left: &[Vec<f64>], used: &[u64]) {
        for ((named, left), used) in self.limits.iter().zip(left).zip(used) {
            for ((limit, (limit_header, left_header)), left) in
                named.limits.iter().zip(&named.to_client).zip(left)
            {
                let left = (left - *used as f64).max(0.0);
                written(limit.value, |value| headers.set(limit_header, value.as_bytes()));
                written(left, |value| headers.set(left_header, value.as_bytes()));
            }
        }
    }
}

/// Replaces the upstream's response. Headers about its body are removed, because they do not apply any more.
fn refuse(exchange: &mut Exchange) {
    exchange.response.status = 429;
    exchange.drop_response_body();
    const OF_BODY: [&str; 7] = [
        "Content-Type",
        "Content-Encoding",
        "Content-Length",
        "Cache-Control",
        "Expires",
        "ETag",
        "Last-Modified",
    ];
    for name in OF_BODY {
        exchange.response.headers.remove(name);
    }
}
