//! How the targets of an upstream are watched.
use crate::rule;
use crate::schema::{Choice, Record};
use std::collections::BTreeMap;

/// What a probe speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum ProbeType {
    Tcp,
    Http,
    Https,
    Grpc,
    Grpcs,
}

/// How the targets of an upstream are watched.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct Healthchecks {
    /// By probing them.
    pub active: ActiveChecks,
    /// By what requests meet.
    pub passive: PassiveChecks,
    /// The percentage of weight that must be healthy for the upstream to be.
    #[field(nullable, default = 0, between = [0, 100])]
    pub threshold: f64,
}

/// Watching by probes.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct ActiveChecks {
    #[field(nullable, default = "http")]
    pub r#type: ProbeType,
    /// Seconds.
    #[field(nullable, default = 1, between = [0, 65535])]
    pub timeout: f64,
    /// Probes at once.
    #[field(nullable, default = 10, between = [1, 2147483648])]
    pub concurrency: u32,
    #[field(nullable, default = "/", matches = path)]
    pub http_path: String,
    #[field(matches = hostname)]
    pub https_sni: Option<String>,
    #[field(nullable, default = true)]
    pub https_verify_certificate: bool,
    /// Sent with each probe by HTTP.
    #[field(key_check = probe_header, check = probe_value)]
    pub headers: Option<BTreeMap<String, Vec<String>>>,
    pub healthy: ActiveHealthy,
    pub unhealthy: ActiveUnhealthy,
}

fn probe_header(name: &str) -> Result<(), String> {
    const OWN: [&str; 3] = ["connection", "content-length", "transfer-encoding"];
    match OWN.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        true => Err(format!("a probe has no body and ends its connection; leave {name:?} out")),
        false => rule::header_name(name),
    }
}

fn probe_value(value: &str) -> Result<(), String> {
    match value.chars().find(|c| c.is_ascii_control() && *c != '\t') {
        Some(other) => Err(format!("the value of a header must not contain {other:?}")),
        None => Ok(()),
    }
}

/// When a probed target counts as healthy.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct ActiveHealthy {
    /// Seconds between probes of healthy targets; 0 for none.
    #[field(nullable, default = 0, between = [0, 65535])]
    pub interval: f64,
    #[field(set, nullable, default = [200, 302], between = [100, 999])]
    pub http_statuses: Vec<u16>,
    #[field(nullable, default = 0, between = [0, 255])]
    pub successes: u16,
}

/// When a probed target counts as unhealthy.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct ActiveUnhealthy {
    /// Seconds between probes of unhealthy targets; 0 for none.
    #[field(nullable, default = 0, between = [0, 65535])]
    pub interval: f64,
    #[field(set, nullable, default = [429, 404, 500, 501, 502, 503, 504, 505], between = [100, 999])]
    pub http_statuses: Vec<u16>,
    #[field(flatten)]
    pub most: Failures,
}

/// How many failures in a row are enough; 0 for any number.
#[derive(Debug, Clone, Copy, PartialEq, Record)]
pub struct Failures {
    #[field(nullable, default = 0, between = [0, 255])]
    pub tcp_failures: u16,
    #[field(nullable, default = 0, between = [0, 255])]
    pub timeouts: u16,
    #[field(nullable, default = 0, between = [0, 255])]
    pub http_failures: u16,
}

/// Watching by what requests meet.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct PassiveChecks {
    #[field(nullable, default = "http")]
    pub r#type: ProbeType,
    pub healthy: PassiveHealthy,
    pub unhealthy: PassiveUnhealthy,
}

/// Which responses speak for a target.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct PassiveHealthy {
    #[field(set, between = [100, 999], nullable, default = [
        200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308,
    ])]
    pub http_statuses: Vec<u16>,
    #[field(nullable, default = 0, between = [0, 255])]
    pub successes: u16,
}

/// What speaks against a target.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct PassiveUnhealthy {
    #[field(set, nullable, default = [429, 500, 503], between = [100, 999])]
    pub http_statuses: Vec<u16>,
    #[field(flatten)]
    pub most: Failures,
}
