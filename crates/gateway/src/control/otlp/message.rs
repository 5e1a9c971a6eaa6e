//! What was counted of each route, as metrics of OTLP.
use crate::control::metrics::{Measured, MeasuredRoute};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, ExponentialHistogram, ExponentialHistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use weir_analytics::aggregate::Latency;
use weir_analytics::entities::Entities;
use weir_analytics::histogram::export::{self, Unit};
use weir_analytics::query::cause_label;

/// The routes of a message, so that collectors with a limit of a few MiB accept it.
const ROUTES_PER_MESSAGE: usize = 512;
const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The times of a message's points, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

/// The messages for everything that was counted; `now` is in milliseconds since 1970.
pub(super) fn messages(measured: &Measured, node_id: &str, now: u64) -> Vec<ExportMetricsServiceRequest> {
    let times = Times { start: measured.since * 1_000_000, now: now * 1_000_000 };
    let routes = measured.routes.chunks(ROUTES_PER_MESSAGE);
    routes.map(|routes| message(metrics(routes, &measured.entities, times), node_id)).collect()
}

fn message(metrics: Vec<Metric>, node_id: &str) -> ExportMetricsServiceRequest {
    let (name, version) = ("weir", env!("CARGO_PKG_VERSION"));
    let attributes = vec![
        text("service.name", name),
        text("service.version", version),
        text("service.instance.id", node_id),
    ];
    let scope = InstrumentationScope {
        name: name.to_owned(),
        version: version.to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn metrics(routes: &[MeasuredRoute], entities: &Entities, times: Times) -> Vec<Metric> {
    let histogram = |latency| {
        let points = routes.iter().filter_map(|route| duration(route, latency, times)).collect();
        let histogram = ExponentialHistogram { data_points: points, aggregation_temporality: CUMULATIVE };
        Data::ExponentialHistogram(histogram)
    };
    let requests = routes.iter().flat_map(|route| requests(route, entities, times));
    let bytes = routes.iter().flat_map(|route| bytes(route, times));
    let all = [
        ("http.server.request.duration", "s", "Duration of requests", histogram(Latency::Total)),
        ("weir.gateway.duration", "s", "The gateway's part of it", histogram(Latency::Gateway)),
        ("weir.upstream.duration", "s", "From there to the response's head", histogram(Latency::Upstream)),
        ("weir.requests", "{request}", "Requests by what they came to", sum(requests)),
        ("weir.network.io", "By", "Bytes from clients and to them", sum(bytes)),
    ];
    let metric = |(name, unit, description, data): (&str, &str, &str, _)| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        description: description.to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    all.into_iter().map(metric).collect()
}

/// The histogram of a latency; none if nothing was measured.
fn duration(route: &MeasuredRoute, latency: Latency, times: Times) -> Option<ExponentialHistogramDataPoint> {
    let export::ExponentialHistogram { scale, count, sum, zero_count, offset, bucket_counts } =
        route.aggregate.latency(latency).to_exponential(Unit::Duration);
    (count > 0).then(|| ExponentialHistogramDataPoint {
        attributes: of_route(route),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count,
        sum: Some(sum),
        scale,
        zero_count,
        positive: Some(Buckets { offset, bucket_counts }),
        ..ExponentialHistogramDataPoint::default()
    })
}

/// Requests by status and by who decided it, and why.
fn requests(
    route: &MeasuredRoute,
    entities: &Entities,
    times: Times,
) -> impl Iterator<Item = NumberDataPoint> {
    route.aggregate.outcomes().map(move |(outcome, count)| {
        let mut attributes = of_route(route);
        // A session of a stream has none.
        if outcome.status > 0 {
            let status = Value::IntValue(outcome.status.into());
            attributes.push(attribute("http.response.status_code", status));
        }
        attributes.push(text("weir.origin", outcome.cause.origin().name()));
        attributes.push(text("weir.cause", &cause_label(outcome.cause, entities)));
        number(attributes, count, times)
    })
}

fn bytes(route: &MeasuredRoute, times: Times) -> [NumberDataPoint; 2] {
    let of = |direction, bytes| {
        let mut attributes = of_route(route);
        attributes.push(text("network.io.direction", direction));
        number(attributes, bytes, times)
    };
    [of("receive", route.aggregate.bytes_in), of("transmit", route.aggregate.bytes_out)]
}

fn sum(points: impl Iterator<Item = NumberDataPoint>) -> Data {
    let data_points = points.collect();
    Data::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true })
}

fn number(attributes: Vec<KeyValue>, count: u64, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX))),
        ..NumberDataPoint::default()
    }
}

/// The route and its service, where there are any.
fn of_route(route: &MeasuredRoute) -> Vec<KeyValue> {
    let named = [("http.route", &route.route), ("weir.service", &route.service)];
    named.into_iter().filter(|(_, name)| !name.is_empty()).map(|(key, name)| text(key, name)).collect()
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}
