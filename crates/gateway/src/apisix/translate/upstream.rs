//! Upstreams and services: where requests go.
use super::schema::{Node, Service, Timeout, Upstream, UpstreamTls, read};
use super::{Entities, Invalid, Json, Key, Kind, Objects, checks, fill, named, plugins, references, ssl};
use serde_json::json;
use weir_model::Uuid;
use weir_model::entity::EntityKind;

/// The part of an object that is its upstream.
const UPSTREAM: &str = "upstream";
/// The part of an object that is the service requests go to.
const SERVICE: &str = "service";
/// The part of an object that is the service a provider takes the place of.
const PROVIDER: &str = "provider";
/// The part of an object that is the certificate which its upstream gets.
const CLIENT_CERTIFICATE: &str = "client_certificate";
/// The discovery that finds nodes by name: that is what resolving a target's name does.
const DNS: &str = "dns";

/// Where a route sends requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination {
    pub(super) service: Uuid,
    /// Whether the client's Host header is passed on.
    pub(super) preserve_host: bool,
    /// Whether the upstream is a gRPC service.
    pub(super) is_grpc: bool,
}

impl Destination {
    /// The service of an object whose upstream this is.
    pub(super) fn of(key: &Key, upstream: &Upstream) -> Destination {
        Destination {
            service: key.uuid(SERVICE),
            preserve_host: upstream.pass_host == "pass",
            is_grpc: matches!(upstream.scheme.as_str(), "grpc" | "grpcs"),
        }
    }
}

pub(super) fn translate(into: &mut Entities<'_>, value: &mut Json) -> Result<(), Invalid> {
    let upstream: Upstream = fill(value)?;
    own(into, &upstream, None).map(drop)
}

pub(super) fn translate_service(
    into: &mut Entities<'_>,
    value: &mut Json,
    objects: &dyn Objects,
) -> Result<(), Invalid> {
    let service: Service = fill(value)?;
    let set = service.plugins.unwrap_or_default();
    plugins::check(into, &set, value)?;
    let destination = match (&service.upstream, &service.upstream_id) {
        (Some(upstream), _) => own(into, upstream, None)?,
        (None, Some(id)) => shared(into, id, objects, None)?,
        (None, None) => return Ok(()),
    };
    let scope = [("service", destination.service)];
    plugins::translate(into, "", &set, &scope)
}

/// The object's own upstream: its targets, and a service for it.
pub(super) fn own(
    into: &mut Entities<'_>,
    upstream: &Upstream,
    timeout: Option<&Timeout>,
) -> Result<Destination, Invalid> {
    let (_, nodes) = balanced(into, "", upstream)?;
    let owner = into.key;
    service(into, upstream, (owner, nodes), timeout)
}

/// The upstream of a part of an object, and its targets. Returns its name, and how many targets there are.
pub(super) fn balanced(
    into: &mut Entities<'_>,
    part: &str,
    upstream: &Upstream,
) -> Result<(String, usize), Invalid> {
    let (nodes, name) = (nodes(upstream)?, name(into.key, part));
    let mut entity = json!({ "name": name });
    balance(&mut entity, upstream)?;
    if let Some(checks) = &upstream.checks {
        entity["healthchecks"] = checks::translate(checks)?;
    }
    if upstream.pass_host == "rewrite" {
        entity["host_header"] = upstream.upstream_host.clone().into();
    }
    if let Some(tls) = upstream.tls.as_ref().filter(|_| is_tls(upstream)) {
        entity["client_certificate"] = client_certificate(into, part, tls)?;
    }
    let id = into.add(EntityKind::Upstreams, &format!("{part}{UPSTREAM}"), entity)?;
    for Node { host, port, weight, priority, .. } in &nodes {
        let port = port.unwrap_or_else(|| default_port(upstream));
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let entity = json!({ "target": target, "weight": weight, "priority": priority, "upstream": id });
        into.add(EntityKind::Targets, &format!("{part}targets/{target}"), entity)?;
    }
    Ok((name, nodes.len()))
}

/// The balancing algorithm. If a request lacks what is hashed, the client's address is hashed, as in APISIX.
fn balance(entity: &mut Json, upstream: &Upstream) -> Result<(), Invalid> {
    entity["algorithm"] = match upstream.r#type.as_str() {
        "least_conn" => "least-connections".into(),
        "ewma" => "latency".into(),
        "chash" => {
            let (on, name) = hash_input(&upstream.hash_on, upstream.key.as_deref().unwrap_or_default())?;
            entity["hash_on"] = on.into();
            if let Some(name) = name {
                entity[format!("hash_on_{on}")] = name.into();
            }
            if !matches!(on, "ip" | "cookie") {
                entity["hash_fallback"] = "ip".into();
            }
            "consistent-hashing".into()
        }
        _ => return Ok(()),
    };
    Ok(())
}

/// Kong's word for what is hashed, and its name there.
fn hash_input(hash_on: &str, key: &str) -> Result<(&'static str, Option<String>), Invalid> {
    let found = match (hash_on, key) {
        ("consumer", _) => Some(("consumer", None)),
        ("header", _) => Some(("header", Some(key.to_owned()))),
        ("cookie", _) => Some(("cookie", Some(key.to_owned()))),
        ("vars", "remote_addr") => Some(("ip", None)),
        ("vars", "uri") => Some(("path", None)),
        ("vars", _) => variable(key).map(|(on, name)| (on, Some(name))),
        _ => None,
    };
    found.ok_or_else(|| {
        Invalid::configuration(format!(
            "hashing the `key` {key:?} of {hash_on} is not available here; hash a header, a cookie, the consumer, or one \
             of the vars remote_addr, uri, arg_NAME, http_NAME and cookie_NAME"
        ))
    })
}

/// A variable whose name says what it is of. In that of a header, nginx writes `_` for `-`.
fn variable(key: &str) -> Option<(&'static str, String)> {
    let (of, name) = key.split_once('_')?;
    Some(match of {
        "http" => ("header", name.replace('_', "-")),
        "cookie" => ("cookie", name.to_owned()),
        "arg" => ("query_arg", name.to_owned()),
        _ => return None,
    })
}

/// A service of the object's own for an upstream that is an object itself.
pub(super) fn shared(
    into: &mut Entities<'_>,
    id: &Json,
    objects: &dyn Objects,
    timeout: Option<&Timeout>,
) -> Result<Destination, Invalid> {
    let (key, value) = named(objects, Kind::Upstreams, id)?;
    let upstream: Upstream = read(value)?;
    let targets = nodes(&upstream)?.len();
    service(into, &upstream, (&key, targets), timeout)
}

/// A service of a stream route's own, which speaks TCP unless the upstream says otherwise.
pub(super) fn streamed(
    into: &mut Entities<'_>,
    key: &Key,
    upstream: &Upstream,
) -> Result<Destination, Invalid> {
    let is_http = !matches!(upstream.scheme.as_str(), "tcp" | "tls" | "udp");
    let scheme = if is_http { "tcp".to_owned() } else { upstream.scheme.clone() };
    let targets = nodes(upstream)?.len();
    service(into, &Upstream { scheme, ..upstream.clone() }, (key, targets), None)
}

/// A service that leads to the upstream of an object.
fn service(
    into: &mut Entities<'_>,
    upstream: &Upstream,
    (owner, targets): (&Key, usize),
    timeout: Option<&Timeout>,
) -> Result<Destination, Invalid> {
    let mut entity = json!({
        "host": name(owner, ""),
        "protocol": upstream.scheme,
        "port": default_port(upstream),
        "retries": upstream.retries.map_or(targets.saturating_sub(1), usize::from),
    });
    if let Some(timeout) = timeout.or(upstream.timeout.as_ref()) {
        let milliseconds = |seconds: f64| (seconds * 1_000.0).ceil() as i64;
        entity["connect_timeout"] = milliseconds(timeout.connect).into();
        entity["write_timeout"] = milliseconds(timeout.send).into();
        entity["read_timeout"] = milliseconds(timeout.read).into();
    }
    if upstream.tls.as_ref().is_some_and(|tls| tls.verify) && is_tls(upstream) {
        if upstream.scheme == "grpcs" {
            let message = "`tls.verify` is not available here for grpcs; set proxy_ssl_verify";
            return Err(Invalid::configuration(message));
        }
        entity["tls_verify"] = true.into();
    }
    into.add(EntityKind::Services, SERVICE, entity)?;
    Ok(Destination::of(into.key, upstream))
}

/// A service for requests that a plugin sends to a provider, which takes its place.
pub(super) fn of_provider(into: &mut Entities<'_>, verify: bool) -> Result<Destination, Invalid> {
    let entity =
        json!({ "host": "127.0.0.1", "protocol": "https", "port": 443, "retries": 0, "tls_verify": verify });
    let service = into.add(EntityKind::Services, PROVIDER, entity)?;
    Ok(Destination { service, preserve_host: false, is_grpc: false })
}

/// The certificate that is presented to the object's own upstream.
fn client_certificate(into: &mut Entities<'_>, part: &str, tls: &UpstreamTls) -> Result<Json, Invalid> {
    let id = match (&tls.client_cert_id, &tls.client_cert, &tls.client_key) {
        (Some(id), ..) => named(into.objects, Kind::Ssls, id)?.0.uuid(ssl::CERTIFICATE),
        (None, Some(cert), Some(key)) => {
            let entity = references::translated(&json!({ "cert": cert, "key": key.expose() }))?;
            into.add(EntityKind::Certificates, &format!("{part}{CLIENT_CERTIFICATE}"), entity)?
        }
        _ => return Ok(Json::Null),
    };
    Ok(json!({ "id": id }))
}

fn is_tls(upstream: &Upstream) -> bool {
    matches!(upstream.scheme.as_str(), "https" | "grpcs" | "tls")
}

/// The name of the upstream of a part of an object: one that no other has.
pub(super) fn name(key: &Key, part: &str) -> String {
    format!("apisix.{}", key.uuid(&format!("{part}{UPSTREAM}")))
}

fn default_port(upstream: &Upstream) -> u16 {
    if is_tls(upstream) { 443 } else { 80 }
}

/// The nodes, from either way to write them, or from DNS. Other discoveries find none here.
pub(super) fn nodes(upstream: &Upstream) -> Result<Vec<Node>, Invalid> {
    match (&upstream.nodes, &upstream.service_name) {
        (Some(Json::Object(weights)), _) => {
            weights.iter().map(|(place, weight)| node(place, weight)).collect()
        }
        (Some(Json::Array(nodes)), _) => nodes.iter().map(|written| with_port(read(written)?)).collect(),
        (None, Some(name)) if upstream.discovery_type.as_deref() == Some(DNS) => {
            node(name, &json!(1)).map(|node| vec![node])
        }
        (None, _) => Ok(Vec::new()),
        _ => Err(Invalid::configuration(
            "property \"nodes\" validation failed: object matches none of the required",
        )),
    }
}

/// A node whose port may be written as part of its host.
fn with_port(node: Node) -> Result<Node, Invalid> {
    if node.port.is_some() || node.host.matches(':').count() != 1 {
        return Ok(node);
    }
    let (host, port) = host_and_port(&node.host)?;
    Ok(Node { host: host.to_owned(), port, ..node })
}

/// A node written as `"host:port": weight`.
fn node(place: &str, weight: &Json) -> Result<Node, Invalid> {
    let (host, port) = host_and_port(place)?;
    read(&json!({ "host": host, "port": port, "weight": weight }))
}

fn host_and_port(place: &str) -> Result<(&str, Option<u16>), Invalid> {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !place.ends_with(']') => match port.parse::<u16>() {
            Ok(port) => (host, Some(port)),
            Err(_) => return Err(Invalid::configuration(format!("node {place:?}: expected host:port"))),
        },
        _ => (place, None),
    };
    Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
}

/// What of an upstream is kept and has no effect here.
pub(super) fn without_effect(upstream: &Json) -> Vec<String> {
    let given = |field: &str| !upstream[field].is_null();
    let mut found = Vec::new();
    if let Some(discovery) = upstream["discovery_type"].as_str().filter(|of| *of != DNS && !given("nodes")) {
        found.push(format!(
            "upstream: nothing is discovered by `{discovery}` here, so that there are no nodes; write `nodes`, or use `dns`"
        ));
    }
    let ignored = ["retry_timeout", "keepalive_pool", "discovery_args"].iter().filter(|field| given(field));
    found.extend(ignored.map(|field| format!("upstream: `{field}` has no effect here")));
    found
}
