//! The supported fields of APISIX's objects, with APISIX's defaults.
use super::Invalid;
use super::checks::Checks;
use std::collections::BTreeMap;
use weir_model::schema::{FieldError, Json, Record, RecordSchema, Secret};

/// Plugins by name.
pub(super) type Plugins = BTreeMap<String, Json>;

/// A route.
#[derive(Clone, Record)]
#[record(check = one_uri, check = one_host, check = one_address)]
pub(super) struct Route {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    #[field(starts_with = "/")]
    pub uri: Option<String>,
    #[field(starts_with = "/", len_min = 1)]
    pub uris: Option<Vec<String>>,
    pub host: Option<String>,
    #[field(len_min = 1)]
    pub hosts: Option<Vec<String>>,
    #[field(one_of = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"])]
    pub methods: Option<Vec<String>>,
    /// The client's address, or a range of addresses.
    pub remote_addr: Option<String>,
    /// Several of these.
    #[field(len_min = 1)]
    pub remote_addrs: Option<Vec<String>>,
    /// Conditions on variables.
    pub vars: Option<Json>,
    #[field(default = 0)]
    pub priority: i32,
    /// 1 if the route is enabled.
    #[field(default = 1, between = [0, 1])]
    pub status: u8,
    pub plugins: Option<Plugins>,
    pub plugin_config_id: Option<Json>,
    pub service_id: Option<Json>,
    pub upstream_id: Option<Json>,
    pub upstream: Option<Upstream>,
    pub timeout: Option<Timeout>,
    pub enable_websocket: Option<bool>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

fn one_uri(route: &Route) -> Vec<FieldError> {
    match (&route.uri, &route.uris) {
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![FieldError::new("", "one of uri or uris is required")],
    }
}

fn one_host(route: &Route) -> Vec<FieldError> {
    let both = route.host.is_some() && route.hosts.is_some();
    both.then(|| FieldError::new("", "only one of host or hosts is allowed")).into_iter().collect()
}

fn one_address(route: &Route) -> Vec<FieldError> {
    let both = route.remote_addr.is_some() && route.remote_addrs.is_some();
    both.then(|| FieldError::new("", "only one of remote_addr or remote_addrs is allowed"))
        .into_iter()
        .collect()
}

/// What several routes share.
#[derive(Clone, Record)]
pub(super) struct Service {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    #[field(len_min = 1)]
    pub hosts: Option<Vec<String>>,
    pub plugins: Option<Plugins>,
    pub upstream_id: Option<Json>,
    pub upstream: Option<Upstream>,
    pub enable_websocket: Option<bool>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// Where requests go.
#[derive(Clone, Record)]
#[record(check = host_to_write, check = key_to_hash, check = nodes_or_name)]
pub(super) struct Upstream {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    #[field(default = "roundrobin", one_of = ["roundrobin", "chash", "least_conn", "ewma"])]
    pub r#type: String,
    /// Weights by `host:port`, or a list of nodes.
    pub nodes: Option<Json>,
    /// The name by which `discovery_type` finds the nodes.
    #[field(len_max = 256)]
    pub service_name: Option<String>,
    pub discovery_type: Option<String>,
    pub discovery_args: Option<Json>,
    pub retries: Option<u16>,
    /// Seconds in which a request may be sent again.
    #[field(between = [0, 2147483646])]
    pub retry_timeout: Option<f64>,
    /// How idle connections are kept.
    pub keepalive_pool: Option<Json>,
    pub timeout: Option<Timeout>,
    #[field(default = "http", one_of = ["http", "https", "grpc", "grpcs", "tcp", "tls", "udp"])]
    pub scheme: String,
    #[field(default = "pass", one_of = ["pass", "node", "rewrite"])]
    pub pass_host: String,
    pub upstream_host: Option<String>,
    /// What `chash` hashes. Has no meaning for other types.
    #[field(default = "vars", one_of = ["vars", "header", "cookie", "consumer", "vars_combinations"])]
    pub hash_on: String,
    /// Which variable, header or cookie that is.
    pub key: Option<String>,
    pub checks: Option<Checks>,
    pub tls: Option<UpstreamTls>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// TLS towards an upstream.
#[derive(Clone, Record)]
#[record(check = one_certificate)]
pub(super) struct UpstreamTls {
    /// The ssl object with the certificate that is presented.
    pub client_cert_id: Option<Json>,
    /// The certificate that is presented, and its key.
    pub client_cert: Option<String>,
    #[field(secret)]
    pub client_key: Option<Secret>,
    /// Whether the upstream's certificate is verified.
    #[field(default = false)]
    pub verify: bool,
}

fn one_certificate(tls: &UpstreamTls) -> Vec<FieldError> {
    let is_pair = tls.client_cert.is_some() == tls.client_key.is_some();
    let is_one = tls.client_cert_id.is_none() || tls.client_cert.is_none();
    let message = "write either client_cert_id, or client_cert and client_key";
    (!is_pair || !is_one).then(|| FieldError::new("", message)).into_iter().collect()
}

fn host_to_write(upstream: &Upstream) -> Vec<FieldError> {
    if upstream.pass_host == "rewrite" && upstream.upstream_host.is_none() {
        return vec![FieldError::new("upstream_host", "required with pass_host: rewrite")];
    }
    Vec::new()
}

fn nodes_or_name(upstream: &Upstream) -> Vec<FieldError> {
    let by_name = upstream.service_name.is_some() && upstream.discovery_type.is_some();
    match (&upstream.nodes, by_name) {
        (Some(_), _) | (None, true) => Vec::new(),
        (None, false) => {
            vec![FieldError::new("", "one of nodes, or service_name and discovery_type, is required")]
        }
    }
}

fn key_to_hash(upstream: &Upstream) -> Vec<FieldError> {
    let needs = upstream.r#type == "chash" && upstream.hash_on != "consumer" && upstream.key.is_none();
    needs.then(|| FieldError::new("", "missing key")).into_iter().collect()
}

/// One node of an upstream.
#[derive(Clone, Record)]
pub(super) struct Node {
    pub host: String,
    #[field(between = [1, 65535])]
    pub port: Option<u16>,
    pub weight: u16,
    /// Nodes of a lower priority are used while all of the higher ones are unhealthy or were tried.
    #[field(default = 0)]
    pub priority: i32,
    pub metadata: Option<Json>,
}

/// Seconds.
#[derive(Clone, Record)]
pub(super) struct Timeout {
    #[field(gt = 0)]
    pub connect: f64,
    #[field(gt = 0)]
    pub send: f64,
    #[field(gt = 0)]
    pub read: f64,
}

/// Plugins that routes share, or that run for all requests.
#[derive(Clone, Record)]
pub(super) struct PluginSet {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub plugins: Plugins,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// A route of connections.
#[derive(Clone, Record)]
pub(super) struct StreamRoute {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The client's address, or a range of addresses.
    #[field(matches = ip_or_cidr)]
    pub remote_addr: Option<String>,
    /// The address that clients connect to, or a range of addresses.
    #[field(matches = ip_or_cidr)]
    pub server_addr: Option<String>,
    /// The port that clients connect to.
    #[field(between = [1, 65535])]
    pub server_port: Option<u16>,
    /// The server name that clients ask for in their TLS handshakes.
    pub sni: Option<String>,
    pub plugins: Option<Plugins>,
    pub service_id: Option<Json>,
    pub upstream_id: Option<Json>,
    pub upstream: Option<Upstream>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// A `.proto` file, or several that are compiled.
#[derive(Clone, Record)]
pub(super) struct Proto {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The text, or a `FileDescriptorSet` in base64.
    #[field(len_max = 1048576)]
    pub content: String,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// Where secrets are kept: a HashiCorp Vault.
#[derive(Clone, Record)]
pub(super) struct Secrets {
    pub id: Option<Json>,
    pub uri: String,
    /// The path of the secrets engine.
    pub prefix: String,
    #[field(secret)]
    pub token: Secret,
    pub namespace: Option<String>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// Who calls.
#[derive(Clone, Record)]
pub(super) struct Consumer {
    pub username: String,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub plugins: Option<Plugins>,
    pub group_id: Option<Json>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// A credential as an object below its consumer.
#[derive(Clone, Record)]
pub(super) struct Credential {
    pub id: Option<Json>,
    pub name: Option<String>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub plugins: Option<Plugins>,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

/// A certificate for server names.
#[derive(Clone, Record)]
#[record(check = one_name)]
pub(super) struct Ssl {
    pub id: Option<Json>,
    #[field(len_min = 0)]
    pub desc: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    #[field(default = "server", one_of = ["server", "client"])]
    pub r#type: String,
    pub cert: String,
    #[field(secret)]
    pub key: Secret,
    pub sni: Option<String>,
    #[field(len_min = 1)]
    pub snis: Option<Vec<String>>,
    /// 1 if the certificate is enabled.
    #[field(default = 1, between = [0, 1])]
    pub status: u8,
    pub create_time: Option<i64>,
    pub update_time: Option<i64>,
}

fn one_name(ssl: &Ssl) -> Vec<FieldError> {
    match (&ssl.sni, &ssl.snis) {
        (Some(_), None) | (None, Some(_)) => Vec::new(),
        _ => vec![FieldError::new("", "one of sni or snis is required")],
    }
}

/// Fields of APISIX's objects that are not supported here.
const NOT_AVAILABLE: &[&str] = &[
    "filter_func",
    "script",
    "script_id",
    "remote_addr",
    "remote_addrs",
    "service_protocol",
    "tls",
    "certs",
    "keys",
    "client",
    "ssl_protocols",
];

/// Whether a field of such a record is not supported.
pub(super) fn is_unavailable(field: &str, record: &RecordSchema) -> bool {
    NOT_AVAILABLE.contains(&field) && record.field(field).is_none()
}

/// Reads an object, or returns all its errors.
pub(super) fn read<T: Record>(written: &Json) -> Result<T, Invalid> {
    not_available(written, T::SCHEMA)?;
    T::from_value(written).map_err(|found| invalid(&found))
}

fn not_available(written: &Json, record: &RecordSchema) -> Result<(), Invalid> {
    let fields = written.as_object().into_iter().flatten();
    for (field, value) in fields.filter(|(_, value)| !value.is_null()) {
        if is_unavailable(field, record) {
            return Err(Invalid::configuration(format!("`{field}` is not available here; leave it out")));
        }
        if field == "upstream" {
            not_available(value, Upstream::SCHEMA)?;
        }
    }
    Ok(())
}

/// The violations, in APISIX's words.
pub(super) fn invalid(found: &[FieldError]) -> Invalid {
    let line = |violation: &FieldError| match violation.path.as_str() {
        "" => violation.message.clone(),
        path => format!("property \"{path}\" validation failed: {}", violation.message),
    };
    Invalid::configuration(found.iter().map(line).collect::<Vec<_>>().join("; "))
}
