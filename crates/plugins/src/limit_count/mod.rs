//! Limits the number of requests per window, counted by a variable of the request. Like APISIX's plugin of this name.
//!
//! A window begins with its first request and lasts `time_window` seconds. Counting is exact: of k concurrent requests
//! against n remaining, min(k, n) pass, on any number of workers. Counts survive reloads, and start again when `count`
//! or `time_window` changes.
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
//! ## What requests are counted by
//!
//! With `key_type: var`, `key` is the name of a variable: `remote_addr`, `remote_port`, `server_addr`, `server_port`,
//! `consumer_name`, `host`, `uri`, `request_uri`, `args`, `request_method`, `scheme`, `route_id`, `service_id`, or
//! `http_NAME`, `arg_NAME` and `cookie_NAME` for a header, an argument of the query and a cookie. With
//! `var_combination`, `key` is a text that holds variables, such as `$consumer_name $http_x_tenant`. With `constant`,
//! all requests are counted together. A request without a value is counted by its client's address.
//!
//! Counts belong to the scope of the plugin. Plugins with the same `group` count together, wherever they are. They must
//! have the same configuration: Weir refuses a different one. To change all of them, change the name of the group, too.
//!
//! ## Responses
//!
//! | header | value |
//! |---|---|
//! | `X-RateLimit-Limit` | `count` |
//! | `X-RateLimit-Remaining` | what is left after this request |
//! | `X-RateLimit-Reset` | seconds until the window is over |
//!
//! `show_limit_quota_header: false` leaves them out. A refused request is answered with `rejected_code` (503) and, if
//! there is a `rejected_msg`, the body `{"error_msg":"…"}`.
//!
//! ## Policies
//!
//! | policy | where counts are | how many pass |
//! |---|---|---|
//! | `local` | in this node's memory | exactly `count`, on each node by itself |
//! | `redis` | in Redis or Valkey, named by `redis_host` | exactly `count`, on all nodes together |
//! | `redis-cluster` | in a Redis Cluster, named by `redis_cluster_nodes` | the same |
//!
//! ```yaml
//! plugins:
//!   - name: limit-count
//!     config:
//!       count: 100
//!       time_window: 60
//!       policy: redis
//!       redis_host: redis.example.com
//!       redis_password: secret
//! ```
//!
//! With Redis a request waits for one reply of the server. The queries of concurrent requests are pipelined over one
//! connection to each server, so `redis_keepalive_timeout` and `redis_keepalive_pool` have no effect. Certificates are
//! verified with the node's `lua_ssl_trusted_certificate`.
//!
//! A key in Redis is `limit-count:group:GROUP:COUNT:SECONDS:key:VALUE`, or `limit-count:ROUTE:SERVICE:CONSUMER:…`
//! without a group; a consumer group may take the consumer's place. The key ends in `address:ADDRESS` if the client's
//! address counts. It lasts as long as the window. Nodes of APISIX count separately, because their keys contain a
//! version of the configuration. A plugin that was written through [APISIX's Admin API](../coming-from-apisix.md)
//! without a group has the group of its object: `apisix:routes:1` for the route 1, whose keys begin with
//! `limit-count:group:apisix:routes:1:`. If the Redis user is restricted by ACLs, it needs `EVAL`, `EVALSHA`, `SCRIPT
//! LOAD`, `GET`, `INCRBY`, `EXPIRE` and `PTTL` on the keys `limit-count:*` and `ratelimit:probe`.
//!
//! If a request gets no reply within `redis_timeout`, Weir stops sending queries to the server until it replies again,
//! which Weir checks every second. Meanwhile requests are answered 500 and `{"error_msg":"failed to limit count"}`;
//! with `allow_degradation` this node counts them and lets up to `count` of each window pass. APISIX lets all of them
//! pass.

mod shared;

use crate::limits::Counts;
use crate::shared::counters::Table;
use crate::shared::limits_of_apisix::{self, rejection, wall_clock};
use crate::shared::quota_window::{Limit, Usage, Window};
use crate::shared::request_key::Key;
use shared::Shared;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, FieldWarning, Fingerprinter, Flow, Handover, Hooks, Json,
    LocalResponse, Phases, Plugin, Record, Resume,
};

/// The limit, and what clients see of it.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Requests per window.
    #[field(between = [1, 9007199254740991])]
    pub count: i64,
    /// Seconds that a window lasts.
    #[field(between = [1, 9007199254740])]
    pub time_window: i64,
    /// The variable or text that requests are counted by.
    #[field(default = "remote_addr")]
    pub key: String,
    /// How `key` is interpreted.
    #[field(default = "var", one_of = ["var", "var_combination", "constant"])]
    pub key_type: String,
    /// Counts together with all plugins of this group.
    pub group: Option<String>,
    /// The status of refused requests.
    #[field(default = 503, between = [200, 599])]
    pub rejected_code: u16,
    /// The message of refused requests.
    pub rejected_msg: Option<String>,
    /// Sends clients the headers with the limit.
    #[field(default = true)]
    pub show_limit_quota_header: bool,
    /// Where counts are kept.
    #[field(flatten)]
    pub counts: Counts,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let error = Key::read(&config.key_type, &config.key).err();
    error.map(|message| FieldError::new("key", message)).into_iter().collect()
}

/// One configured instance.
pub(super) struct LimitCount(Arc<Instance>);

struct Instance {
    limit: Limit,
    key: Key,
    /// Fingerprints of this scope's keys, and of addresses if the key has no value.
    keys: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<Window>>,
    /// The store in which all nodes count together.
    shared: Option<Shared>,
    rejected: LocalResponse,
    show_limit_quota_header: bool,
}

impl Plugin for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1002;
    const EXTENSION: bool = true;
    const HANDOVERS: &'static [Handover] = &[Table::<Window>::handover("limit-count")];
    const FOR_CONSUMER_GROUPS: bool = true;
    const SHARED_BY: Option<&'static str> = Some("group");
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        Counts::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Window>>();
        let limit = Limit {
            count: config.count.unsigned_abs(),
            milliseconds: config.time_window.unsigned_abs().saturating_mul(1_000),
        };
        let scope = scope(&table.key, &config, build.entity);
        let scope = scope.with(&limit.count.to_be_bytes()).with(&limit.milliseconds.to_be_bytes());
        let is_shared = config.counts.are_shared();
        Ok(Self(Arc::new(Instance {
            shared: if is_shared { Some(Shared::new(&config, limit, build)?) } else { None },
            keys: scope.clone().with(b"key"),
            addresses: scope.with(b"address"),
            limit,
            key: Key::read(&config.key_type, &config.key)?,
            table,
            rejected: rejection(config.rejected_code, config.rejected_msg.as_deref()),
            show_limit_quota_header: config.show_limit_quota_header,
        })))
    }
}

/// Separates the counts of this plugin from those of others.
fn scope(key: &Fingerprinter, config: &Config, entity: &weir_plugin::entity::Plugin) -> Fingerprinter {
    match &config.group {
        Some(group) => key.clone().with(b"group").with(group.as_bytes()),
        None => limits_of_apisix::scope(key, entity),
    }
}

impl Hooks for LimitCount {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.0.show_limit_quota_header)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match &self.0.shared {
            None => self.0.count_here(exchange),
            Some(shared) => self.0.query(shared, exchange),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(Limited { limit, usage }) = exchange.extensions.get::<Limited>().copied() else { return };
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

impl Instance {
    fn count_here(&self, exchange: &mut Exchange) -> Flow {
        let whose = self.key.of(exchange, &self.keys, &self.addresses);
        let seconds = || wall_clock() / 1_000;
        let usage = self.table.with(whose, seconds, |window| window.take(self.limit, wall_clock));
        self.decide(exchange, usage)
    }

    fn decide(&self, exchange: &mut Exchange, usage: Usage) -> Flow {
        if self.show_limit_quota_header {
            exchange.extensions.insert(Limited { limit: self.limit.count, usage });
        }
        if usage.admitted { Flow::Continue } else { Flow::Respond(self.rejected.clone()) }
    }

    /// Decides when the store has replied, or else as the configuration says.
    fn query(self: &Arc<Self>, shared: &Shared, exchange: &mut Exchange) -> Flow {
        let sent = shared.query(exchange, self.key.value(exchange));
        let Ok(answer) = sent else { return self.decide_alone(shared, exchange) };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let answered = answer.await.ok();
            let resume: Resume = Box::new(move |exchange| match (&instance.shared, answered) {
                (Some(shared), Some(usage)) => instance.decide(exchange, shared.usage(usage)),
                (Some(shared), None) => instance.decide_alone(shared, exchange),
                (None, _) => instance.count_here(exchange),
            });
            resume
        }))
    }

    fn decide_alone(&self, shared: &Shared, exchange: &mut Exchange) -> Flow {
        if shared.allow_degradation {
            return self.count_here(exchange);
        }
        let body = "{\"error_msg\":\"failed to limit count\"}";
        Flow::Respond(LocalResponse::raw(500, Some("application/json"), body))
    }
}

/// The limit and its usage, for the response headers.
#[derive(Clone, Copy)]
struct Limited {
    limit: u64,
    usage: Usage,
}

#[cfg(test)]
mod tests;
