//! Stream routes: which connections go to which upstream.
use super::schema::{Service, StreamRoute, Upstream, read};
use super::upstream::{self, Destination};
use super::{Entities, Invalid, Json, Kind, Objects, fill, named, plugins};
use serde_json::json;
use weir_model::entity::EntityKind;

pub(super) fn translate(
    into: &mut Entities<'_>,
    value: &mut Json,
    objects: &dyn Objects,
) -> Result<(), Invalid> {
    let route: StreamRoute = fill(value)?;
    let set = route.plugins.clone().unwrap_or_default();
    plugins::check(into, &set, value)?;
    let (destination, protocol) = destination(into, &route, objects)?;
    let ip = |ip: &Option<String>| ip.as_ref().map(|ip| json!([{ "ip": ip }]));
    let mut entity = json!({
        "protocols": [protocol],
        "sources": ip(&route.remote_addr),
        "snis": route.sni.as_ref().map(|sni| [sni]),
        "service": destination.map(|to| json!({ "id": to.service })),
    });
    if route.server_addr.is_some() || route.server_port.is_some() {
        entity["destinations"] = json!([{ "ip": route.server_addr, "port": route.server_port }]);
    } else if route.remote_addr.is_none() && route.sni.is_none() {
        entity["sources"] = json!([{ "ip": "0.0.0.0/0" }, { "ip": "::/0" }]);
    }
    let id = into.add(EntityKind::Routes, "route", entity)?;
    plugins::translate_stream(into, &set, id)
}

/// Where the connections go, and the protocol of the route.
fn destination(
    into: &mut Entities<'_>,
    route: &StreamRoute,
    objects: &dyn Objects,
) -> Result<(Option<Destination>, &'static str), Invalid> {
    let found = match (&route.upstream, &route.upstream_id, &route.service_id) {
        (Some(own), _, _) => {
            upstream::own(into, own, None)?;
            into.forget_service();
            Some((into.key.clone(), own.clone()))
        }
        (None, Some(id), _) => {
            let (key, value) = named(objects, Kind::Upstreams, id)?;
            Some((key, read(value)?))
        }
        (None, None, Some(id)) => of_service(id, objects)?,
        (None, None, None) => None,
    };
    let Some((key, upstream)) = found else { return Ok((None, protocol(route, None))) };
    let destination = upstream::streamed(into, &key, &upstream)?;
    Ok((Some(destination), protocol(route, Some(&upstream))))
}

/// The object that has a service's upstream, and the upstream.
fn of_service(id: &Json, objects: &dyn Objects) -> Result<Option<(super::Key, Upstream)>, Invalid> {
    let (key, value) = named(objects, Kind::Services, id)?;
    let service: Service = read(value)?;
    match (service.upstream, &service.upstream_id) {
        (Some(upstream), _) => Ok(Some((key, upstream))),
        (None, Some(id)) => {
            let (key, value) = named(objects, Kind::Upstreams, id)?;
            Ok(Some((key, read(value)?)))
        }
        (None, None) => Ok(None),
    }
}

fn protocol(route: &StreamRoute, upstream: Option<&Upstream>) -> &'static str {
    match upstream {
        _ if route.sni.is_some() => "tls",
        Some(upstream) if upstream.scheme == "udp" => "udp",
        _ => "tcp",
    }
}
