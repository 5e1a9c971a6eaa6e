//! Analytics as metrics of OTLP, as a collector gets them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Message as HttpMessage, Upstream, document, eventually, service};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{ExponentialHistogramDataPoint, Metric};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const ACCEPTED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// A collector, and what it got.
struct Collector {
    upstream: Upstream,
    requests: Arc<Mutex<Vec<HttpMessage>>>,
}

impl Collector {
    /// Answers each request with the same bytes.
    fn answering(response: &str) -> Collector {
        let (response, requests) = (response.to_owned(), Arc::<Mutex<Vec<_>>>::default());
        let got = requests.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                got.lock().unwrap().push(request);
                peer.send(&response);
            }
        });
        Collector { upstream, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/v1/metrics", self.upstream.address)
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    fn last(&self) -> Option<HttpMessage> {
        self.requests.lock().unwrap().last().cloned()
    }

    /// The metrics of the last message.
    fn metrics(&self) -> Vec<Metric> {
        let body = self.last().map(|request| request.body).unwrap_or_default();
        let message = ExportMetricsServiceRequest::decode(&*body).unwrap();
        let resource = message.resource_metrics.into_iter().next();
        let scope = resource.and_then(|resource| resource.scope_metrics.into_iter().next());
        scope.map(|scope| scope.metrics).unwrap_or_default()
    }

    /// The sums of a counter by the values of two attributes.
    fn counts(&self, name: &str, by: [&str; 2]) -> BTreeMap<[String; 2], i64> {
        let metric = self.metrics().into_iter().find(|metric| metric.name == name);
        let Some(Data::Sum(sum)) = metric.and_then(|metric| metric.data) else { return BTreeMap::new() };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{name} is cumulative");
        let mut counts = BTreeMap::new();
        for point in &sum.data_points {
            let Some(Number::AsInt(count)) = point.value else { panic!("{point:?}") };
            *counts.entry(by.map(|key| attribute(&point.attributes, key))).or_default() += count;
        }
        counts
    }

    /// The points of a histogram, by route.
    fn histogram(&self, name: &str) -> BTreeMap<String, ExponentialHistogramDataPoint> {
        let metric = self.metrics().into_iter().find(|metric| metric.name == name);
        let Some(Data::ExponentialHistogram(histogram)) = metric.and_then(|metric| metric.data) else {
            return BTreeMap::new();
        };
        assert_eq!(histogram.aggregation_temporality, 2, "{name} is cumulative");
        let points = histogram.data_points.into_iter();
        points.map(|point| (attribute(&point.attributes, "http.route"), point)).collect()
    }
}

/// The value of an attribute as text; empty without one.
fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()).and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        None => String::new(),
        Some(other) => panic!("{key}: {other:?}"),
    }
}

fn sending(configuration: &str, collector: &Collector) -> crate::harness::Builder {
    Gateway::builder(configuration)
        .set("analytics_otlp_endpoint", &collector.url())
        .set("analytics_otlp_interval", "1s")
}

fn expected(counts: &[([&str; 2], i64)]) -> BTreeMap<[String; 2], i64> {
    counts.iter().map(|(key, count)| (key.map(str::to_owned), *count)).collect()
}

#[test]
fn every_request_is_in_the_counters_and_histograms() {
    let (upstream, collector) = (Upstream::answering(HI), Collector::answering(ACCEPTED));
    let keyed = "plugins: [{name: key-auth}]";
    let services = [service("/a", upstream.address, "", ""), service("/k", upstream.address, "", keyed)];
    let gateway = sending(&document(&services, ""), &collector).start();
    for (times, path) in [(7, "/a"), (3, "/k"), (2, "/none")] {
        (0..times).for_each(|_| drop(gateway.get(path)));
    }
    let by_status = expected(&[(["", "404"], 2), (["r-a", "200"], 7), (["r-k", "401"], 3)]);
    let statuses = ["http.route", "http.response.status_code"];
    eventually("all requests are exported", || collector.counts("weir.requests", statuses) == by_status);
    let by_cause = expected(&[
        (["gateway", "no_route"], 2),
        (["gateway", "plugin key-auth"], 3),
        (["upstream", "response"], 7),
    ]);
    assert_eq!(collector.counts("weir.requests", ["weir.origin", "weir.cause"]), by_cause);
    let sent = collector.counts("weir.network.io", ["weir.service", "network.io.direction"]);
    assert!(sent[&["s-a".to_owned(), "transmit".to_owned()]] > 7 * 2, "{sent:?}");
    let durations = collector.histogram("http.server.request.duration");
    for (route, count) in [("", 2), ("r-a", 7), ("r-k", 3)] {
        let point = &durations[route];
        let buckets = point.positive.clone().unwrap();
        assert_eq!((point.count, point.scale), (count, 5), "{route}");
        assert_eq!(buckets.bucket_counts.iter().sum::<u64>() + point.zero_count, count, "{route}");
        assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
        // The value of a bucket is between base^index and base^(index + 1).
        let middle = |index: usize| ((buckets.offset as f64 + index as f64 + 0.5) / 32.0).exp2();
        let values = buckets.bucket_counts.iter().enumerate();
        let sum: f64 = values.map(|(index, count)| middle(index) * *count as f64).sum();
        assert!((sum / point.sum.unwrap() - 1.0).abs() < 0.02, "{route}: {sum} rather than {:?}", point.sum);
    }
    let asked_upstream: Vec<_> = collector.histogram("weir.upstream.duration").into_keys().collect();
    assert_eq!(asked_upstream, ["r-a"]);
    let node = gateway.admin("/").json()["node_id"].as_str().unwrap().to_owned();
    let message = ExportMetricsServiceRequest::decode(&*collector.last().unwrap().body).unwrap();
    let resource = message.resource_metrics[0].resource.clone().unwrap().attributes;
    assert_eq!(attribute(&resource, "service.instance.id"), node);
}

#[test]
fn counts_only_grow_and_the_last_are_sent_when_the_node_stops() {
    let (upstream, collector) = (Upstream::answering(HI), Collector::answering(ACCEPTED));
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let mut gateway = sending(&configuration, &collector).start();
    let total = || collector.counts("weir.requests", ["http.route", ""]).into_values().sum::<i64>();
    gateway.get("/a");
    eventually("the first is exported", || total() == 1);
    let start = collector.histogram("http.server.request.duration")["r-a"].start_time_unix_nano;
    gateway.get("/a");
    eventually("both are exported", || total() == 2);
    assert_eq!(collector.histogram("http.server.request.duration")["r-a"].start_time_unix_nano, start);
    drop(gateway);
    let collector = Collector::answering(ACCEPTED);
    let builder = Gateway::builder(&configuration).set("analytics_otlp_endpoint", &collector.url());
    gateway = builder.set("analytics_otlp_interval", "1h").start();
    (0..3).for_each(|_| drop(gateway.get("/a")));
    assert!(gateway.command("quit").status.success());
    assert!(gateway.exit().success());
    assert_eq!(collector.counts("weir.requests", ["http.route", ""]).into_values().sum::<i64>(), 3);
}

#[test]
fn headers_are_sent_and_never_shown() {
    let (upstream, collector) = (Upstream::answering(HI), Collector::answering(ACCEPTED));
    let gateway = sending(&document(&[service("/a", upstream.address, "", "")], ""), &collector)
        .set("analytics_otlp_headers", "authorization=Bearer%20hush, x-scope=edge")
        .start();
    gateway.get("/a");
    eventually("the metrics are exported", || collector.count() > 0);
    let request = collector.last().unwrap();
    assert_eq!(request.head.start, "POST /v1/metrics HTTP/1.1");
    for (name, value) in
        [("authorization", "Bearer hush"), ("x-scope", "edge"), ("content-type", "application/x-protobuf")]
    {
        assert_eq!(request.header(name), Some(value));
    }
    let shown = gateway.admin("/").json()["configuration"]["analytics_otlp_headers"].clone();
    assert_eq!(shown, "******");
    assert!(!gateway.admin("/").text().contains("hush") && !gateway.log().contains("hush"));
    let (status, said) = Gateway::builder("").set("analytics_otlp_headers", "authorization hush").fail();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("the 1. header has no `=`") && !said.contains("hush"), "{said}");
}

#[test]
fn a_collector_that_refuses_metrics_is_named_once() {
    let upstream = Upstream::answering(HI);
    // It refuses 5 points: field 1, in which field 1 is 5 and field 2 is `full`.
    let partial = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n\x0a\x08\x08\x05\x12\x04full";
    for (response, expected) in [
        (
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\n\r\nhush",
            "it answered 401; set analytics_otlp_headers",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "it answered 404; see that the URL ends in its path",
        ),
        (partial, "it refused 5 points: full"),
    ] {
        let collector = Collector::answering(response);
        let gateway = sending(&document(&[service("/a", upstream.address, "", "")], ""), &collector).start();
        gateway.get("/a");
        eventually("it is sent again", || collector.count() > 2);
        let log = gateway.log();
        assert_eq!(log.matches("does not have the metrics").count(), 1, "{log}");
        assert!(log.contains(expected) && !log.contains("hush"), "{log}");
    }
}
