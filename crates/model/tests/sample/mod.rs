//! Plugins to configure in tests: the model itself knows none.
#![allow(missing_docs, dead_code)]
pub(crate) mod entities;

use entities::{BasicAuthCredential, HmacAuthCredential, JwtSecret, KeyAuthCredential};
use std::collections::BTreeMap;
use weir_model::PluginSchema;
use weir_model::entity::CustomEntity;
use weir_model::schema::{FieldError, Json, Record, Secret};

/// Limits how many requests are let through.
#[derive(Debug, Clone, Record)]
#[record(old_names = OLD_NAMES)]
pub(crate) struct RateLimiting {
    #[field(flatten)]
    pub periods: Periods,
    #[field(default = "consumer", one_of = ["consumer", "credential", "ip", "service", "header", "path"])]
    pub limit_by: String,
    #[field(default = "local", one_of = ["local", "redis"])]
    pub policy: String,
    #[field(default = 429, between = [100, 599])]
    pub error_code: u16,
    #[field(default = true)]
    pub fault_tolerant: bool,
    pub redis: Redis,
}

#[derive(Debug, Clone, Record)]
#[record(check = limits)]
pub(crate) struct Periods {
    /// Requests per second.
    #[field(gt = 0)]
    pub second: Option<f64>,
    #[field(gt = 0)]
    pub minute: Option<f64>,
}

const OLD_NAMES: &[(&str, &str)] = &[("redis_host", "redis.host"), ("redis_port", "redis.port")];

#[derive(Debug, Clone, Record)]
pub(crate) struct Redis {
    pub host: Option<String>,
    #[field(default = 6379)]
    pub port: u16,
    #[field(secret, len_min = 3)]
    pub password: Option<Secret>,
}

#[derive(Debug, Clone, Record)]
pub(crate) struct KeyAuth {
    #[field(default = ["apikey"], len_min = 1, matches = header_name)]
    pub key_names: Vec<String>,
    #[field(default = false)]
    pub hide_credentials: bool,
    pub anonymous: Option<String>,
}

#[derive(Debug, Clone, Record)]
pub(crate) struct HttpLog {
    #[field(matches = url)]
    pub http_endpoint: String,
    #[field(key_check = weir_model::rule::header_name)]
    pub headers: Option<BTreeMap<String, String>>,
    #[field(set, default = [], between = [100, 599])]
    pub statuses: Vec<u16>,
}

fn limits(periods: &Periods) -> Vec<FieldError> {
    match (periods.second, periods.minute) {
        (None, None) => vec![FieldError::new("", "set at least one of second, minute")],
        (Some(second), Some(minute)) if minute < second => {
            vec![FieldError::new("minute", "must not be lower than `second`")]
        }
        _ => Vec::new(),
    }
}

fn ignored_fields(config: &Json) -> Vec<FieldError> {
    match config["policy"].as_str() {
        Some("redis") => vec![FieldError::new("policy", "counters stay on this node")],
        _ => Vec::new(),
    }
}

/// Whose groups are asked about.
#[derive(Debug, Clone, Record)]
pub(crate) struct Acl {
    pub allow: Option<Vec<String>>,
    pub deny: Option<Vec<String>>,
}

pub(crate) const PLUGINS: &[PluginSchema] = &[
    PluginSchema::of::<RateLimiting>("rate-limiting")
        .with_ignored_fields(ignored_fields)
        .with_consumer_groups(),
    PluginSchema::of::<KeyAuth>("key-auth").without_consumer().with_entities(&[
        KeyAuthCredential::ENTITY,
        BasicAuthCredential::ENTITY,
        HmacAuthCredential::ENTITY,
        JwtSecret::ENTITY,
    ]),
    PluginSchema::of::<HttpLog>("http-log").with_consumer_groups(),
    PluginSchema::of::<Acl>("acl").without_consumer().with_entities(&[entities::Acl::ENTITY]),
];
