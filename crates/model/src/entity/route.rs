//! A route: which requests, and to which service.
use super::Protocol;
use crate::rule;
use crate::schema::{Choice, FieldError, Record};
use std::collections::BTreeMap;
use uuid::Uuid;

/// How a service's path and a request's are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum PathHandling {
    V0,
    V1,
}

/// An address match of a stream route: an IP or CIDR, a port, or both.
#[derive(Debug, Clone, PartialEq, Eq, Record)]
#[record(check = ip_or_port)]
pub struct IpPort {
    #[field(matches = ip_or_cidr)]
    pub ip: Option<String>,
    pub port: Option<u16>,
}

/// Which requests, and to which service.
#[derive(Debug, Clone, PartialEq, Record)]
#[record(check = protocols_agree, check = criteria_given, check = expression_alone, check = vars_have_meaning)]
pub struct Route {
    #[field(auto)]
    pub id: Uuid,
    #[field(unique, matches = name)]
    pub name: Option<String>,
    /// The protocols that requests may come by.
    #[field(set, len_min = 1, default = ["http", "https"])]
    pub protocols: Vec<Protocol>,
    /// The answer to a plain request of a route that wants TLS.
    #[field(default = 426, one_of = [426, 301, 302, 307, 308])]
    pub https_redirect_status_code: u16,
    /// Whether the matched path is taken off.
    #[field(default = true)]
    pub strip_path: bool,
    /// Whether the Host header is passed on.
    #[field(default = false)]
    pub preserve_host: bool,
    #[field(default = true)]
    pub request_buffering: bool,
    #[field(default = true)]
    pub response_buffering: bool,
    /// Regex paths of higher priority are tried first.
    #[field(nullable, default = 0)]
    pub regex_priority: i64,
    #[field(nullable, default = "v0")]
    pub path_handling: PathHandling,
    #[field(set, check = method)]
    pub methods: Option<Vec<String>>,
    /// Host names; one `*` may stand for the first or the last label.
    #[field(matches = wildcard_host_and_port)]
    pub hosts: Option<Vec<String>>,
    /// Prefixes, which start with `/`, and regexes, which start with `~/`.
    #[field(matches = route_path)]
    pub paths: Option<Vec<String>>,
    /// Header names, and for each the values of which one must match; `~*` starts a regex.
    #[field(key_check = matched_header, check = header_value)]
    pub headers: Option<BTreeMap<String, Vec<String>>>,
    #[field(set, matches = wildcard_host)]
    pub snis: Option<Vec<String>>,
    #[field(set)]
    pub sources: Option<Vec<IpPort>>,
    #[field(set)]
    pub destinations: Option<Vec<IpPort>>,
    /// Which requests or connections, in the language of `router_flavor = expressions`, instead of the criteria above.
    pub expression: Option<String>,
    /// Routes with an expression of higher priority are tried first.
    #[field(nullable, default = 0, between = [0, 70368744177663])]
    pub priority: i64,
    /// A condition on variables, as APISIX writes it: `[["arg_user", "==", "jack"]]`.
    #[field(extension)]
    pub vars: Option<serde_json::Value>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    /// Where matching requests go; without one, a plugin must answer.
    #[field(foreign = "services")]
    pub service: Option<Uuid>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn ip_or_port(match_: &IpPort) -> Vec<FieldError> {
    match (&match_.ip, match_.port) {
        (None, None) => vec![FieldError::new("", "needs an `ip`, a `port`, or both")],
        _ => Vec::new(),
    }
}

fn method(text: &str) -> Result<(), String> {
    if text.bytes().all(|b| b.is_ascii_uppercase()) {
        return Ok(());
    }
    if text.contains(',') {
        let each: Vec<_> = text.split(',').map(|method| format!("methods[]={}", method.trim())).collect();
        return Err(format!("give each method by itself; in a form, one argument each: {}", each.join("&")));
    }
    Err(format!("a method is written in capitals; write {:?}", text.to_ascii_uppercase()))
}

fn matched_header(name: &str) -> Result<(), String> {
    if name.eq_ignore_ascii_case("host") {
        return Err("match the Host header by `hosts`".to_owned());
    }
    rule::header_name(name)
}

fn header_value(value: &str) -> Result<(), String> {
    value.strip_prefix("~*").map_or(Ok(()), |regex| rule::marked_regex("~*", regex))
}

impl Route {
    /// Leaves paths of gRPC as they are, because they name methods.
    pub(crate) fn keep_grpc_path(&mut self) {
        self.strip_path = self.strips_path();
    }

    /// Whether the upstream gets the path without what matched. Never for gRPC, whose paths name methods: Kong has another
    /// default there, and refuses `true`.
    pub fn strips_path(&self) -> bool {
        let grpc = |protocol: &Protocol| matches!(protocol, Protocol::Grpc | Protocol::Grpcs);
        self.strip_path && !self.protocols.iter().any(grpc)
    }
}

/// The protocols that may stand together on one route.
const FAMILIES: [&[Protocol]; 4] = [
    &[Protocol::Http, Protocol::Https],
    &[Protocol::Tcp, Protocol::Tls, Protocol::Udp],
    &[Protocol::TlsPassthrough],
    &[Protocol::Grpc, Protocol::Grpcs],
];

fn protocols_agree(route: &Route) -> Vec<FieldError> {
    if FAMILIES.iter().any(|family| route.protocols.iter().all(|protocol| family.contains(protocol))) {
        return Vec::new();
    }
    let families = "(http, https), (grpc, grpcs), (tcp, tls, udp) or (tls_passthrough)";
    vec![FieldError::new(
        "protocols",
        format!("protocols of one route come from one of {families}; split the route"),
    )]
}

/// An empty list says as little as none.
fn some<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|list| !list.is_empty())
}

/// Every route must say which requests it matches, and by nothing that its protocols do not have.
fn criteria_given(route: &Route) -> Vec<FieldError> {
    let has = |protocol| route.protocols.contains(&protocol);
    let grpc = [Protocol::Grpc, Protocol::Grpcs].map(has).contains(&true);
    let http = some(&route.methods) && !grpc || some(&route.hosts) || some(&route.paths);
    let addresses = some(&route.sources) || some(&route.destinations);
    let stream =
        [Protocol::Tcp, Protocol::Tls, Protocol::Udp, Protocol::TlsPassthrough].map(has).contains(&true);
    let encrypted =
        [Protocol::Https, Protocol::Grpcs, Protocol::Tls, Protocol::TlsPassthrough].map(has).contains(&true);
    let headers = has_headers(route);
    let passthrough = has(Protocol::TlsPassthrough);
    let given = if stream { addresses && !passthrough } else { http || headers };
    let mut found = Vec::new();
    if !(given || route.expression.is_some() || encrypted && some(&route.snis)) {
        let fields = match (stream, encrypted) {
            _ if passthrough => "snis",
            (true, true) => "sources, destinations, snis",
            (true, false) => "sources, destinations",
            (false, true) if grpc => "hosts, paths, headers, snis",
            (false, false) if grpc => "hosts, paths, headers",
            (false, true) => "methods, hosts, paths, headers, snis",
            (false, false) => "methods, hosts, paths, headers",
        };
        found.push(FieldError::new("", format!("the route matches nothing; set at least one of {fields}")));
    }
    if !encrypted && some(&route.snis) {
        let message = "needs protocols https, grpcs, tls or tls_passthrough; leave it out";
        found.push(FieldError::new("snis", message));
    }
    found.extend(of_other_protocols(route, (stream, grpc)));
    found
}

/// The criteria that only routes of other protocols have.
fn of_other_protocols(route: &Route, (stream, grpc): (bool, bool)) -> Vec<FieldError> {
    let error = |(field, _): (&str, bool), message| FieldError::new(field, message);
    let methods = ("methods", some(&route.methods));
    let names = [
        methods,
        ("hosts", some(&route.hosts)),
        ("paths", some(&route.paths)),
        ("headers", has_headers(route)),
    ];
    let addresses = [("sources", some(&route.sources)), ("destinations", some(&route.destinations))];
    let mut found = Vec::new();
    if stream {
        let message = "has no meaning for a stream route; leave it out";
        found.extend(names.into_iter().filter(|(_, set)| *set).map(|field| error(field, message)));
    } else if let Some(field) = addresses.into_iter().find(|(_, set)| *set) {
        found.push(error(field, "needs protocols tcp, tls, udp or tls_passthrough; leave it out"));
    }
    if grpc && methods.1 {
        found.push(error(methods, "has no meaning for a gRPC route, whose requests are POST; leave it out"));
    }
    found
}

fn has_headers(route: &Route) -> bool {
    route.headers.as_ref().is_some_and(|headers| !headers.is_empty())
}

/// Requests alone have variables, and routes with an expression say all in it.
fn vars_have_meaning(route: &Route) -> Vec<FieldError> {
    let message = match &route.vars {
        Some(_) if route.protocols.iter().any(|protocol| protocol.is_stream()) => {
            "has no meaning for a stream route; leave it out"
        }
        Some(_) if route.expression.is_some() => "cannot stand beside `expression`; say it there",
        _ => return Vec::new(),
    };
    vec![FieldError::new("vars", message)]
}

/// An expression stands instead of criteria, and has a priority of its own. The words are Kong's.
fn expression_alone(route: &Route) -> Vec<FieldError> {
    let headers = has_headers(route);
    let names = some(&route.methods) || some(&route.hosts) || some(&route.paths) || some(&route.snis);
    let criteria = names || headers || some(&route.sources) || some(&route.destinations);
    let others = "'methods', 'hosts', 'paths', 'headers', 'snis', 'sources' or 'destinations'";
    let (field, found) = match &route.expression {
        Some(_) if criteria => {
            ("expression", format!("cannot set 'expression' with {others} simultaneously"))
        }
        Some(_) if route.regex_priority != 0 => {
            ("regex_priority", "cannot set 'regex_priority' with 'expression' simultaneously".to_owned())
        }
        None if route.priority != 0 && criteria => {
            ("priority", format!("cannot set 'priority' with {others} simultaneously"))
        }
        _ => return Vec::new(),
    };
    vec![FieldError::new(field, format!("Router Expression failed validation: {found}"))]
}
