//! What is reported of each interval.
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use weir_analytics::aggregate::{Aggregate, Latency};
use weir_analytics::bucket::seconds;

/// A report: the names of what it has, and its value for an interval; none if there is nothing to report.
pub(super) struct Report {
    pub(super) labels: &'static [&'static str],
    pub(super) value: fn(&Aggregate) -> Option<Value>,
}

/// How the gateway does.
pub(super) const HEALTH: Report = Report {
    labels: &[
        "cache_datastore_hits_total",
        "cache_datastore_misses_total",
        "latency_proxy_request_min_ms",
        "latency_proxy_request_max_ms",
        "latency_upstream_min_ms",
        "latency_upstream_max_ms",
        "requests_proxy_total",
        "latency_proxy_request_avg_ms",
        "latency_upstream_avg_ms",
    ],
    value: health,
};

/// Responses by class of status.
pub(super) const CLASSES: Report = Report {
    labels: &["status_code_classes_total"],
    value: |aggregate| by_status(aggregate, |status| format!("{}xx", status / 100)),
};

/// Responses by status: of a service, a route, a consumer.
pub(super) const STATUSES: [Report; 3] = [
    statuses(&["status_codes_per_service_total"]),
    statuses(&["status_codes_per_route_total"]),
    statuses(&["status_codes_per_consumer_total"]),
];

/// Responses by status of a consumer and a route.
pub(super) const PAIRS: Report = statuses(&["status_codes_per_consumer_route_total"]);

/// The requests of a consumer.
pub(super) const CONSUMER: Report = Report {
    labels: &["requests_consumer_total"],
    value: |aggregate| Some(aggregate.requests()).filter(|count| *count > 0).map(Value::from),
};

const fn statuses(labels: &'static [&'static str]) -> Report {
    Report { labels, value: |aggregate| by_status(aggregate, |status| status.to_string()) }
}

/// No configuration is read from a store during a request, so nothing hits or misses a cache of one.
fn health(aggregate: &Aggregate) -> Option<Value> {
    let [gateway, upstream] = [Latency::Gateway, Latency::Upstream].map(|latency| spread(aggregate, latency));
    Some(json!([
        0,
        0,
        gateway.min,
        gateway.max,
        upstream.min,
        upstream.max,
        aggregate.requests(),
        gateway.mean,
        upstream.mean,
    ]))
}

/// A latency in whole milliseconds, as Kong reports it; none if nothing was measured.
#[derive(Default)]
struct Spread {
    min: Option<u64>,
    max: Option<u64>,
    mean: Option<u64>,
}

fn spread(aggregate: &Aggregate, latency: Latency) -> Spread {
    let histogram = aggregate.latency(latency);
    let milliseconds = |units: f64| (seconds(units) * 1_000.0).round() as u64;
    let count = histogram.count();
    Spread {
        min: histogram.percentile(0.0).map(milliseconds),
        max: histogram.percentile(1.0).map(milliseconds),
        mean: (count > 0).then(|| milliseconds(histogram.sum() / count as f64)),
    }
}

/// Counts by what a status is called. Sessions of streams have none.
fn by_status(aggregate: &Aggregate, name: impl Fn(u16) -> String) -> Option<Value> {
    let mut counts = BTreeMap::<String, u64>::new();
    for (outcome, count) in aggregate.outcomes().filter(|(outcome, _)| outcome.status > 0) {
        let sum: &mut u64 = counts.entry(name(outcome.status)).or_default();
        *sum = sum.saturating_add(count);
    }
    let counts: Map<_, _> = counts.into_iter().map(|(name, count)| (name, count.into())).collect();
    (!counts.is_empty()).then(|| counts.into())
}
