//! datadog and statsd in front of statsd_exporter, which reads DogStatsD and the other styles of tags, and shows what it has read as
//! metrics of Prometheus. `make test` builds it from the versions that `counterparts/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Counterpart, Gateway, PATIENCE, Peer, Upstream, eventually};
use serde_json::Value as Json;
use std::time::{Duration, Instant};
use std::{fs, thread};
use tempfile::TempDir;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// The exporter. Its page is at an address of TCP, and it receives at the same one of UDP.
struct Exporter(Counterpart);

impl Exporter {
    fn start() -> Exporter {
        let arguments = |port: u16| {
            let flags = ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"].iter().zip([
                port,
                port,
                port + 1,
            ]);
            let flags = flags.map(|(flag, port)| format!("--{flag}=127.0.0.1:{port}"));
            flags.chain(["--statsd.event-flush-interval=10ms".to_owned()]).collect()
        };
        Exporter(Counterpart::start("statsd_exporter", arguments, b""))
    }

    fn port(&self) -> u16 {
        self.0.address.port()
    }

    /// Its page, once it has read so many lines, each without a mistake, and these series have these values.
    #[track_caller]
    fn shows(&self, lines: u32, expected: &[(String, f64)]) -> String {
        let end = Instant::now() + PATIENCE;
        let samples = ("statsd_exporter_samples_total".to_owned(), lines.into());
        let page = loop {
            let request = "GET /metrics HTTP/1.1\r\nHost: a.test\r\n\r\n";
            let page = Peer::connect(self.0.address).send(request).response().text().to_owned();
            let mut all = expected.iter().chain([&samples]);
            let missing = all.find(|(series, expected)| value(&page, series) != Some(*expected));
            if missing.is_none() {
                break page;
            }
            assert!(Instant::now() < end, "the page never has {missing:?}: {page}");
            thread::park_timeout(Duration::from_millis(20));
        };
        assert_eq!(value(&page, "statsd_exporter_tag_errors_total"), Some(0.0), "{page}");
        for mistakes in ["statsd_exporter_sample_errors_total{", "statsd_exporter_events_error_total{"] {
            assert!(!page.contains(&format!("\n{mistakes}")), "{page}");
        }
        page
    }
}

/// The value of a series.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// Nodes whose requests are also logged.
struct Logged {
    gateway: Gateway,
    folder: TempDir,
    _upstream: Upstream,
}

impl Logged {
    /// Starts one with these services. Its consumer has names with everything that ends tags.
    fn start(services: impl Fn(&str) -> String) -> Logged {
        let folder = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(|mut peer, _| {
            while peer.request().is_some() {
                // So that no latency but the gateway's own is 0.
                thread::park_timeout(Duration::from_millis(20));
                peer.send(OK);
            }
        });
        let log = folder.path().join("log").display().to_string();
        let services = services(&format!("url: http://{}", upstream.address));
        let gateway = Gateway::start(&format!(
            "_format_version: \"3.0\"\nservices:\n{services}consumers:\n- username: \"J\u{fc}rgen M.: a,b|c#d\"\n  \
             custom_id: \"a,b]|c=d\"\n  keyauth_credentials: [{{key: k}}]\nplugins:\n- name: key-auth\n\
             - {{name: file-log, config: {{path: '{log}'}}}}\n"
        ));
        Logged { gateway, folder, _upstream: upstream }
    }

    /// Sends a request, and returns what its log has of each metric.
    #[track_caller]
    fn request(&self, path: &str) -> [(&'static str, f64); 6] {
        assert_eq!(self.gateway.get_with(path, "apikey: k\r\n").status, 200);
        let mut entry = Json::Null;
        eventually("the request is logged", || {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
            entry = entries.next_back().unwrap_or_default();
            entry["request"]["uri"] == path
        });
        let number = |pointer: &str| entry.pointer(pointer).and_then(Json::as_f64).unwrap();
        [
            ("request_count", 1.0),
            ("request_size", number("/request/size")),
            ("response_size", number("/response/size")),
            ("latency", number("/latencies/request")),
            ("kong_latency", number("/latencies/kong")),
            ("upstream_latency", number("/latencies/proxy")),
        ]
    }
}

#[track_caller]
fn is_type(page: &str, metric: &str, kind: &str) {
    assert!(page.contains(&format!("\n# TYPE {metric} {kind}\n")), "{metric} is no {kind}: {page}");
}

#[test]
fn datadogs_metrics_arrive_by_default() {
    let exporter = Exporter::start();
    let plugin = format!("{{name: datadog, config: {{host: 127.0.0.1, port: {}}}}}", exporter.port());
    let node = Logged::start(|url| {
        format!("- name: shop.v1\n  {url}\n  routes: [{{paths: [/]}}]\n  plugins: [{plugin}]\n")
    });
    let logged = node.request("/");
    let tags = "{app=\"kong\",consumer=\"a_b]_c=d\",name=\"shop_v1\",status=\"200\"}";
    let mut expected = vec![(format!("kong_request_count{tags}"), 1.0)];
    for (name, value) in &logged[1..] {
        expected.push((format!("kong_{name}_count{tags}"), 1.0));
        // The exporter has timers in seconds.
        expected.push((format!("kong_{name}_sum{tags}"), value / 1000.0));
    }
    let page = exporter.shows(6, &expected);
    is_type(&page, "kong_request_count", "counter");
    logged[1..].iter().for_each(|(name, _)| is_type(&page, &format!("kong_{name}"), "summary"));
}

#[test]
fn datadogs_metrics_arrive_with_each_type() {
    let exporter = Exporter::start();
    // The exporter has neither sets nor meters.
    let types = ["counter", "gauge", "timer", "histogram", "distribution"];
    let metric = |kind: &str, name: &str| {
        format!(
            "{{name: {name}, stat_type: {kind}, sample_rate: 1, tags: ['env:prod'], consumer_identifier: username}}"
        )
    };
    let names =
        ["request_count", "request_size", "response_size", "latency", "kong_latency", "upstream_latency"];
    let node = Logged::start(|url| {
        let service = |kind: &&str| {
            let metrics = names.map(|name| metric(kind, name)).join(", ");
            format!(
                "- name: {kind}s\n  {url}\n  routes: [{{paths: [/{kind}]}}]\n  plugins: [{{name: datadog, config: {{host: localhost, \
                 port: {}, prefix: {kind}, service_name_tag: service, status_tag: code, consumer_tag: who, metrics: [{metrics}]}}}}]\n",
                exporter.port()
            )
        };
        types.iter().map(service).collect()
    });
    let logged = types.map(|kind| node.request(&format!("/{kind}")));
    let shown_as = |kind: &str| match kind {
        "timer" => ("summary", "_sum", 1000.0),
        "histogram" | "distribution" => ("summary", "_sum", 1.0),
        "counter" => ("counter", "", 1.0),
        _ => ("gauge", "", 1.0),
    };
    let of_kind = |(kind, logged): (&&str, [(&str, f64); 6])| {
        let tags =
            format!("{{code=\"200\",env=\"prod\",service=\"{kind}s\",who=\"J\u{fc}rgen M.: a_b_c#d\"}}");
        let (_, suffix, unit) = shown_as(kind);
        logged.map(|(name, value)| (format!("{kind}_{name}{suffix}{tags}"), value / unit))
    };
    let expected: Vec<_> = types.iter().zip(logged).flat_map(of_kind).collect();
    let page = exporter.shows(30, &expected);
    for (kind, name) in types.iter().flat_map(|kind| names.map(|name| (kind, name))) {
        is_type(&page, &format!("{kind}_{name}"), shown_as(kind).0);
    }
}

#[test]
fn a_sample_rate_counts_requests_several_times() {
    let exporter = Exporter::start();
    let metrics = "[{name: request_count, stat_type: counter, sample_rate: 0.25}]";
    let plugin = format!("{{name: datadog, config: {{port: {}, metrics: {metrics}}}}}", exporter.port());
    let node = Logged::start(|url| {
        format!("- name: s\n  {url}\n  routes: [{{paths: [/]}}]\n  plugins: [{plugin}]\n")
    });
    node.request("/");
    exporter.shows(1, &[("kong_request_count{name=\"s\",status=\"200\"}".to_owned(), 4.0)]);
}

#[test]
fn statsds_tags_arrive_in_each_style_over_udp_and_tcp() {
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for style in ["dogstatsd", "influxdb", "librato", "signalfx"] {
        for (use_tcp, offset) in [(false, 0), (true, 1)] {
            let exporter = Exporter::start();
            let plugin = format!(
                "{{name: statsd, config: {{host: 127.0.0.1, port: {}, use_tcp: {use_tcp}, tag_style: {style}}}}}",
                exporter.port() + offset
            );
            let node = Logged::start(|url| {
                format!("- name: shop\n  {url}\n  routes: [{{name: r, paths: [/]}}]\n  plugins: [{plugin}]\n")
            });
            let logged = node.request("/");
            let tags = format!(
                "{{consumer=\"a_b__c=d\",node=\"{}\",route=\"r\",service=\"shop\",status=\"200\",workspace=\"{}\"}}",
                hostname.trim().replace('.', "_"),
                "0dc6f45b-8f8d-40d2-a504-473544ee190b"
            );
            exporter.shows(
                6,
                &logged.map(|(name, value)| match name.ends_with("latency") {
                    true => (format!("kong_{name}_sum{tags}"), value / 1000.0),
                    false => (format!("kong_{name}{tags}"), value),
                }),
            );
        }
    }
}
