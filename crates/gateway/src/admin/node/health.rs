//! How the targets of an upstream fare. Nobody probes them yet, which Kong calls `HEALTHCHECKS_OFF`.
use crate::admin::answer::{Denied, json_answer};
use crate::admin::call::Call;
use crate::control::Control;
use axum::Router;
use axum::extract::{RawPathParams, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::Arc;
use weir_model::Entities;
use weir_model::entity::{Entity, EntityKind, Target, Upstream};
use weir_model::schema::Record;

const UNKNOWN: &str = "HEALTHCHECKS_OFF";

pub(super) async fn of_upstream(call: Call) -> Result<Response, Denied> {
    let entities = call.control.registry().entities();
    let upstream = upstream(&entities, call.ids.first())?;
    let data: Value = match call.is_on("balancer_health") {
        true => json!({ "id": upstream.id.to_string(), "name": upstream.name, "health": UNKNOWN }),
        false => targets(&entities, upstream).map(health).collect(),
    };
    let node_id = call.control.node_id();
    Ok(json_answer(StatusCode::OK, &json!({ "data": data, "next": null, "node_id": node_id })))
}

/// The upstream in the path.
fn upstream(entities: &Entities, name: Option<impl AsRef<str>>) -> Result<&Upstream, Denied> {
    match name.and_then(|name| entities.find(EntityKind::Upstreams, name.as_ref())) {
        Some(Entity::Upstreams(upstream)) => Ok(upstream),
        _ => Err(Denied::NotFound),
    }
}

fn targets<'e>(entities: &'e Entities, upstream: &Upstream) -> impl Iterator<Item = &'e Target> {
    let named = (EntityKind::Upstreams, upstream.id);
    entities.naming(named, EntityKind::Targets, None).filter_map(|entity| match entity {
        Entity::Targets(target) => Some(target.as_ref()),
        _ => None,
    })
}

fn health(target: &Target) -> Value {
    let (host, port) = target.target.rsplit_once(':').unwrap_or((&target.target, ""));
    let port: Option<u16> = port.parse().ok();
    // Where a name leads is known to the workers that ask for it.
    let address: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let addresses =
        address.map(|ip| json!({ "ip": ip, "port": port, "weight": target.weight, "health": UNKNOWN }));
    let mut value = target.to_value();
    value["upstream"] = json!({ "id": target.upstream.to_string() });
    value["health"] = UNKNOWN.into();
    value["data"] = json!({
        "host": host,
        "port": port,
        "weight": { "total": target.weight, "available": target.weight, "unavailable": 0 },
        "addresses": addresses.into_iter().collect::<Value>(),
    });
    value
}

/// What operators know of a target. Without health checks every target counts as healthy, and none can be taken out so.
pub(super) fn of_targets() -> Router<Arc<Control>> {
    const TARGET: &str = "/upstreams/{upstream}/targets/{target}";
    let mut router = Router::new();
    for below in [TARGET.to_owned(), format!("{TARGET}/{{address}}")] {
        let set_healthy = |control, names| set(control, names, StatusCode::NO_CONTENT.into_response());
        let set_unhealthy = |control, names| set(control, names, unsupported());
        router = router
            .route(&format!("{below}/healthy"), post(set_healthy).put(set_healthy))
            .route(&format!("{below}/unhealthy"), post(set_unhealthy).put(set_unhealthy));
    }
    router
}

fn unsupported() -> Response {
    let message =
        "cannot set a target unhealthy: this version has no health checks; set the target's weight to 0";
    let body = json!({ "code": 12, "name": "operation unsupported", "message": message });
    json_answer(StatusCode::METHOD_NOT_ALLOWED, &body)
}

async fn set(
    State(control): State<Arc<Control>>,
    names: RawPathParams,
    answer: Response,
) -> Result<Response, Denied> {
    let mut names = names.iter().map(|(_, name)| name);
    let entities = control.registry().entities();
    let upstream = upstream(&entities, names.next())?;
    let wanted = names.next().unwrap_or_default();
    let is_wanted = |target: &Target| target.target == wanted || target.id.to_string() == wanted;
    match targets(&entities, upstream).any(is_wanted) {
        true => Ok(answer),
        false => Err(Denied::NotFound),
    }
}
