//! Lets through so many requests per window, counted by a variable of the request. As APISIX's plugin of this name.
//!
//! A window begins with its first request and lasts `time_window` seconds. Counting is exact: of k requests at once
//! against n remaining, min(k, n) pass, on however many workers. Counts are kept across reloads, and begin anew when
//! `count` or `time_window` changes.
//!
//! ```yaml
//! plugins:
//!   - name: limit-count
//!     service: orders
//!     config:
//!       count: 100
//!       time_window: 60
//!       key: remote_addr
//! ```
//!
//! ## Who is counted
//!
//! With `key_type: var`, `key` is the name of a variable: `remote_addr`, `remote_port`, `server_addr`, `server_port`,
//! `consumer_name`, `host`, `uri`, `request_uri`, `args`, `request_method`, `scheme`, `route_id`, `service_id`, or
//! `http_NAME`, `arg_NAME` and `cookie_NAME` for a header, an argument of the query and a cookie. With
//! `var_combination`, `key` is a text that holds variables, such as `$consumer_name $http_x_tenant`. With `constant`,
//! all requests are counted together. A request without a value is counted by its client's address.
//!
//! Counts belong to the scope of the plugin. Plugins with the same `group` count together, wherever they are.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `X-RateLimit-Limit` | `count` |
//! | `X-RateLimit-Remaining` | what is left after this request |
//! | `X-RateLimit-Reset` | seconds until the window is over |
//!
//! `show_limit_quota_header` leaves them out. A refused request is answered with `rejected_code` (503) and, if there is
//! a `rejected_msg`, the body `{"error_msg":"…"}`.

mod key;
mod window;

use super::counters::Table;
use crate::plugin::{
    Answer, Build, Define, Exchange, Fingerprinter, Flow, Hooks, Json, Record, Uuid, Violation,
};
use key::Key;
use std::sync::Arc;
use window::{Limit, Usage, Window, wall_clock};

/// What is limited, and how clients are told.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Requests per window.
    #[field(between = [1, 9007199254740991])]
    pub count: i64,
    /// Seconds that a window lasts.
    #[field(between = [1, 9007199254740])]
    pub time_window: i64,
    /// What requests are counted by.
    #[field(default = "remote_addr")]
    pub key: String,
    /// How `key` is read.
    #[field(default = "var", one_of = ["var", "var_combination", "constant"])]
    pub key_type: String,
    /// Counts together with all plugins of this group.
    pub group: Option<String>,
    /// The status of refused requests.
    #[field(default = 503, between = [200, 599])]
    pub rejected_code: u16,
    /// What refused requests are told.
    pub rejected_msg: Option<String>,
    /// Where counts are kept; `local` is what works.
    #[field(default = "local", one_of = ["local", "redis", "redis-cluster"])]
    pub policy: String,
    /// Lets requests pass when counts cannot be read. Counts of policy `local` always can.
    #[field(default = false)]
    pub allow_degradation: bool,
    /// Tells clients of the limit.
    #[field(default = true)]
    pub show_limit_quota_header: bool,
}

fn violations(config: &Config) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Err(message) = Key::read(&config.key_type, &config.key) {
        found.push(Violation::new("key", message));
    }
    if config.policy != "local" {
        let message = format!(
            "policy {} is not available; `policy: local` is, which counts on each node by itself",
            config.policy
        );
        found.push(Violation::new("policy", message));
    }
    found
}

/// One configured instance.
pub(super) struct LimitCount {
    limit: Limit,
    key: Key,
    /// Fingerprints of this scope's keys, and of addresses where the key has no value.
    keys: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<Window>>,
    rejected: Answer,
    show_limit_quota_header: bool,
}

impl Define for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1002;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, build: &Build<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Window>>();
        let limit = Limit {
            count: config.count.unsigned_abs(),
            milliseconds: config.time_window.unsigned_abs().saturating_mul(1_000),
        };
        let scope = scope(&table.key, &config, build.entity);
        let scope = scope.with(&limit.count.to_be_bytes()).with(&limit.milliseconds.to_be_bytes());
        Ok(Self {
            keys: scope.clone().with(b"key"),
            addresses: scope.with(b"address"),
            limit,
            key: Key::read(&config.key_type, &config.key)?,
            table,
            rejected: rejection(&config),
            show_limit_quota_header: config.show_limit_quota_header,
        })
    }
}

/// What tells the counts of a plugin from those of others.
fn scope(key: &Fingerprinter, config: &Config, entity: &weir_model::entity::Plugin) -> Fingerprinter {
    match &config.group {
        Some(group) => key.clone().with(b"group").with(group.as_bytes()),
        None => [entity.route, entity.service, entity.consumer]
            .into_iter()
            .fold(key.clone(), |key, id: Option<Uuid>| {
                key.with(&id.map(Uuid::into_bytes).unwrap_or_default())
            }),
    }
}

fn rejection(config: &Config) -> Answer {
    let Some(message) = &config.rejected_msg else { return Answer::raw(config.rejected_code, None, "") };
    let body = format!("{{\"error_msg\":{}}}", Json::from(message.as_str()));
    Answer::raw(config.rejected_code, Some("application/json"), body)
}

impl Hooks for LimitCount {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let whose = self.key.of(exchange, &self.keys, &self.addresses);
        let seconds = || wall_clock() / 1_000;
        let usage = self.table.with(whose, seconds, |window| window.take(self.limit, wall_clock));
        if self.show_limit_quota_header {
            exchange.keep(Told { limit: self.limit.count, usage });
        }
        if usage.admitted { Flow::Continue } else { Flow::Respond(self.rejected.clone()) }
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(Told { limit, usage }) = exchange.kept::<Told>().copied() else { return };
        let mut number = itoa::Buffer::new();
        for (name, value) in [
            ("X-RateLimit-Limit", limit),
            ("X-RateLimit-Remaining", usage.remaining),
            ("X-RateLimit-Reset", usage.reset),
        ] {
            exchange.response.headers.set(name, number.format(value).as_bytes());
        }
    }
}

/// What the client is told of its limit.
#[derive(Clone, Copy)]
struct Told {
    limit: u64,
    usage: Usage,
}

#[cfg(test)]
mod tests;
