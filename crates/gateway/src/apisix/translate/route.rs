//! Routes. Among those that match, APISIX prefers by host, then by the longest path, then by `priority`; the router
//! here does so by its own rules once each route is written as regexes with a `regex_priority`, and with ids in order.
use super::schema::{PluginSet, Plugins, Route, Service, Upstream, read};
use super::upstream::{self, Destination};
use super::{Entities, Invalid, Json, Kind, Objects, fill, named, plugins};
use crate::apisix::object::TRANSCODE;
use serde_json::json;
use std::collections::BTreeMap;
use weir_model::Uuid;
use weir_model::entity::EntityKind;
use weir_router::{check_vars, normalize_path};

/// From here on a `regex_priority` counts more than how many criteria a route has. There is room for as many as below,
/// before one would count more than everything.
const ABOVE_CRITERIA: u32 = 3072;
/// Plugins that call a function in the place of an upstream, below a path.
const FUNCTIONS: [&str; 3] = ["aws-lambda", "azure-functions", "openfunction"];
/// Bits for the length of a path.
const PATH_BITS: u32 = 7;
const EXACT: u32 = (1 << PATH_BITS) - 1;
/// Wildcards with more labels than this rank alike.
const MAX_LABELS: u32 = 7;

pub(super) fn translate(
    into: &mut Entities<'_>,
    value: &mut Json,
    objects: &dyn Objects,
) -> Result<(), Invalid> {
    let route: Route = fill(value)?;
    let own_plugins = route.plugins.clone().unwrap_or_default();
    plugins::check(into, &own_plugins, value)?;
    let service =
        route.service_id.as_ref().map(|id| Through::find(id, objects)).transpose()?.unwrap_or_default();
    let own = own_destination(into, &route, objects)?;
    let transcodes = service.plugins.contains_key(TRANSCODE);
    let destination = own.or(service.destination);
    let mut set = Plugins::new();
    if own.is_some() || destination.is_none() {
        // The entity of the route does not belong to the service, whose plugins would not run for it.
        set.extend(service.plugins);
    }
    if let Some(id) = &route.plugin_config_id {
        let shared: PluginSet = read(named(objects, Kind::PluginConfigs, id)?.1)?;
        set.extend(shared.plugins);
    }
    set.extend(own_plugins);
    let destination = match plugins::provider(&set) {
        Some(verify) => Some(upstream::of_provider(into, verify)?),
        None => destination,
    };
    let hosts = route.hosts.clone().or(route.host.clone().map(|host| vec![host])).unwrap_or(service.hosts);
    // A route that transcodes takes requests of HTTP, wherever they go.
    let is_grpc = destination.is_some_and(|to| to.is_grpc) && !transcodes && !set.contains_key(TRANSCODE);
    write(into, &CombinedRoute { route: &route, hosts, destination, is_grpc, plugins: set })
}

/// What a route inherits from its service.
#[derive(Default)]
struct Through {
    destination: Option<Destination>,
    plugins: Plugins,
    hosts: Vec<String>,
}

impl Through {
    fn find(id: &Json, objects: &dyn Objects) -> Result<Through, Invalid> {
        let (key, value) = named(objects, Kind::Services, id)?;
        let service: Service = read(value)?;
        let upstream = match (service.upstream, &service.upstream_id) {
            (Some(upstream), _) => Some(upstream),
            (None, Some(id)) => Some(read(named(objects, Kind::Upstreams, id)?.1)?),
            (None, None) => None,
        };
        Ok(Through {
            destination: upstream.map(|upstream: Upstream| Destination::of(&key, &upstream)),
            plugins: service.plugins.unwrap_or_default(),
            hosts: service.hosts.unwrap_or_default(),
        })
    }
}

/// Where a route's own upstream leads, or a service's with other timeouts.
fn own_destination(
    into: &mut Entities<'_>,
    route: &Route,
    objects: &dyn Objects,
) -> Result<Option<Destination>, Invalid> {
    let timeout = route.timeout.as_ref();
    if let Some(own) = &route.upstream {
        return upstream::own(into, own, timeout).map(Some);
    }
    match (&route.upstream_id, timeout) {
        (Some(id), Some(_)) => upstream::shared(into, id, objects, timeout).map(Some),
        (Some(id), None) => {
            let (key, value) = named(objects, Kind::Upstreams, id)?;
            Ok(Some(Destination::of(&key, &read(value)?)))
        }
        (None, Some(_)) => Err(Invalid::configuration(
            "`timeout` is available here for a route with an upstream of its own; set it in the upstream",
        )),
        (None, None) => Ok(None),
    }
}

/// A route with everything that it inherits.
struct CombinedRoute<'r> {
    route: &'r Route,
    hosts: Vec<String>,
    destination: Option<Destination>,
    /// Whether it takes requests of gRPC.
    is_grpc: bool,
    plugins: Plugins,
}

/// Adds one route entity for each rank of the hosts and paths; most objects need one.
fn write(into: &mut Entities<'_>, written: &CombinedRoute<'_>) -> Result<(), Invalid> {
    let CombinedRoute { route, hosts, plugins: set, .. } = written;
    let vars = vars(route)?;
    let uris = route.uris.as_deref().unwrap_or_default().iter().chain(&route.uri);
    let paths = grouped(uris.map(|uri| path(uri)).collect::<Result<Vec<_>, _>>()?);
    let mut hosts = grouped(hosts.iter().map(|host| (host_rank(host), host.clone())));
    if hosts.is_empty() {
        hosts.insert(0, Vec::new());
    }
    let before = into.found.len();
    let ranks = hosts.iter().flat_map(|hosts| paths.iter().map(move |paths| (hosts, paths)));
    for (number, ((host_rank, hosts), (path_rank, paths))) in ranks.enumerate() {
        let part = format!("route/{number}");
        let id = ordered(into.key.uuid(&part), route.priority, vars.is_some());
        let mut entity =
            entity(written, (hosts.as_slice(), paths.as_slice()), host_rank << PATH_BITS | path_rank);
        entity["vars"] = vars.clone().into();
        into.add_as(EntityKind::Routes, id, entity)?;
        plugins::translate(into, &format!("{part}/"), set, &[("route", id)])?;
    }
    if route.status == 0 {
        // It is valid, and disabled.
        into.found.truncate(before);
    }
    Ok(())
}

fn entity(written: &CombinedRoute<'_>, (hosts, paths): (&[String], &[String]), rank: u32) -> Json {
    let CombinedRoute { route, destination, is_grpc, plugins, .. } = written;
    // Requests of gRPC are POST.
    let matches_all =
        |methods: &[String]| methods.is_empty() || *is_grpc && methods.iter().any(|method| method == "POST");
    let methods = route.methods.as_deref().filter(|methods| !matches_all(methods));
    json!({
        "protocols": if *is_grpc { ["grpc", "grpcs"] } else { ["http", "https"] },
        "hosts": (!hosts.is_empty()).then_some(hosts),
        "paths": paths,
        "methods": methods,
        // A function is asked for what the wildcard of the route stands for.
        "strip_path": FUNCTIONS.iter().any(|name| plugins.contains_key(*name)),
        "preserve_host": destination.is_some_and(|to| to.preserve_host),
        "regex_priority": ABOVE_CRITERIA + rank,
        "service": destination.map(|to| json!({ "id": to.service })),
    })
}

fn grouped(ranked: impl IntoIterator<Item = (u32, String)>) -> BTreeMap<u32, Vec<String>> {
    let mut groups = BTreeMap::<u32, Vec<String>>::new();
    for (rank, text) in ranked {
        groups.entry(rank).or_default().push(text);
    }
    groups
}

/// A pattern of APISIX's, `/exact` or `/prefix/*`, as a regex path and its rank: exact ones first, then by length.
fn path(uri: &str) -> Result<(u32, String), Invalid> {
    let (literal, exact) = match uri.strip_suffix('*') {
        Some(prefix) => (prefix, false),
        None => (uri, true),
    };
    if literal.contains('*') {
        return Err(Invalid::configuration(format!("uri {uri:?}: `*` is available at the end only")));
    }
    let literal = normalize_path(literal);
    let rank =
        if exact { EXACT } else { u32::try_from(literal.len()).map_or(EXACT - 1, |n| n.min(EXACT - 1)) };
    Ok((rank, format!("~{}{}", escaped(&literal), if exact { "$" } else { "" })))
}

/// A text as a regex that matches it and nothing else.
fn escaped(literal: &str) -> String {
    let mut regex = String::with_capacity(literal.len() + 8);
    for c in literal.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex
}

/// Hosts with a wildcard by the number of their labels. Plain ones come before them anyway.
fn host_rank(host: &str) -> u32 {
    if !host.starts_with('*') {
        return 0;
    }
    u32::try_from(host.split('.').count()).map_or(MAX_LABELS, |labels| labels.min(MAX_LABELS))
}

/// An id that sorts by priority, then by whether the route has conditions, because the router prefers the higher id of two
/// routes with equal rank.
fn ordered(id: Uuid, priority: i32, has_vars: bool) -> Uuid {
    let mut bytes = id.into_bytes();
    bytes[4] = bytes[4] & 0x7F | u8::from(has_vars) << 7;
    bytes[..4].copy_from_slice(&(priority.cast_unsigned() ^ 1 << 31).to_be_bytes());
    Uuid::from_bytes(bytes)
}

/// The conditions of a route: its `vars`, and the addresses that its clients may have.
fn vars(route: &Route) -> Result<Option<Json>, Invalid> {
    let addresses = route.remote_addrs.clone().or(route.remote_addr.clone().map(|address| vec![address]));
    let of_address = addresses.map(|addresses| json!(["remote_addr", "ipmatch", addresses]));
    let written = route.vars.clone().filter(|vars| vars.as_array().is_none_or(|all| !all.is_empty()));
    for (member, condition) in [("vars", &written), ("remote_addr", &of_address)] {
        let checked = condition.as_ref().map_or(Ok(()), check_vars);
        checked.map_err(|error| {
            Invalid::configuration(format!("failed to validate the '{member}' expression: {error}"))
        })?;
    }
    Ok(match (written, of_address) {
        (Some(written), Some(of_address)) => Some(json!(["AND", written, of_address])),
        (written, of_address) => written.or(of_address),
    })
}
