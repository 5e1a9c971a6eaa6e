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
//! Counts belong to the scope of the plugin. Plugins with the same `group` count together, wherever they are. They must
//! have the same configuration: another one is refused. To change that of all, change the name of the group with it.
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
//!
//! ## Policies
//!
//! | policy | where counts are | how many pass |
//! |---|---|---|
//! | `local` | in this node's memory | exactly `count`, on each node by itself |
//! | `redis` | in Redis or Valkey, named by `redis_host` | exactly `count`, on all nodes together |
//! | `redis-cluster` | in a cluster of them, named by `redis_cluster_nodes` | the same |
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
//! With Redis a request waits for one answer of the server. The questions of all requests that wait at the same time travel
//! together, over one connection to each server; `redis_keepalive_timeout` and `redis_keepalive_pool` have no effect.
//! Certificates are verified by the node's `lua_ssl_trusted_certificate`. A key in Redis is
//! `limit-count:group:GROUP:COUNT:SECONDS:key:VALUE`, or `limit-count:ROUTE:SERVICE:CONSUMER:…` without a group, where a
//! consumer group may stand in the consumer's place, and ends in
//! `address:ADDRESS` where the client's address counts; it lasts as long as the window. Nodes of APISIX have keys of their
//! own, which name a version of the configuration, and count apart. What is written through
//! [APISIX's Admin API](../coming-from-apisix.md) without a group has that of its object: `apisix:routes:1` for the route 1,
//! whose keys begin with `limit-count:group:apisix:routes:1:`. A user of Redis with rights of its own needs `EVAL`,
//! `EVALSHA`, `SCRIPT LOAD`, `GET`, `INCRBY`, `EXPIRE` and `PTTL` on the keys `limit-count:*` and `ratelimit:probe`.
//!
//! The first request that gets no answer within `redis_timeout` has the server left alone until it answers again, which is
//! tried every second. Meanwhile requests are answered 500 and `{"error_msg":"failed to limit count"}`; with
//! `allow_degradation` they are counted by this node, which lets up to `count` of each window pass. APISIX lets all of them
//! pass.

mod key;
mod shared;
mod window;

use super::counters::Table;
use key::Key;
use shared::Shared;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, FieldError, FieldWarning, Fingerprinter, Flow, Hooks, Json, LocalResponse,
    Phases, Plugin, Record, Resume, Secret, Uuid,
};
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
    /// Where counts are kept.
    #[field(default = "local", one_of = ["local", "redis", "redis-cluster"])]
    pub policy: String,
    /// Counts requests on this node while Redis is away; otherwise they are answered 500.
    #[field(default = false)]
    pub allow_degradation: bool,
    /// Tells clients of the limit.
    #[field(default = true)]
    pub show_limit_quota_header: bool,
    /// With `policy: redis`: the host name or address of the server.
    #[field(matches = host)]
    pub redis_host: Option<String>,
    /// With `policy: redis`: the port; without one, 6379.
    #[field(between = [1, 65535])]
    pub redis_port: Option<u16>,
    /// With `policy: redis`: the user; without one, the password alone is sent.
    #[field(len_min = 1)]
    pub redis_username: Option<String>,
    /// The password of the server, or of those of the cluster; an empty one is none.
    #[field(secret, len_min = 0)]
    pub redis_password: Option<Secret>,
    /// With `policy: redis`: the number of the database; without one, 0.
    pub redis_database: Option<u32>,
    /// Milliseconds to connect and to answer; without a number, 1000.
    #[field(between = [1, 2147483646])]
    pub redis_timeout: Option<u32>,
    /// With `policy: redis`: whether to connect over TLS.
    pub redis_ssl: Option<bool>,
    /// With `policy: redis`: whether to verify the server's certificate.
    pub redis_ssl_verify: Option<bool>,
    /// Milliseconds that idle connections are kept.
    #[field(between = [1000, 2147483646])]
    pub redis_keepalive_timeout: Option<u32>,
    /// How many idle connections are kept.
    #[field(between = [1, 2147483646])]
    pub redis_keepalive_pool: Option<u32>,
    /// With `policy: redis-cluster`: servers of it, `host:port`; one of them is asked which there are.
    #[field(len_min = 1)]
    pub redis_cluster_nodes: Option<Vec<String>>,
    /// With `policy: redis-cluster`: what APISIX calls the cluster.
    pub redis_cluster_name: Option<String>,
    /// With `policy: redis-cluster`: whether to connect over TLS.
    pub redis_cluster_ssl: Option<bool>,
    /// With `policy: redis-cluster`: whether to verify the servers' certificates.
    pub redis_cluster_ssl_verify: Option<bool>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = shared::violations(config);
    if let Err(message) = Key::read(&config.key_type, &config.key) {
        found.push(FieldError::new("key", message));
    }
    found
}

/// One configured instance.
pub(super) struct LimitCount(Arc<Instance>);

struct Instance {
    limit: Limit,
    key: Key,
    /// Fingerprints of this scope's keys, and of addresses where the key has no value.
    keys: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<Window>>,
    /// Where all nodes count together.
    shared: Option<Shared>,
    rejected: LocalResponse,
    show_limit_quota_header: bool,
}

impl Plugin for LimitCount {
    const NAME: &'static str = "limit-count";
    const PRIORITY: i32 = 1002;
    const FOR_CONSUMER_GROUPS: bool = true;
    const SHARED_BY: Option<&'static str> = Some("group");
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        let fields = ["redis_keepalive_timeout", "redis_keepalive_pool"];
        let given = fields.into_iter().filter(|field| !config[field].is_null());
        given.map(|field| FieldWarning::new(field, "one connection to each server is kept")).collect()
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Window>>();
        let limit = Limit {
            count: config.count.unsigned_abs(),
            milliseconds: config.time_window.unsigned_abs().saturating_mul(1_000),
        };
        let scope = scope(&table.key, &config, build.entity);
        let scope = scope.with(&limit.count.to_be_bytes()).with(&limit.milliseconds.to_be_bytes());
        let is_shared = config.policy != "local";
        Ok(Self(Arc::new(Instance {
            shared: if is_shared { Some(Shared::new(&config, limit, build)?) } else { None },
            keys: scope.clone().with(b"key"),
            addresses: scope.with(b"address"),
            limit,
            key: Key::read(&config.key_type, &config.key)?,
            table,
            rejected: rejection(&config),
            show_limit_quota_header: config.show_limit_quota_header,
        })))
    }
}

/// What tells the counts of a plugin from those of others.
fn scope(key: &Fingerprinter, config: &Config, entity: &weir_plugin::entity::Plugin) -> Fingerprinter {
    match &config.group {
        Some(group) => key.clone().with(b"group").with(group.as_bytes()),
        None => [entity.route, entity.service, entity.consumer.or(entity.consumer_group)]
            .into_iter()
            .fold(key.clone(), |key, id: Option<Uuid>| {
                key.with(&id.map(Uuid::into_bytes).unwrap_or_default())
            }),
    }
}

fn rejection(config: &Config) -> LocalResponse {
    let Some(message) = &config.rejected_msg else {
        return LocalResponse::raw(config.rejected_code, None, "");
    };
    let body = format!("{{\"error_msg\":{}}}", Json::from(message.as_str()));
    LocalResponse::raw(config.rejected_code, Some("application/json"), body)
}

impl Hooks for LimitCount {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.0.show_limit_quota_header)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match &self.0.shared {
            None => self.0.count_here(exchange),
            Some(shared) => self.0.ask(shared, exchange),
        }
    }

    fn response(&self, exchange: &mut Exchange) {
        let Some(Told { limit, usage }) = exchange.extensions.get::<Told>().copied() else { return };
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
            exchange.extensions.insert(Told { limit: self.limit.count, usage });
        }
        if usage.admitted { Flow::Continue } else { Flow::Respond(self.rejected.clone()) }
    }

    /// Decides when the store has answered, or else as the configuration says.
    fn ask(self: &Arc<Self>, shared: &Shared, exchange: &mut Exchange) -> Flow {
        let asked = shared.ask(exchange, self.key.value(exchange));
        let Ok(answer) = asked else { return self.decide_alone(shared, exchange) };
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

/// What the client is told of its limit.
#[derive(Clone, Copy)]
struct Told {
    limit: u64,
    usage: Usage,
}

#[cfg(test)]
mod tests;
