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
//! `local` counts on this node, in memory, up to a million clients at a time; beyond that the counts of some are
//! forgotten early. `cluster` and `redis`, which share counts between nodes, are refused.

pub(super) mod counter;
pub(super) mod window;

use super::counters::Table;
use crate::plugin::{
    Answer, Build, Define, Exchange, Fingerprint, Fingerprinter, Flow, Headers, Hooks, Known, Record, Secret,
    Uuid, Violation,
};
use counter::{Counters, Limit, Usage};
use std::net::IpAddr;
use std::sync::Arc;
use window::{Period, wall_clock};

/// What is limited, and how clients are told.
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
    /// Requests per second.
    #[field(gt = 0)]
    pub second: Option<f64>,
    /// Requests per minute.
    #[field(gt = 0)]
    pub minute: Option<f64>,
    /// Requests per hour.
    #[field(gt = 0)]
    pub hour: Option<f64>,
    /// Requests per day.
    #[field(gt = 0)]
    pub day: Option<f64>,
    /// Requests per month.
    #[field(gt = 0)]
    pub month: Option<f64>,
    /// Requests per year.
    #[field(gt = 0)]
    pub year: Option<f64>,
    /// What requests are counted by.
    #[field(default = "consumer", one_of = ["consumer", "credential", "ip", "service", "header", "path"])]
    pub limit_by: String,
    /// The header to count by, with `limit_by: header`.
    #[field(matches = header_name)]
    pub header_name: Option<String>,
    /// The path that is counted, with `limit_by: path`.
    #[field(starts_with = "/")]
    pub path: Option<String>,
    /// Where counts are kept; `local` is what works.
    #[field(default = "local", one_of = ["local", "cluster", "redis"])]
    pub policy: String,
    /// Lets requests pass when counts cannot be read. Counts of policy `local` always can.
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
    /// How often counts are exchanged with Redis, in seconds; -1 for always.
    #[field(default = -1)]
    pub sync_rate: f64,
}

/// A Redis server.
#[derive(Debug, Clone, Record)]
pub(super) struct Redis {
    /// The host name or address.
    pub host: Option<String>,
    /// The port.
    #[field(default = 6379)]
    pub port: u16,
    /// Milliseconds to connect, send and receive.
    #[field(default = 2000, between = [0, 2147483646])]
    pub timeout: u32,
    /// The user.
    pub username: Option<String>,
    /// The password.
    #[field(secret)]
    pub password: Option<Secret>,
    /// The number of the database.
    #[field(default = 0)]
    pub database: u32,
    /// Whether to connect over TLS.
    #[field(default = false)]
    pub ssl: bool,
    /// Whether to verify the server's certificate.
    #[field(default = false)]
    pub ssl_verify: bool,
    /// The name to ask for in the TLS handshake.
    pub server_name: Option<String>,
}

impl Config {
    fn limits(&self) -> Vec<Limit> {
        let values = [self.second, self.minute, self.hour, self.day, self.month, self.year];
        let limits = Period::ALL.iter().zip(values);
        limits.filter_map(|(period, value)| Some(Limit::new(*period, value?))).collect()
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
    limits: Box<[Limit]>,
    by: LimitBy,
    /// Fingerprints of this scope's identifiers, and of addresses where the identifier is missing.
    identifiers: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<Counters>>,
    hide_client_headers: bool,
    error_code: u16,
    error_message: String,
}

impl Define for RateLimiting {
    const NAME: &'static str = "rate-limiting";
    const PRIORITY: i32 = 910;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &Build<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Counters>>();
        let scope = |id: Option<Uuid>| id.map(|id| id.into_bytes()).unwrap_or_default();
        let scope = table.key.clone().with(&scope(build.entity.route)).with(&scope(build.entity.service));
        Ok(Self {
            limits: config.limits().into(),
            identifiers: scope.clone().with(config.limit_by.as_bytes()),
            addresses: scope.with(b"ip"),
            by: match (config.limit_by.as_str(), config.header_name, config.path) {
                ("credential", ..) => LimitBy::Credential,
                ("ip", ..) => LimitBy::Ip,
                ("service", ..) => LimitBy::Service,
                ("header", Some(name), _) => LimitBy::Header(name),
                ("path", _, Some(path)) => LimitBy::Path(path),
                _ => LimitBy::Consumer,
            },
            table,
            hide_client_headers: config.hide_client_headers,
            error_code: config.error_code,
            error_message: config.error_message,
        })
    }
}

/// The rules that span several fields.
fn violations(config: &Config) -> Vec<Violation> {
    let limits = config.limits();
    let mut found = order_violations(&limits);
    if limits.is_empty() {
        let periods = Period::ALL.map(Period::name).join(", ");
        found.push(Violation::new("", format!("set at least one limit: {periods}")));
    }
    if config.policy != "local" {
        let message = format!(
            "policy {} is not available; `policy: local` is, which counts on each node by itself",
            config.policy
        );
        found.push(Violation::new("policy", message));
    }
    let needed =
        [("header", "header_name", config.header_name.is_some()), ("path", "path", config.path.is_some())];
    for (by, field, given) in needed {
        if config.limit_by == by && !given {
            found.push(Violation::new(field, format!("required with `limit_by: {by}`")));
        }
    }
    found
}

/// A longer period must not have a lower limit than a shorter one.
pub(super) fn order_violations(limits: &[Limit]) -> Vec<Violation> {
    let lower = limits.windows(2).filter(|pair| pair[1].value < pair[0].value);
    let violation = |pair: &[Limit]| {
        let (short, long) = (pair[0], pair[1]);
        let message = format!(
            "the limit per {} ({}) cannot be lower than the limit per {} ({}); raise it, or leave one out",
            long.period.name(),
            long.value,
            short.period.name(),
            short.value
        );
        Violation::new(long.period.name(), message)
    };
    lower.map(violation).collect()
}

impl Hooks for RateLimiting {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let usage = self.table.with(self.identify(exchange), wall_clock, |counters| {
            let usage = counters.reserve(&self.limits, wall_clock);
            (usage.now, usage)
        });
        if !self.hide_client_headers {
            exchange.keep(usage);
        }
        if usage.admitted {
            return Flow::Continue;
        }
        Flow::Respond(Answer::error(self.error_code, &self.error_message))
    }

    fn response(&self, exchange: &mut Exchange) {
        if let Some(usage) = exchange.kept::<Usage>().copied() {
            self.tell(&usage, &mut exchange.response.headers);
        }
    }
}

impl RateLimiting {
    fn identify(&self, exchange: &Exchange) -> Fingerprint {
        let consumer = || exchange.consumer().map(|consumer| consumer.entity.id);
        let credential = || exchange.credential();
        let by_id = |id: Uuid| self.identifiers.of(id.as_bytes());
        let identifier = match &self.by {
            LimitBy::Consumer => consumer().or_else(credential).map(by_id),
            LimitBy::Credential => credential().map(by_id),
            LimitBy::Ip => None,
            LimitBy::Service => exchange.service().map(|service| by_id(service.id)),
            LimitBy::Header(name) => {
                exchange.request.headers.get(name).map(|value| self.identifiers.of(value))
            }
            LimitBy::Path(path) => (exchange.path() == path).then(|| self.identifiers.of(path.as_bytes())),
        };
        identifier.unwrap_or_else(|| match exchange.client_ip {
            IpAddr::V4(address) => self.addresses.of(&address.octets()),
            IpAddr::V6(address) => self.addresses.of(&address.octets()),
        })
    }

    fn tell(&self, usage: &Usage, headers: &mut Headers) {
        let mut numbers = Numbers::new(headers);
        let mut scarcest: Option<(f64, &Limit)> = None;
        for limit in &self.limits {
            let remaining = (limit.value - usage.used(limit.period) as f64).max(0.0);
            numbers.put(limit.period.limit_header(), limit.value);
            numbers.put(limit.period.remaining_header(), remaining);
            // Limits come shortest first, so of equals the longest wins.
            if scarcest.is_none_or(|(least, _)| remaining <= least) {
                scarcest = Some((remaining, limit));
            }
        }
        let Some((remaining, limit)) = scarcest else { return };
        let reset = limit.period.reset(usage.now) as f64;
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

    /// Limits may have fractions; hardly any do.
    fn put(&mut self, name: &'static str, value: f64) {
        let whole = value as u64;
        if whole as f64 == value {
            self.put_text(name, itoa::Buffer::new().format(whole));
        } else {
            self.put_text(name, &value.to_string());
        }
    }

    fn put_text(&mut self, name: &'static str, value: &str) {
        if self.replace {
            self.headers.set(name, value.as_bytes());
        } else {
            self.headers.append_unchecked(Known::Other, name, value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
