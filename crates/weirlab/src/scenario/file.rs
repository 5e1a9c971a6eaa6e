//! `scenario.toml`, as it is written.
use super::Measure;
use crate::catalogue::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// All of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScenarioFile {
    pub(super) title: String,
    pub(super) source: String,
    #[serde(default)]
    pub(super) measure: Measure,
    #[serde(default)]
    pub(super) needs: BTreeSet<String>,
    #[serde(default = "both_schemes")]
    pub(super) schemes: Vec<Scheme>,
    pub(super) published: Option<String>,
    pub(super) waterfall: Option<WaterfallFile>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, serde_json::Value>,
    #[serde(default)]
    pub(super) sweep: Vec<SweepFile>,
    #[serde(default)]
    pub(super) upstream: UpstreamFile,
    #[serde(default)]
    pub(super) gateway: GatewayFile,
    pub(super) load: LoadFile,
    #[serde(default)]
    pub(super) parity: Vec<ParityFile>,
    #[serde(default)]
    pub(super) action: Vec<ActionFile>,
    #[serde(default)]
    pub(super) profile: BTreeMap<String, ProfileFile>,
}

/// How clients speak to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 in clear, by prior knowledge.
    H2c,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Scheme; 4] = [Scheme::Http, Scheme::Https, Scheme::H2, Scheme::H2c];

    /// Whether it is over TLS.
    #[must_use]
    pub fn is_tls(self) -> bool {
        matches!(self, Scheme::Https | Scheme::H2)
    }

    /// Whether it is HTTP/2.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Scheme::H2 | Scheme::H2c)
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::H2 => "h2",
            Scheme::H2c => "h2c",
        }
    }
}

impl std::str::FromStr for Scheme {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.as_str() == text);
        found.ok_or_else(|| format!("{text} is no scheme; use http, https, h2 or h2c"))
    }
}

/// A number, or a template that makes one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a number, or a template such as \"{{ bytes }}\"")]
pub(super) enum Amount {
    Number(f64),
    Template(String),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaterfallFile {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) label: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepFile {
    pub(super) variable: String,
    pub(super) values: Vec<serde_json::Value>,
    #[serde(default)]
    pub(super) with: BTreeMap<String, Vec<serde_json::Value>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UpstreamFile {
    pub(super) listeners: Amount,
    pub(super) body_bytes: Amount,
    pub(super) arguments: Vec<String>,
}

impl Default for UpstreamFile {
    fn default() -> Self {
        UpstreamFile {
            listeners: Amount::Number(1.0),
            body_bytes: Amount::Number(1024.0),
            arguments: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GatewayFile {
    pub(super) instances: Amount,
    pub(super) workers: Option<Amount>,
}

impl Default for GatewayFile {
    fn default() -> Self {
        GatewayFile { instances: Amount::Number(1.0), workers: None }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadFile {
    pub(super) connections: Amount,
    pub(super) threads: Amount,
    #[serde(default)]
    pub(super) protocol: ProtocolFile,
    #[serde(default = "default_streams")]
    pub(super) streams: Amount,
    #[serde(default = "default_true")]
    pub(super) keep_alive: bool,
    #[serde(default)]
    pub(super) first_byte: bool,
    pub(super) rate: Option<Amount>,
    #[serde(default)]
    pub(super) arrivals: Arrivals,
    #[serde(default = "default_timeout")]
    pub(super) timeout: Span,
    pub(super) request: Vec<RequestFile>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, VariableFile>,
    pub(super) script: Option<String>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
}

/// What a profile asks for instead.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileFile {
    pub(super) connections: Option<Amount>,
    pub(super) threads: Option<Amount>,
    pub(super) rate: Option<Amount>,
}

/// What requests are carried by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ProtocolFile {
    #[default]
    Http,
    Grpc,
    WebSocket,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Arrivals {
    #[default]
    Constant,
    Poisson,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestFile {
    #[serde(default = "default_weight")]
    pub(super) weight: u32,
    pub(super) method: Option<String>,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    pub(super) status: Vec<u16>,
    pub(super) body_length: Option<Amount>,
    pub(super) body_contains: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariableFile {
    #[serde(default = "default_first")]
    pub(super) first: u64,
    pub(super) count: Option<Amount>,
    pub(super) each: Option<String>,
    pub(super) values: Option<Vec<String>>,
    #[serde(default)]
    pub(super) distribution: DistributionFile,
    pub(super) exponent: Option<f64>,
    pub(super) with: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DistributionFile {
    #[default]
    Uniform,
    Zipf,
    Kong,
    RoundRobin,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParityFile {
    pub(super) method: Option<String>,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    pub(super) status: u16,
    #[serde(default)]
    pub(super) with_headers: Vec<String>,
    pub(super) grpc_status: Option<u16>,
    #[serde(default)]
    pub(super) upstream_body: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionFile {
    pub(super) name: String,
    pub(super) every: Span,
    pub(super) http: Option<CallFile>,
    #[serde(default)]
    pub(super) reload: bool,
    pub(super) signal: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallFile {
    pub(super) listener: Listener,
    #[serde(default = "default_method")]
    pub(super) method: String,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) body: String,
    pub(super) random: Option<Amount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Listener {
    Proxy,
    Admin,
    Status,
}

fn both_schemes() -> Vec<Scheme> {
    vec![Scheme::Https, Scheme::Http]
}

fn default_true() -> bool {
    true
}

fn default_streams() -> Amount {
    Amount::Number(10.0)
}

fn default_weight() -> u32 {
    1
}

fn default_first() -> u64 {
    1
}

fn default_method() -> String {
    "GET".to_owned()
}

fn default_timeout() -> Span {
    Span(std::time::Duration::from_secs(2))
}
