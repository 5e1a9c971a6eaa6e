//! Plugins of APISIX whose fields have other names in Weir's plugins.
use crate::apisix::object::Invalid;
use serde_json::json;
use weir_model::schema::{FieldError, Json, Record};

/// A configuration in APISIX's terms.
pub(super) trait Adapted: Record {
    /// The same in the terms of Weir's plugin; `metadata` is that of the plugin, or null.
    fn ours(&self, metadata: &Json) -> Result<Json, Invalid>;
}

/// Requires a key.
#[derive(Clone, Record)]
pub(super) struct KeyAuth {
    #[field(default = "apikey", matches = header_name)]
    header: String,
    #[field(default = "apikey")]
    query: String,
    #[field(default = false)]
    hide_credentials: bool,
    anonymous_consumer: Option<String>,
    realm: Option<String>,
}

impl Adapted for KeyAuth {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let mut names = vec![&self.header];
        names.extend((self.query != self.header).then_some(&self.query));
        Ok(json!({
            "key_names": names,
            "hide_credentials": self.hide_credentials,
            "anonymous": self.anonymous_consumer,
            "realm": self.realm,
        }))
    }
}

/// Requires a name and a password.
#[derive(Clone, Record)]
pub(super) struct BasicAuth {
    #[field(default = false)]
    hide_credentials: bool,
    anonymous_consumer: Option<String>,
    realm: Option<String>,
}

impl Adapted for BasicAuth {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let mut ours = json!({
            "hide_credentials": self.hide_credentials,
            "anonymous": self.anonymous_consumer,
        });
        if let Some(realm) = &self.realm {
            ours["realm"] = realm.as_str().into();
        }
        Ok(ours)
    }
}

/// Counts requests.
#[derive(Clone, Record)]
pub(super) struct Prometheus {
    #[field(default = false)]
    prefer_name: bool,
}

impl Adapted for Prometheus {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "per_consumer": true,
            "status_code_metrics": true,
            "latency_metrics": true,
            "bandwidth_metrics": true,
        }))
    }
}

/// Allows or denies clients by their addresses.
#[derive(Clone, Record)]
#[record(check = one_list)]
pub(super) struct IpRestriction {
    #[field(len_min = 1, matches = ip_or_cidr)]
    whitelist: Option<Vec<String>>,
    #[field(len_min = 1, matches = ip_or_cidr)]
    blacklist: Option<Vec<String>>,
    #[field(default = "Your IP address is not allowed", len_max = 1024)]
    message: String,
    #[field(default = 403, between = [403, 404])]
    response_code: u16,
}

fn one_list(config: &IpRestriction) -> Vec<FieldError> {
    match (&config.whitelist, &config.blacklist) {
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![FieldError::new("", "set either `whitelist` or `blacklist`")],
    }
}

impl Adapted for IpRestriction {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "allow": self.whitelist,
            "deny": self.blacklist,
            "message": self.message,
            "status": self.response_code,
        }))
    }
}

/// Asks another service whether a request may pass.
#[derive(Clone, Record)]
pub(super) struct ForwardAuth {
    #[field(matches = url)]
    uri: String,
    #[field(default = false)]
    allow_degradation: bool,
    #[field(default = 403, between = [400, 599])]
    status_on_error: u16,
    #[field(default = true)]
    ssl_verify: bool,
    #[field(default = "GET", one_of = ["GET"])]
    request_method: String,
    #[field(default = [], matches = header_name)]
    request_headers: Vec<String>,
    #[field(default = [], matches = header_name)]
    upstream_headers: Vec<String>,
    #[field(default = [], matches = header_name)]
    client_headers: Vec<String>,
    #[field(default = 3000, between = [1, 60000])]
    timeout: u32,
    #[field(default = true)]
    keepalive: bool,
    #[field(default = 60000, between = [1000, 2147483646])]
    keepalive_timeout: u32,
    #[field(default = 5, between = [1, 2147483646])]
    keepalive_pool: u32,
}

impl Adapted for ForwardAuth {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "url": self.uri,
            "timeout": self.timeout,
            "ssl_verify": self.ssl_verify,
            "request_headers": self.request_headers,
            "upstream_headers": self.upstream_headers,
            "client_headers": self.client_headers,
            "fail_open": self.allow_degradation,
            "status_on_error": self.status_on_error,
        }))
    }
}

/// Traces requests, and sends spans to Zipkin.
#[derive(Clone, Record)]
pub(super) struct Zipkin {
    #[field(matches = url)]
    endpoint: String,
    #[field(between = [0.00001, 1])]
    sample_ratio: f64,
    #[field(default = "APISIX")]
    service_name: String,
}

impl Adapted for Zipkin {
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        Ok(json!({
            "http_endpoint": self.endpoint,
            "sample_ratio": self.sample_ratio,
            "local_service_name": self.service_name,
        }))
    }
}

/// Traces requests, and sends spans to an OpenTelemetry collector, which the plugin's metadata names.
#[derive(Clone, Record)]
pub(super) struct OpenTelemetry {
    #[field(default = {})]
    sampler: Sampler,
}

/// Which requests are traced.
#[derive(Clone, Record)]
struct Sampler {
    #[field(default = "always_off", one_of = ["always_on", "always_off", "trace_id_ratio", "parent_base"])]
    name: String,
    #[field(default = {})]
    options: SamplerOptions,
}

/// The fraction that is traced.
#[derive(Clone, Record)]
struct SamplerOptions {
    #[field(default = 0, between = [0, 1])]
    fraction: f64,
    root: Option<RootSampler>,
}

/// Which requests are traced if the client does not say.
#[derive(Clone, Record)]
struct RootSampler {
    #[field(default = "always_off", one_of = ["always_on", "always_off", "trace_id_ratio"])]
    name: String,
    #[field(default = {})]
    options: RootOptions,
}

/// The fraction of these that is traced.
#[derive(Clone, Record)]
struct RootOptions {
    #[field(default = 0, between = [0, 1])]
    fraction: f64,
}

/// Where APISIX expects the collector if the metadata does not say.
const COLLECTOR: &str = "127.0.0.1:4318";

impl Adapted for OpenTelemetry {
    fn ours(&self, metadata: &Json) -> Result<Json, Invalid> {
        let fraction = |name: &str, fraction: f64| match name {
            "always_on" => 1.0,
            "trace_id_ratio" => fraction,
            _ => 0.0,
        };
        let Sampler { name, options } = &self.sampler;
        let rate = match (name.as_str(), &options.root) {
            ("parent_base", Some(root)) => fraction(&root.name, root.options.fraction),
            (name, _) => fraction(name, options.fraction),
        };
        let collector = &metadata["collector"];
        let address = collector["address"].as_str().unwrap_or(COLLECTOR);
        let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let texts = |value: &Json| -> Option<Json> {
            let text = |value: &Json| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let members = value.as_object()?.iter();
            Some(members.map(|(name, value)| (name.clone(), Json::from(text(value)))).collect())
        };
        let mut attributes = texts(&metadata["resource"]).unwrap_or_else(|| json!({}));
        if attributes["service.name"].is_null() {
            attributes["service.name"] = "APISIX".into();
        }
        let mut ours = json!({
            "traces_endpoint": format!("{}/v1/traces", url.trim_end_matches('/')),
            "headers": texts(&collector["request_headers"]),
            "resource_attributes": attributes,
            "sampling_rate": rate,
            "header_type": "w3c",
        });
        if let Some(seconds) = collector["request_timeout"].as_u64() {
            ours["read_timeout"] = (seconds.min(3600) * 1_000).into();
        }
        Ok(ours)
    }
}
