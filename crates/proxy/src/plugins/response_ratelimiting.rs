//! Limits what clients use, by what the upstream says that a request has used.
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
//! The upstream answers with `X-Kong-Limit: video=1, image=3`, or another header by `header_name`, which clients do not
//! see. So much is counted, and once a limit is used up, a response that uses more of it becomes a 429 without a body.
//! `block_on_first_violation` asks the upstream no more as soon as any limit is used up.
//!
//! Windows follow the calendar in UTC. Counts are kept on this node, across reloads, and belong to the scope of the
//! plugin: one on a service counts all its routes together. `limit_by` says who is counted; a client that lacks it is
//! counted by its address. Numbers below 0 and names that are no limits are ignored; fractions count as the next whole
//! number.
//!
//! ## Responses
//!
//! | header | to | value |
//! |---|---|---|
//! | `X-RateLimit-Limit-video-minute` and so on | clients | the limit |
//! | `X-RateLimit-Remaining-video-minute` and so on | clients | what is left after this response |
//! | `X-RateLimit-Remaining-video` and so on | the upstream | what is left, of the period with the least |
//!
//! `hide_client_headers` leaves out those to clients. The policies `cluster` and `redis` are refused.

use super::counters::Table;
use super::rate_limiting::counter::{Counters, Limit};
use super::rate_limiting::window::{Period, wall_clock};
use super::rate_limiting::{Redis, order_violations};
use crate::plugin::{
    Answer, Build, Define, Exchange, Fingerprint, Fingerprinter, Flow, Headers, Hooks, Record, Source, Uuid,
    Violation,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What is limited, and who is counted.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(
    old_name("redis_host", "redis.host"),
    old_name("redis_port", "redis.port"),
    old_name("redis_timeout", "redis.timeout"),
    old_name("redis_username", "redis.username"),
    old_name("redis_password", "redis.password"),
    old_name("redis_database", "redis.database"),
    old_name("redis_ssl", "redis.ssl"),
    old_name("redis_ssl_verify", "redis.ssl_verify"),
    old_name("redis_server_name", "redis.server_name")
)]
pub(super) struct Config {
    /// The header by which the upstream says what was used.
    #[field(default = "x-kong-limit", matches = header_name)]
    pub header_name: String,
    /// What usage is counted by.
    #[field(default = "consumer", one_of = ["consumer", "credential", "ip"])]
    pub limit_by: String,
    /// Where counts are kept; `local` is what works.
    #[field(default = "local", one_of = ["local", "cluster", "redis"])]
    pub policy: String,
    /// Lets requests pass when counts cannot be read. Counts of policy `local` always can.
    #[field(default = true)]
    pub fault_tolerant: bool,
    /// How to reach Redis, for policy `redis`.
    #[field(default = {})]
    pub redis: Redis,
    /// Answers 429 before the upstream is asked, once any limit is used up.
    #[field(default = false)]
    pub block_on_first_violation: bool,
    /// Tells clients nothing of limits.
    #[field(default = false)]
    pub hide_client_headers: bool,
    /// The limits by their names.
    #[field(len_min = 1)]
    pub limits: BTreeMap<String, Limits>,
}

/// How much may be used.
#[derive(Debug, Clone, Record)]
#[record(check = limit_violations)]
pub(super) struct Limits {
    /// Per second.
    #[field(gt = 0)]
    pub second: Option<f64>,
    /// Per minute.
    #[field(gt = 0)]
    pub minute: Option<f64>,
    /// Per hour.
    #[field(gt = 0)]
    pub hour: Option<f64>,
    /// Per day.
    #[field(gt = 0)]
    pub day: Option<f64>,
    /// Per month.
    #[field(gt = 0)]
    pub month: Option<f64>,
    /// Per year.
    #[field(gt = 0)]
    pub year: Option<f64>,
}

impl Limits {
    fn all(&self) -> Vec<Limit> {
        let values = [self.second, self.minute, self.hour, self.day, self.month, self.year];
        let limits = Period::ALL.iter().zip(values);
        limits.filter_map(|(period, value)| Some(Limit::new(*period, value?))).collect()
    }
}

fn limit_violations(limits: &Limits) -> Vec<Violation> {
    let all = limits.all();
    let mut found = order_violations(&all);
    if all.is_empty() {
        let periods = Period::ALL.map(Period::name).join(", ");
        found.push(Violation::new("", format!("set at least one of {periods}")));
    }
    found
}

fn violations(config: &Config) -> Vec<Violation> {
    let policy = &config.policy;
    let message = || {
        format!("policy {policy} is not available; `policy: local` is, which counts on each node by itself")
    };
    let mut found = Vec::new();
    if policy != "local" {
        found.push(Violation::new("policy", message()));
    }
    if config.limits.is_empty() {
        found.push(Violation::new(
            "limits",
            "set at least one limit, as in `limits: { video: { minute: 10 } }`",
        ));
    }
    found
}

/// A limit of some name, and the headers that tell of it.
struct Named {
    name: String,
    whose: Fingerprinter,
    periods: Vec<(Limit, String, String)>,
    to_upstream: String,
}

impl Named {
    fn new(name: &str, limits: &Limits, scope: &Fingerprinter) -> Self {
        let told = |limit: Limit| {
            let of = |what: &str| format!("X-RateLimit-{what}-{name}-{}", limit.period.name());
            (limit, of("Limit"), of("Remaining"))
        };
        Self {
            name: name.to_owned(),
            whose: scope.clone().with(name.as_bytes()),
            periods: limits.all().into_iter().map(told).collect(),
            to_upstream: format!("X-RateLimit-Remaining-{name}"),
        }
    }
}

/// Whose usage is counted.
#[derive(Clone, Copy)]
enum Whose {
    Id(Uuid),
    Address(IpAddr),
}

/// One configured instance.
pub(super) struct ResponseRateLimiting {
    config: Config,
    limits: Vec<Named>,
    table: Arc<Table<Counters>>,
}

impl Define for ResponseRateLimiting {
    const NAME: &'static str = "response-ratelimiting";
    const PRIORITY: i32 = 900;
    type Config = Config;

    fn new(config: Config, build: &Build<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Counters>>();
        let id = |id: Option<Uuid>| id.map(|id| id.into_bytes()).unwrap_or_default();
        let scope = table.key.clone().with(Self::NAME.as_bytes());
        let scope = scope.with(&id(build.entity.route)).with(&id(build.entity.service));
        let limits = config.limits.iter().map(|(name, limits)| Named::new(name, limits, &scope)).collect();
        Ok(Self { limits, table, config })
    }
}

impl Hooks for ResponseRateLimiting {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let whose = self.identify(exchange);
        for named in &self.limits {
            let left = self.left(named, whose);
            if self.config.block_on_first_violation && left.iter().any(|left| *left <= 0.0) {
                let message = format!("API rate limit exceeded for '{}'", named.name);
                return Flow::Respond(Answer::error(429, &message));
            }
            let least = left.into_iter().fold(f64::INFINITY, f64::min);
            exchange.request.headers.set(&named.to_upstream, least.to_string().as_bytes());
        }
        exchange.keep(whose);
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        let of_upstream = exchange.source == Source::Service;
        let headers = &mut exchange.response.headers;
        let used = if of_upstream { self.used(headers) } else { vec![0; self.limits.len()] };
        headers.remove(&self.config.header_name);
        let Some(whose) = exchange.kept::<Whose>().copied() else { return };
        let left: Vec<_> = self.limits.iter().map(|named| self.left(named, whose)).collect();
        let is_over = |(left, used): (&Vec<f64>, &u64)| *used > 0 && left.iter().any(|left| *left <= 0.0);
        if left.iter().zip(&used).any(is_over) {
            refuse(exchange);
        } else {
            self.count(whose, &used);
        }
        if !self.config.hide_client_headers {
            self.tell(&mut exchange.response.headers, &left, &used);
        }
    }
}

impl ResponseRateLimiting {
    fn identify(&self, exchange: &Exchange) -> Whose {
        let consumer = || exchange.consumer().map(|consumer| consumer.entity.id);
        let id = match self.config.limit_by.as_str() {
            "consumer" => consumer().or_else(|| exchange.credential()),
            "credential" => exchange.credential(),
            _ => None,
        };
        id.map_or(Whose::Address(exchange.client_ip), Whose::Id)
    }

    /// What is left of each period's limit.
    fn left(&self, named: &Named, whose: Whose) -> Vec<f64> {
        self.table.with(fingerprint(named, whose), wall_clock, |counters| {
            let now = wall_clock();
            let left =
                named.periods.iter().map(|(limit, ..)| limit.value - counters.used(limit.period, now) as f64);
            (now, left.collect())
        })
    }

    /// What the upstream says that was used, in the order of the limits.
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

    fn count(&self, whose: Whose, used: &[u64]) {
        for (named, used) in self.limits.iter().zip(used).filter(|(_, used)| **used > 0) {
            self.table.with(fingerprint(named, whose), wall_clock, |counters| {
                let now = wall_clock();
                named.periods.iter().for_each(|(limit, ..)| counters.add(limit.period, *used, now));
                (now, ())
            });
        }
    }

    fn tell(&self, headers: &mut Headers, left: &[Vec<f64>], used: &[u64]) {
        for ((named, left), used) in self.limits.iter().zip(left).zip(used) {
            for ((limit, limit_header, left_header), left) in named.periods.iter().zip(left) {
                headers.set(limit_header, limit.value.to_string().as_bytes());
                headers.set(left_header, (left - *used as f64).max(0.0).to_string().as_bytes());
            }
        }
    }
}

fn fingerprint(named: &Named, whose: Whose) -> Fingerprint {
    match whose {
        Whose::Id(id) => named.whose.clone().with(b"id").of(id.as_bytes()),
        Whose::Address(IpAddr::V4(address)) => named.whose.clone().with(b"ip").of(&address.octets()),
        Whose::Address(IpAddr::V6(address)) => named.whose.clone().with(b"ip").of(&address.octets()),
    }
}

/// Answers in the place of the upstream. What it has said of its body holds no more.
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
