//! The status API, for monitoring.
mod memory_unit;

use crate::cluster::Cluster;
use crate::control::Control;
use crate::control::metrics::Format;
use crate::control::process;
use crate::dns_status;
use crate::listener::{json_response, message};
use crate::registry::ApplyError;
use crate::store::UnusableObject;
use crate::threads::spawn_low_priority;
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use memory_unit::MemoryUnit;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_guests::{DictMemory, LuaMemory};

/// Everything that the status listener serves; `upstreams` are the paths of targets and their health.
pub(crate) fn router(control: Arc<Control>, upstreams: Router<Arc<Control>>) -> Router {
    shared().route("/status/ready", get(ready)).merge(upstreams).with_state(control)
}

/// The paths that the Admin API serves too.
pub(crate) fn shared() -> Router<Arc<Control>> {
    Router::new()
        .route("/status", get(status))
        .route("/status/dns", get(dns_status::show))
        .route("/metrics", get(metrics))
        .fallback(|| async { message(StatusCode::NOT_FOUND, "Not found") })
        .method_not_allowed_fallback(|| async {
            message(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
        })
}

async fn status(State(control): State<Arc<Control>>, RawQuery(query): RawQuery) -> Response {
    match MemoryUnit::asked_for(query.as_deref().unwrap_or_default()) {
        Ok(unit) => json_response(StatusCode::OK, &status_body(&control, unit)),
        Err(text) => message(StatusCode::BAD_REQUEST, &text),
    }
}

/// The status in Kong's form. Counts that only nginx has are 0.
fn status_body(control: &Control, unit: MemoryUnit) -> Value {
    let (totals, registry) = (control.totals(), control.registry());
    let admin = control.admin_counts();
    let [accepted, active, requests] =
        [&admin.connections, &admin.open, &admin.requests].map(|count| count.load(Ordering::Relaxed));
    let accepted = totals.accepted + accepted;
    let mut body = json!({
        "server": {
            "connections_accepted": accepted,
            "connections_handled": accepted,
            "connections_active": totals.connections as u64 + active,
            "connections_reading": 0,
            "connections_writing": 0,
            "connections_waiting": 0,
            "total_requests": totals.requests + requests,
        },
        "memory": memory(&LuaMemory::of(control.retained()), unit),
        "process": { "cpu_seconds": process::cpu().as_secs_f64(), "resident_bytes": crate::memory::resident_bytes() },
        "revision": { "committed": registry.revision().0, "in_force": registry.active().0 },
    });
    let unusable = registry.unusable_objects();
    if registry.is_translated() {
        let each = |one: &UnusableObject| json!({ "key": one.key, "reason": one.reason });
        body["unusable_objects"] = unusable.iter().map(each).collect();
    }
    if let Some(ApplyError { revision, reason }) = registry.apply_error() {
        body["revision"]["failed"] = revision.0.into();
        body["revision"]["error"] = reason.into();
    }
    if let Cluster::DataPlane(link) = control.cluster() {
        body["control_plane"] = json!(link.now());
    }
    match registry.is_stored() {
        true => body["database"] = json!({ "reachable": registry.is_reachable() }),
        false => body["configuration_hash"] = control.config_hash().into(),
    }
    body
}

/// The memory of Lua, in Kong's form. Workers are threads of one process.
fn memory(lua: &LuaMemory, unit: MemoryUnit) -> Value {
    let vm = |bytes: &usize| json!({ "http_allocated_gc": unit.show(*bytes), "pid": std::process::id() });
    let dict = |DictMemory { name, capacity, used }: &DictMemory| {
        (name.clone(), json!({ "allocated_slabs": unit.show(*used), "capacity": unit.show(*capacity) }))
    };
    json!({
        "workers_lua_vms": lua.vms.iter().map(vm).collect::<Vec<_>>(),
        "lua_shared_dicts": lua.dicts.iter().map(dict).collect::<Map<_, _>>(),
    })
}

async fn ready(State(control): State<Arc<Control>>) -> Response {
    match control.ready() {
        Ok(()) => message(StatusCode::OK, "ready"),
        Err(reason) => message(StatusCode::SERVICE_UNAVAILABLE, reason),
    }
}

async fn metrics(State(control): State<Arc<Control>>, headers: HeaderMap) -> Response {
    let format = Format::of(&headers);
    match spawn_low_priority("weir-metrics", move || control.metrics_as(format)).await {
        Ok(metrics) => ([(header::CONTENT_TYPE, format.content_type())], metrics).into_response(),
        Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred"),
    }
}
