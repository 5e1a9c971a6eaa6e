//! Counts that nodes share in Redis.

use super::super::limits::{ClusterNode, Identifier, Quota, QuotaUsage, Quotas, Redis, Unavailable};
use super::Config;
use super::window::{Limit, Usage};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, Exchange, FieldError, Uuid};

/// The counts of one plugin in Redis.
pub(super) struct Shared {
    quotas: Arc<Quotas>,
    quota: Quota,
    /// The beginning of its keys.
    scope: String,
    /// Whether this node counts by itself while the store is unavailable.
    pub(super) allow_degradation: bool,
}

impl Shared {
    pub(super) fn new(config: &Config, limit: Limit, build: &BuildContext<'_>) -> Result<Self, String> {
        let quota = Quota { count: limit.count, seconds: limit.milliseconds / 1_000 };
        let scope = match &config.group {
            Some(group) => format!("group:{group}"),
            None => {
                let entity = build.entity;
                let id = |id: Option<Uuid>| id.unwrap_or_default();
                let consumer = entity.consumer.or(entity.consumer_group);
                format!("{}:{}:{}", id(entity.route), id(entity.service), id(consumer))
            }
        };
        Ok(Self {
            quotas: Quotas::of(&redis(config), build)?,
            quota,
            scope: format!("limit-count:{scope}:{}:{}", quota.count, quota.seconds),
            allow_degradation: config.allow_degradation,
        })
    }

    /// Queues the query of a request that is counted by this value, or else by its client's address.
    pub(super) fn query(
        &self,
        exchange: &Exchange,
        value: Option<Cow<'_, [u8]>>,
    ) -> Result<oneshot::Receiver<QuotaUsage>, Unavailable> {
        let (kind, identifier) = match &value {
            Some(value) => ("key", Identifier::Sent(value).text()),
            None => ("address", Identifier::Address(exchange.client_ip).text()),
        };
        self.quotas.query(&format!("{}:{kind}:{identifier}", self.scope), self.quota)
    }

    /// The usage as the headers show it.
    pub(super) fn usage(&self, answered: QuotaUsage) -> Usage {
        Usage {
            admitted: answered.admitted,
            remaining: self.quota.count.saturating_sub(answered.used),
            reset: answered.milliseconds_left.div_ceil(1_000),
        }
    }
}

/// The servers, and how to connect to them.
fn redis(config: &Config) -> Redis {
    let is_cluster = config.policy == "redis-cluster";
    let (ssl, ssl_verify) = match is_cluster {
        true => (config.redis_cluster_ssl, config.redis_cluster_ssl_verify),
        false => (config.redis_ssl, config.redis_ssl_verify),
    };
    let nodes = config.redis_cluster_nodes.iter().flatten().filter_map(|node| cluster_node(node));
    Redis {
        host: config.redis_host.clone().filter(|_| !is_cluster),
        port: config.redis_port.unwrap_or(6379),
        timeout: config.redis_timeout.unwrap_or(1_000),
        username: config.redis_username.clone(),
        password: config.redis_password.clone(),
        database: if is_cluster { 0 } else { config.redis_database.unwrap_or(0) },
        ssl: ssl.unwrap_or(false),
        ssl_verify: ssl_verify.unwrap_or(false),
        server_name: None,
        sentinel_master: None,
        sentinel_nodes: None,
        sentinel_role: None,
        sentinel_username: None,
        sentinel_password: None,
        cluster_nodes: is_cluster.then(|| nodes.collect()),
        cluster_max_redirections: 5,
    }
}

/// `127.0.0.1:7000` or `[::1]:7000`.
fn cluster_node(text: &str) -> Option<ClusterNode> {
    let (ip, port) = text.rsplit_once(':')?;
    let ip = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
    let port = port.parse().ok().filter(|port| *port != 0 && !ip.is_empty())?;
    Some(ClusterNode { ip: ip.to_owned(), port })
}

/// The fields that a policy needs and that are missing.
pub(super) fn violations(config: &Config) -> Vec<FieldError> {
    let needed = match &*config.policy {
        "redis" => vec![("redis_host", config.redis_host.is_some())],
        "redis-cluster" => vec![
            ("redis_cluster_nodes", config.redis_cluster_nodes.is_some()),
            ("redis_cluster_name", config.redis_cluster_name.is_some()),
        ],
        _ => Vec::new(),
    };
    let missing = needed.into_iter().filter(|(_, is_there)| !is_there);
    let required = |field| FieldError::new(field, format!("required with `policy: {}`", config.policy));
    let mut found: Vec<_> = missing.map(|(field, _)| required(field)).collect();
    if config.redis_cluster_nodes.iter().flatten().any(|node| cluster_node(node).is_none()) {
        let message = "expected a host and a port for each, as in `10.0.0.1:6379`";
        found.push(FieldError::new("redis_cluster_nodes", message));
    }
    found
}
