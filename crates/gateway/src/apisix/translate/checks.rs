//! Health checks: APISIX's `checks`, which are Kong's `healthchecks` with other defaults.
use super::Invalid;
use serde_json::json;
use std::collections::BTreeMap;
use weir_model::schema::{Json, Record};

/// The health checks of an upstream.
#[derive(Clone, Record)]
pub(super) struct Checks {
    /// Without it there are no others.
    pub active: Option<Active>,
    pub passive: Option<Passive>,
}

/// Active health checks.
#[derive(Clone, Record)]
pub(super) struct Active {
    #[field(default = "http", one_of = ["http", "https", "tcp"])]
    pub r#type: String,
    #[field(default = 1, between = [0, 65535])]
    pub timeout: f64,
    #[field(default = 10, between = [1, 2147483648])]
    pub concurrency: u32,
    #[field(default = "/", starts_with = "/")]
    pub http_path: String,
    pub host: Option<String>,
    #[field(default = true)]
    pub https_verify_certificate: bool,
    pub req_headers: Option<Vec<String>>,
    pub healthy: ActiveHealthy,
    pub unhealthy: ActiveUnhealthy,
}

/// When a probed node counts as healthy.
#[derive(Clone, Record)]
pub(super) struct ActiveHealthy {
    #[field(default = 1, between = [1, 65535])]
    pub interval: u32,
    #[field(default = [200, 302], between = [200, 599])]
    pub http_statuses: Vec<u16>,
    #[field(default = 2, between = [1, 254])]
    pub successes: u16,
}

/// When a probed node counts as unhealthy.
#[derive(Clone, Record)]
pub(super) struct ActiveUnhealthy {
    #[field(default = 1, between = [1, 65535])]
    pub interval: u32,
    #[field(default = [429, 404, 500, 501, 502, 503, 504, 505], between = [200, 599])]
    pub http_statuses: Vec<u16>,
    #[field(default = 5, between = [1, 254])]
    pub http_failures: u16,
    #[field(default = 2, between = [1, 254])]
    pub tcp_failures: u16,
    #[field(default = 3, between = [1, 254])]
    pub timeouts: u16,
}

/// Passive health checks.
#[derive(Clone, Record)]
pub(super) struct Passive {
    #[field(default = "http", one_of = ["http", "https", "tcp"])]
    pub r#type: String,
    pub healthy: PassiveHealthy,
    pub unhealthy: PassiveUnhealthy,
}

/// Which responses count as healthy.
#[derive(Clone, Record)]
pub(super) struct PassiveHealthy {
    #[field(between = [200, 599], default = [
        200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308,
    ])]
    pub http_statuses: Vec<u16>,
    #[field(default = 5, between = [0, 254])]
    pub successes: u16,
}

/// What counts as unhealthy.
#[derive(Clone, Record)]
pub(super) struct PassiveUnhealthy {
    #[field(default = [429, 500, 503], between = [200, 599])]
    pub http_statuses: Vec<u16>,
    #[field(default = 2, between = [0, 254])]
    pub tcp_failures: u16,
    #[field(default = 7, between = [0, 254])]
    pub timeouts: u16,
    #[field(default = 5, between = [0, 254])]
    pub http_failures: u16,
}

/// The same in Kong's terms.
pub(super) fn translate(checks: &Checks) -> Result<Json, Invalid> {
    let Some(active) = &checks.active else {
        return Err(Invalid::configuration(
            "property \"checks\" validation failed: property \"active\" is required",
        ));
    };
    let Active { r#type, timeout, concurrency, http_path, healthy, unhealthy, .. } = active;
    let mut found = json!({ "active": {
        "type": r#type,
        "timeout": timeout,
        "concurrency": concurrency,
        "http_path": http_path,
        "https_verify_certificate": active.https_verify_certificate,
        "https_sni": active.host,
        "headers": headers(active)?,
        "healthy": healthy.to_value(),
        "unhealthy": unhealthy.to_value(),
    }});
    if let Some(passive) = &checks.passive {
        found["passive"] = passive.to_value();
    }
    Ok(found)
}

/// The headers of a probe, from lines; `host` is one of them.
fn headers(active: &Active) -> Result<BTreeMap<String, Vec<String>>, Invalid> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in active.req_headers.iter().flatten() {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| Invalid::configuration(format!("req_headers {line:?}: expected name: value")))?;
        headers.entry(name.trim().to_owned()).or_default().push(value.trim().to_owned());
    }
    if let Some(host) = &active.host {
        headers.insert("Host".to_owned(), vec![host.clone()]);
    }
    Ok(headers)
}
