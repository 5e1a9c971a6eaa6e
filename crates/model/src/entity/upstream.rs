//! An upstream: a virtual host name, and the targets behind it.
use super::Healthchecks;
use crate::schema::{Choice, FieldError, Record};
use std::net::Ipv6Addr;
use uuid::Uuid;

/// How the next target is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum Algorithm {
    #[choice("round-robin")]
    RoundRobin,
    #[choice("consistent-hashing")]
    ConsistentHashing,
    #[choice("least-connections")]
    LeastConnections,
    #[choice("latency")]
    Latency,
}

/// What consistent hashing hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum HashOn {
    None,
    Consumer,
    Ip,
    Header,
    Cookie,
    Path,
    QueryArg,
    UriCapture,
}

/// A virtual host name that services name as their host.
#[derive(Debug, Clone, PartialEq, Record)]
#[record(check = hash_inputs_named, check = fallback_has_meaning)]
pub struct Upstream {
    #[field(auto)]
    pub id: Uuid,
    /// A host name, without a port.
    #[field(unique, check = virtual_host)]
    pub name: String,
    /// How the next target is chosen.
    #[field(nullable, default = "round-robin")]
    pub algorithm: Algorithm,
    /// What consistent hashing hashes; anything but none implies the algorithm.
    #[field(nullable, default = "none")]
    pub hash_on: HashOn,
    /// What is hashed when that is absent from a request.
    #[field(nullable, default = "none")]
    pub hash_fallback: HashOn,
    #[field(matches = header_name, depends_on = "hash_on")]
    pub hash_on_header: Option<String>,
    #[field(matches = header_name, depends_on = "hash_fallback")]
    pub hash_fallback_header: Option<String>,
    #[field(matches = header_name)]
    pub hash_on_cookie: Option<String>,
    #[field(default = "/", matches = path)]
    pub hash_on_cookie_path: Option<String>,
    #[field(depends_on = "hash_on")]
    pub hash_on_query_arg: Option<String>,
    #[field(depends_on = "hash_fallback")]
    pub hash_fallback_query_arg: Option<String>,
    #[field(depends_on = "hash_on")]
    pub hash_on_uri_capture: Option<String>,
    #[field(depends_on = "hash_fallback")]
    pub hash_fallback_uri_capture: Option<String>,
    /// The size of the hash ring.
    #[field(nullable, default = 10000, between = [10, 65536])]
    pub slots: u32,
    /// How targets are watched.
    pub healthchecks: Healthchecks,
    /// The Host header sent to targets.
    #[field(check = host_and_port)]
    pub host_header: Option<String>,
    /// The certificate presented to targets.
    #[field(foreign = "certificates")]
    pub client_certificate: Option<Uuid>,
    /// Whether the name of an SRV record is sent as the Host header.
    #[field(nullable, default = false)]
    pub use_srv_name: bool,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

impl Upstream {
    /// Makes the algorithm follow from `hash_on`, and the reverse, as Kong does.
    pub(crate) fn settle(&mut self) {
        if matches!(self.algorithm, Algorithm::LeastConnections | Algorithm::Latency) {
            self.hash_on = HashOn::None;
        } else if self.hash_on != HashOn::None {
            self.algorithm = Algorithm::ConsistentHashing;
        }
    }
}

fn virtual_host(text: &str) -> Result<(), String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Err(
            "an upstream's name is a host name, not an IP address; give the address as a target".into()
        );
    }
    if text.contains(':') {
        return Err("an upstream's name has no port; give the port with each target".into());
    }
    crate::rule::hostname(text)
}

fn host_and_port(text: &str) -> Result<(), String> {
    let host = match text.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => text,
    };
    crate::rule::host(host)
}

/// What must be named for each kind of input: that field, for `hash_on` and for `hash_fallback`.
fn hash_inputs_named(upstream: &Upstream) -> Vec<FieldError> {
    let mut found = Vec::new();
    let mut require = |prefix: &str, on: HashOn, inputs: [(HashOn, &str, &Option<String>); 3]| {
        for (_, input, _) in inputs.iter().filter(|(kind, _, name)| *kind == on && name.is_none()) {
            let message = format!("required with {prefix}: {}", on.as_str());
            found.push(FieldError::new(format!("{prefix}_{input}"), message));
        }
    };
    let inputs = |header, query_arg, capture| {
        let (header, query_arg) =
            ((HashOn::Header, "header", header), (HashOn::QueryArg, "query_arg", query_arg));
        [header, query_arg, (HashOn::UriCapture, "uri_capture", capture)]
    };
    let u = upstream;
    require("hash_on", u.hash_on, inputs(&u.hash_on_header, &u.hash_on_query_arg, &u.hash_on_uri_capture));
    let fallback = inputs(&u.hash_fallback_header, &u.hash_fallback_query_arg, &u.hash_fallback_uri_capture);
    require("hash_fallback", u.hash_fallback, fallback);
    if [u.hash_on, u.hash_fallback].contains(&HashOn::Cookie) && u.hash_on_cookie.is_none() {
        found.push(FieldError::new("hash_on_cookie", "required when a cookie is hashed"));
    }
    found
}

fn fallback_has_meaning(upstream: &Upstream) -> Vec<FieldError> {
    let (on, fallback) = (upstream.hash_on, upstream.hash_fallback);
    let (field, message) = match on {
        _ if fallback == HashOn::None => return Vec::new(),
        HashOn::None => ("hash_fallback", "needs `hash_on`; set it, or leave this out"),
        HashOn::Cookie => {
            ("hash_fallback", "has no meaning with hash_on: cookie, which never fails; leave it out")
        }
        _ if on == fallback && same_input(upstream) => {
            (fallback_input(on), "hashes the same as `hash_on`; choose another")
        }
        _ => return Vec::new(),
    };
    vec![FieldError::new(field, message)]
}

/// The field that says what `hash_fallback` hashes.
fn fallback_input(fallback: HashOn) -> &'static str {
    match fallback {
        HashOn::Header => "hash_fallback_header",
        HashOn::QueryArg => "hash_fallback_query_arg",
        HashOn::UriCapture => "hash_fallback_uri_capture",
        _ => "hash_fallback",
    }
}

fn same_input(upstream: &Upstream) -> bool {
    let lower = |name: &Option<String>| name.as_ref().map(|name| name.to_ascii_lowercase());
    match upstream.hash_on {
        HashOn::Header => lower(&upstream.hash_on_header) == lower(&upstream.hash_fallback_header),
        HashOn::QueryArg => upstream.hash_on_query_arg == upstream.hash_fallback_query_arg,
        HashOn::UriCapture => upstream.hash_on_uri_capture == upstream.hash_fallback_uri_capture,
        _ => true,
    }
}

/// One place that an upstream's requests go to.
#[derive(Debug, Clone, PartialEq, Record)]
pub struct Target {
    #[field(auto)]
    pub id: Uuid,
    #[field(foreign = "upstreams")]
    pub upstream: Uuid,
    /// `host:port`, the port filled in, or `unix:` and the path of a socket.
    #[field(check = target)]
    pub target: String,
    /// Its share of the requests; 0 for none.
    #[field(nullable, default = 100)]
    pub weight: u16,
    /// A target gets requests only while no target of a higher priority is available, or for retries after these were tried.
    #[field(nullable, extension, default = 0)]
    pub priority: i32,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<f64>,
    #[field(auto)]
    pub updated_at: Option<f64>,
}

impl Target {
    /// The port when none is written.
    pub const DEFAULT_PORT: u16 = 8000;

    /// Whether it is a Unix socket, which has no address.
    pub fn is_socket(&self) -> bool {
        self.target.starts_with("unix:")
    }

    /// Its host and port. A socket is a host whose port is 0.
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        if self.is_socket() {
            return Some((&self.target, 0));
        }
        let (host, port) = self.target.rsplit_once(':')?;
        Some((host, port.parse().ok()?))
    }

    /// Writes the target with its port.
    pub(crate) fn settle(&mut self) {
        if let Some(target) = Target::with_port(&self.target) {
            self.target = target;
        }
    }

    /// A target as it is stored: with its port, an IPv6 address in full. None of a socket, and of what is no target.
    pub fn with_port(text: &str) -> Option<String> {
        let (host, port) = split_target(text).filter(|_| !text.starts_with("unix:"))?;
        Some(format!("{host}:{port}"))
    }
}

fn target(text: &str) -> Result<(), String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return crate::rule::socket_path(path);
    }
    let expected = || format!("expected host:port, got {text:?}");
    if text.contains("://") || text.contains('/') {
        return Err(format!("{}; a target has no scheme and no path", expected()));
    }
    let (host, _) = split_target(text).ok_or_else(expected)?;
    crate::rule::host(&host).map_err(|_| expected())
}

/// The host, an IPv6 address in full and in brackets, and the port.
fn split_target(text: &str) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        _ if text.parse::<Ipv6Addr>().is_ok() => (text, Target::DEFAULT_PORT),
        Some((host, port)) if !text.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, Target::DEFAULT_PORT),
    };
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    Some((bare.parse().map_or_else(|_| host.to_owned(), in_full), port))
}

/// As Kong writes it: `[0000:0000:0000:0000:0000:0000:0000:0001]`.
fn in_full(address: Ipv6Addr) -> String {
    let segments = address.segments().map(|segment| format!("{segment:04x}"));
    format!("[{}]", segments.join(":"))
}
