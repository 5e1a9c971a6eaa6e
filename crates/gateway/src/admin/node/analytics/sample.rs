//! A sampled request as JSON.
use serde_json::{Value, json};
use weir_analytics::entities::{Entities, Entity, Kind, NONE};
use weir_analytics::query::cause_label;
use weir_analytics::samples::{Sample, Side};

/// What a list and a tail show of a request.
pub(super) fn summary(sample: &Sample, entities: &Entities) -> Value {
    let record = &sample.record;
    let [route, service, consumer] = sample.names();
    let upstream = entities.name(Entity::new(Kind::Upstream, record.upstream));
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "id": sample.number.to_string(),
        "at": sample.began() as f64 / 1_000.0,
        "reason": sample.reason.name(),
        "client_ip": sample.client,
        "method": sample.method(),
        "scheme": if sample.is_tls { "https" } else { "http" },
        "host": sample.host(),
        "path": sample.path(),
        "protocol": record.traits.protocol().map(|protocol| protocol.name()),
        "status": record.status,
        "origin": record.cause.origin().name(),
        "cause": cause_label(record.cause, entities),
        "route": entity(Kind::Route, record.route, route, entities),
        "service": entity(Kind::Service, entities.service_of(record.route), service, entities),
        "consumer": entity(Kind::Consumer, record.consumer, consumer, entities),
        "upstream": upstream.as_deref(),
        "tries": sample.failures.len() + usize::from(upstream.is_some()),
        "us": {
            "total": sample.phases.total(),
            "gateway": sample.phases.gateway,
            "connect": sample.phases.connect,
            "wait": sample.phases.wait,
            "body": sample.phases.body,
        },
        "bytes_in": record.bytes_in.get(),
        "bytes_out": record.bytes_out.get(),
        "cached": record.traits.is_cached(),
        "reused": record.traits.is_reused(),
        "request_id": sample.request_id(),
        "trace_id": text(sample.trace_id()),
        "user_agent": sample.header("user-agent"),
    })
}

/// Everything that is known of a request.
pub(super) fn full(sample: &Sample, entities: &Entities) -> Value {
    let mut shown = summary(sample, entities);
    let failures = sample
        .failures
        .iter()
        .map(|failure| json!({ "address": failure.address, "status": failure.code, "us": failure.micros }));
    shown["failures"] = failures.collect();
    let hooks = sample
        .hooks
        .iter()
        .map(|hook| json!({ "name": hook.plugin, "us": hook.ran, "us_waited": hook.waited }));
    shown["plugins"] = hooks.collect();
    for (name, side) in [("request_headers", Side::Request), ("response_headers", Side::Response)] {
        let headers = sample.headers(side).map(|(name, value)| json!({ "name": name, "value": value }));
        shown[name] = headers.collect();
    }
    shown
}

/// Id and name of an entity, as they were when the request came; `null` for none.
fn entity(kind: Kind, number: u32, name: &str, entities: &Entities) -> Value {
    if number == NONE {
        return Value::Null;
    }
    let id = entities.name(Entity::new(kind, number));
    json!({ "id": id.as_deref(), "name": Some(name).filter(|name| !name.is_empty()) })
}
