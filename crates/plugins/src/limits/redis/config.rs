//! How to connect to Redis: the fields of Kong's plugins; sentinels and clusters as in Kong Enterprise.

use weir_plugin::{FieldError, Record, Secret};

/// A Redis or Valkey server, a cluster, or servers behind sentinels.
#[derive(Debug, Clone, PartialEq, Record)]
#[record(check = violations)]
#[record(hint("cluster_addresses", "write `cluster_nodes`, a list of `ip` and `port`"))]
#[record(hint("sentinel_addresses", "write `sentinel_nodes`, a list of `host` and `port`"))]
#[record(hint(
    "connect_timeout",
    "read_timeout",
    "send_timeout",
    "write `timeout`, which is for each of them"
))]
#[record(hint("db", "write `database`"))]
pub(crate) struct Redis {
    /// The host name or address.
    #[field(matches = host)]
    pub host: Option<String>,
    /// The port.
    #[field(nullable, default = 6379)]
    pub port: u16,
    /// The timeout for connecting, sending and receiving, in milliseconds.
    #[field(nullable, default = 2000, between = [0, 2147483646])]
    pub timeout: u32,
    /// The user; if unset or empty, only the password is sent.
    #[field(len_min = 0, referenceable)]
    pub username: Option<String>,
    /// The password; an empty one counts as none.
    #[field(secret, len_min = 0)]
    pub password: Option<Secret>,
    /// The number of the database.
    #[field(nullable, default = 0)]
    pub database: u32,
    /// Whether to connect over TLS.
    #[field(nullable, default = false)]
    pub ssl: bool,
    /// Whether to verify the server's certificate with the node's `lua_ssl_trusted_certificate`.
    #[field(nullable, default = false)]
    pub ssl_verify: bool,
    /// The SNI, and the name to expect in the certificate; the host if unset.
    #[field(matches = hostname)]
    pub server_name: Option<String>,
    /// The name of the master that sentinels watch.
    #[field(extension, len_min = 1)]
    pub sentinel_master: Option<String>,
    /// The sentinels. They are asked in turn for the master.
    #[field(extension, len_min = 1)]
    pub sentinel_nodes: Option<Vec<SentinelNode>>,
    /// Which of the servers to use: the master by default, a replica (`slave`), or the first that can be reached, the
    /// master before replicas (`any`). A replica takes counts only if it is configured to be written to.
    #[field(extension, one_of = ["master", "slave", "any"])]
    pub sentinel_role: Option<String>,
    /// The user for the sentinels; an empty one counts as none.
    #[field(extension, len_min = 0, referenceable)]
    pub sentinel_username: Option<String>,
    /// The password for the sentinels; an empty one counts as none.
    #[field(extension, secret, len_min = 0)]
    pub sentinel_password: Option<Secret>,
    /// Some servers of a cluster. Weir asks one of them for all the others.
    #[field(extension, len_min = 1)]
    pub cluster_nodes: Option<Vec<ClusterNode>>,
    /// How often a query is sent again if a cluster's slots have moved.
    #[field(extension, default = 5, between = [1, 100])]
    pub cluster_max_redirections: u32,
}

/// The address of a sentinel.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct SentinelNode {
    /// The host name or address.
    #[field(default = "127.0.0.1", matches = host)]
    pub host: String,
    /// The port.
    #[field(nullable, default = 6379)]
    pub port: u16,
}

/// The address of a cluster's server.
#[derive(Debug, Clone, PartialEq, Record)]
pub(crate) struct ClusterNode {
    /// The host name or address.
    #[field(default = "127.0.0.1", matches = host)]
    pub ip: String,
    /// The port.
    #[field(nullable, default = 6379)]
    pub port: u16,
}

/// An address before it is resolved.
pub(super) type HostAndPort = (String, u16);

/// Which of the servers behind sentinels is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SentinelRole {
    Master,
    Replica,
    /// The master, or a replica if that cannot be reached.
    Any,
}

/// The servers to use.
pub(super) enum Servers {
    One(HostAndPort),
    Sentinels { master: String, sentinels: Vec<HostAndPort>, role: SentinelRole },
    Cluster(Vec<HostAndPort>),
}

impl Redis {
    /// The former names of the fields, beside the plugin's own.
    pub(crate) const OLD_NAMES: &[(&str, &str)] = &[
        ("redis_host", "redis.host"),
        ("redis_port", "redis.port"),
        ("redis_timeout", "redis.timeout"),
        ("redis_username", "redis.username"),
        ("redis_password", "redis.password"),
        ("redis_database", "redis.database"),
        ("redis_ssl", "redis.ssl"),
        ("redis_ssl_verify", "redis.ssl_verify"),
        ("redis_server_name", "redis.server_name"),
    ];

    /// The fields that are missing where Redis is used, which this choice says, as in `policy: redis`.
    pub(crate) fn missing(&self, choice: &str) -> Vec<FieldError> {
        let named = self.host.is_some() || self.sentinel_master.is_some() || self.cluster_nodes.is_some();
        let mut found = Vec::new();
        if !named {
            let message = format!("required with `{choice}`, unless there are sentinels or a cluster");
            found.push(FieldError::new("redis.host", message));
        }
        if self.timeout == 0 {
            let message = "within 0 ms nothing is answered: set more, as in `timeout: 2000`";
            found.push(FieldError::new("redis.timeout", message));
        }
        found
    }

    pub(super) fn servers(&self) -> Servers {
        if let Some(nodes) = &self.cluster_nodes {
            return Servers::Cluster(nodes.iter().map(|node| (node.ip.clone(), node.port)).collect());
        }
        if let (Some(master), Some(nodes)) = (&self.sentinel_master, &self.sentinel_nodes) {
            let sentinels = nodes.iter().map(|node| (node.host.clone(), node.port)).collect();
            let role = match self.sentinel_role.as_deref() {
                Some("slave") => SentinelRole::Replica,
                Some("any") => SentinelRole::Any,
                _ => SentinelRole::Master,
            };
            return Servers::Sentinels { master: master.clone(), sentinels, role };
        }
        Servers::One((self.host.clone().unwrap_or_default(), self.port))
    }

    /// Its name in messages.
    pub(super) fn place(&self) -> String {
        match self.servers() {
            Servers::One((host, port)) => format!("Redis at {host}:{port}"),
            Servers::Sentinels { master, .. } => format!("Redis, the master {master} of sentinels"),
            Servers::Cluster(nodes) => {
                let (host, port) = nodes.first().cloned().unwrap_or_default();
                format!("the Redis cluster of {host}:{port}")
            }
        }
    }
}

fn violations(redis: &Redis) -> Vec<FieldError> {
    let mut found = Vec::new();
    if redis.sentinel_master.is_some() != redis.sentinel_nodes.is_some() {
        let field = if redis.sentinel_master.is_some() { "sentinel_nodes" } else { "sentinel_master" };
        let message = "sentinels need both `sentinel_master` and `sentinel_nodes`";
        found.push(FieldError::new(field, message));
    }
    if redis.cluster_nodes.is_some() && redis.sentinel_nodes.is_some() {
        found.push(FieldError::new("cluster_nodes", "leave out these or `sentinel_nodes`"));
    }
    if redis.cluster_nodes.is_some() && redis.database != 0 {
        found.push(FieldError::new("database", "a cluster has the database 0 alone: leave this out"));
    }
    found
}
