//! Where the limits with APISIX's configuration keep their counts: the fields that limit-count, limit-req and limit-conn
//! share.

use super::policy::Identifier;
use super::redis::{ClusterNode, Redis};
use std::borrow::Cow;
use weir_plugin::{Exchange, FieldError, FieldWarning, Json, Record, Secret, Uuid, entity};

/// Where counts are kept.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Counts {
    /// Where counts are kept.
    #[field(default = "local", one_of = ["local", "redis", "redis-cluster"])]
    pub policy: String,
    /// Counts requests on this node while Redis is unavailable; otherwise they are answered 500.
    #[field(default = false)]
    pub allow_degradation: bool,
    /// With `policy: redis`: the host name or address of the server.
    #[field(matches = host)]
    pub redis_host: Option<String>,
    /// With `policy: redis`: the port; 6379 if unset.
    #[field(between = [1, 65535])]
    pub redis_port: Option<u16>,
    /// With `policy: redis`: the user; if unset, only the password is sent.
    #[field(len_min = 1)]
    pub redis_username: Option<String>,
    /// The password of the server, or of those of the cluster; an empty one counts as none.
    #[field(secret, len_min = 0)]
    pub redis_password: Option<Secret>,
    /// With `policy: redis`: the number of the database; 0 if unset.
    pub redis_database: Option<u32>,
    /// The timeout for connecting and for each reply, in milliseconds; 1000 if unset.
    #[field(between = [1, 2147483646])]
    pub redis_timeout: Option<u32>,
    /// With `policy: redis`: whether to connect over TLS.
    pub redis_ssl: Option<bool>,
    /// With `policy: redis`: whether to verify the server's certificate.
    pub redis_ssl_verify: Option<bool>,
    /// For how many milliseconds idle connections are kept.
    #[field(between = [1000, 2147483646])]
    pub redis_keepalive_timeout: Option<u32>,
    /// How many idle connections are kept.
    #[field(between = [1, 2147483646])]
    pub redis_keepalive_pool: Option<u32>,
    /// With `policy: redis-cluster`: some of its servers, `host:port`. Weir asks one of them for all the others.
    #[field(len_min = 1)]
    pub redis_cluster_nodes: Option<Vec<String>>,
    /// With `policy: redis-cluster`: the cluster's name in APISIX.
    pub redis_cluster_name: Option<String>,
    /// With `policy: redis-cluster`: whether to connect over TLS.
    pub redis_cluster_ssl: Option<bool>,
    /// With `policy: redis-cluster`: whether to verify the servers' certificates.
    pub redis_cluster_ssl_verify: Option<bool>,
}

impl Counts {
    /// Whether nodes count together.
    pub(crate) fn are_shared(&self) -> bool {
        self.policy != "local"
    }

    /// The fields that have no effect.
    pub(crate) fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        let fields = ["redis_keepalive_timeout", "redis_keepalive_pool"];
        let given = fields.into_iter().filter(|field| !config[field].is_null());
        given.map(|field| FieldWarning::new(field, "one connection to each server is kept")).collect()
    }

    /// The servers, and how to connect to them.
    pub(crate) fn redis(&self) -> Redis {
        let is_cluster = self.policy == "redis-cluster";
        let (ssl, ssl_verify) = match is_cluster {
            true => (self.redis_cluster_ssl, self.redis_cluster_ssl_verify),
            false => (self.redis_ssl, self.redis_ssl_verify),
        };
        let nodes = self.redis_cluster_nodes.iter().flatten().filter_map(|node| cluster_node(node));
        Redis {
            host: self.redis_host.clone().filter(|_| !is_cluster),
            port: self.redis_port.unwrap_or(6379),
            timeout: self.redis_timeout.unwrap_or(1_000),
            username: self.redis_username.clone(),
            password: self.redis_password.clone(),
            database: if is_cluster { 0 } else { self.redis_database.unwrap_or(0) },
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
}

/// `127.0.0.1:7000` or `[::1]:7000`.
fn cluster_node(text: &str) -> Option<ClusterNode> {
    let (ip, port) = text.rsplit_once(':')?;
    let ip = ip.strip_prefix('[').and_then(|ip| ip.strip_suffix(']')).unwrap_or(ip);
    let port = port.parse().ok().filter(|port| *port != 0 && !ip.is_empty())?;
    Some(ClusterNode { ip: ip.to_owned(), port })
}

/// The fields that a policy needs and that are missing.
fn violations(counts: &Counts) -> Vec<FieldError> {
    let needed = match &*counts.policy {
        "redis" => vec![("redis_host", counts.redis_host.is_some())],
        "redis-cluster" => vec![
            ("redis_cluster_nodes", counts.redis_cluster_nodes.is_some()),
            ("redis_cluster_name", counts.redis_cluster_name.is_some()),
        ],
        _ => Vec::new(),
    };
    let missing = needed.into_iter().filter(|(_, is_there)| !is_there);
    let required = |field| FieldError::new(field, format!("required with `policy: {}`", counts.policy));
    let mut found: Vec<_> = missing.map(|(field, _)| required(field)).collect();
    if counts.redis_cluster_nodes.iter().flatten().any(|node| cluster_node(node).is_none()) {
        let message = "expected a host and a port for each, as in `10.0.0.1:6379`";
        found.push(FieldError::new("redis_cluster_nodes", message));
    }
    found
}

/// The scope of a plugin in keys of Redis.
pub(crate) fn scope(entity: &entity::Plugin) -> String {
    let id = |id: Option<Uuid>| id.unwrap_or_default();
    let consumer = entity.consumer.or(entity.consumer_group);
    format!("{}:{}:{}", id(entity.route), id(entity.service), id(consumer))
}

/// The end of a key of Redis: what a request is counted by, or else its client's address.
pub(crate) fn counted_by(exchange: &Exchange, value: Option<Cow<'_, [u8]>>) -> String {
    match &value {
        Some(value) => format!("key:{}", Identifier::Sent(value).text()),
        None => format!("address:{}", Identifier::Address(exchange.client_ip).text()),
    }
}
