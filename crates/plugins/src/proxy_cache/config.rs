//! The configuration of the plugin.

use crate::limits::Redis;
use weir_plugin::{FieldError, Record};

/// Which responses are cached, and for which requests.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Config {
    /// Statuses of responses that are cached.
    #[field(default = [200, 301, 404], between = [100, 900], len_min = 1)]
    pub response_code: Vec<u16>,
    /// Methods of requests whose responses are cached.
    #[field(default = ["GET", "HEAD"], one_of = ["HEAD", "GET", "POST", "PATCH", "PUT"])]
    pub request_method: Vec<String>,
    /// Media types of responses that are cached, with their parameters.
    #[field(default = ["text/plain", "application/json"])]
    pub content_type: Vec<String>,
    /// How many seconds a response is fresh.
    #[field(nullable, default = 300, gt = 0)]
    pub cache_ttl: u32,
    /// Where responses are stored.
    #[field(one_of = ["memory", "redis"], extension_values = ["redis"])]
    pub strategy: String,
    /// Respects `Cache-Control` and `Expires` of requests and responses.
    #[field(default = false)]
    pub cache_control: bool,
    /// Ignores the case of paths.
    #[field(nullable, default = false)]
    pub ignore_uri_case: bool,
    /// How many seconds a response is stored, even if it is fresh for a shorter time.
    pub storage_ttl: Option<u32>,
    /// Kong's memory store.
    #[field(default = {})]
    pub memory: Memory,
    /// How to connect to Redis, for strategy `redis`.
    #[field(extension)]
    pub redis: Option<Redis>,
    /// The query parameters that are part of the key; all if unset.
    pub vary_query_params: Option<Vec<String>>,
    /// The request headers that are part of the key.
    pub vary_headers: Option<Vec<String>>,
    /// The headers that clients get.
    #[field(default = {})]
    pub response_headers: ResponseHeaders,
}

impl Config {
    /// Whether several nodes share what is stored.
    pub(super) fn is_shared(&self) -> bool {
        self.strategy == "redis"
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    const CHOICE: &str = "strategy: redis";
    match (&config.redis, config.is_shared()) {
        (Some(redis), true) => redis.missing(CHOICE),
        (None, true) => vec![FieldError::new("redis.host", format!("required with `{CHOICE}`"))],
        (Some(_), false) => vec![FieldError::new("redis", format!("set `{CHOICE}`, or leave this out"))],
        (None, false) => Vec::new(),
    }
}

/// The memory that responses are stored in.
#[derive(Debug, Clone, Record)]
pub(crate) struct Memory {
    /// Kong's name of the shared dictionary; it is part of the key.
    #[field(default = "kong_db_cache")]
    pub dictionary_name: String,
}

/// Headers about the cache.
#[derive(Debug, Clone, Record)]
pub(crate) struct ResponseHeaders {
    /// Whether to send `Age`.
    #[field(nullable, default = true)]
    pub age: bool,
    /// Whether to send `X-Cache-Status`.
    #[field(name = "X-Cache-Status", nullable, default = true)]
    pub x_cache_status: bool,
    /// Whether to send `X-Cache-Key`.
    #[field(name = "X-Cache-Key", nullable, default = true)]
    pub x_cache_key: bool,
}
