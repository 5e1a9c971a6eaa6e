//! Native histograms: a real Prometheus computes from them what the analytics say.
use super::prometheus::Prometheus;
use crate::harness::{Gateway, Upstream, document, eventually, service};
use std::thread;
use std::time::{Duration, Instant};

/// One whose answers take longer and longer, so that the quantiles lie far from each other.
fn slower_and_slower() -> Upstream {
    Upstream::start(|mut peer, number| {
        while peer.request().is_some() {
            let end = Instant::now() + Duration::from_micros(100 * number as u64);
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                thread::park_timeout(left);
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
        }
    })
}

const REQUESTS: usize = 200;
const PLUGIN: &str =
    "plugins: [{name: prometheus, config: {status_code_metrics: true, latency_metrics: true}}]\n";

#[test]
fn prometheus_computes_the_quantiles_that_analytics_have() {
    let upstream = slower_and_slower();
    let gateway = Gateway::start(&document(&[service("/a", upstream.address, "", "")], PLUGIN));
    let prometheus = Prometheus::start(&[gateway.status_address()], &["--enable-feature=native-histograms"]);
    eventually("the first scrape has begun the count", || !prometheus.query("up == 1", None).is_empty());
    (0..REQUESTS).for_each(|_| assert_eq!(gateway.get("/a").status, 200));
    let count =
        "histogram_count(weir_request_duration_seconds{service=\"s-a\",route=\"r-a\",phase=\"total\"})";
    eventually("all requests are seen", || {
        prometheus.query(count, None).first().is_some_and(|sample| sample.value == REQUESTS as f64)
    });
    for (of, share, phase) in [
        ("p50", 0.5, "total"),
        ("p90", 0.9, "total"),
        ("p99", 0.99, "total"),
        ("p50_upstream", 0.5, "upstream"),
        ("p99_upstream", 0.99, "upstream"),
        ("p50_gateway", 0.5, "gateway"),
    ] {
        let row = gateway.admin(&format!("/analytics/top?of={of}")).json()["data"][0].clone();
        let ours = row[of].as_f64().unwrap();
        let native = format!("weir_request_duration_seconds{{route=\"r-a\",phase=\"{phase}\"}}");
        let theirs = prometheus.query(&format!("histogram_quantile({share}, sum({native}))"), None)[0].value;
        assert!((theirs / ours - 1.0).abs() < 0.02, "{of}: {theirs} rather than {ours}");
    }
    // Requests without a route are in these metrics alone.
    gateway.get("/none");
    let unrouted = "histogram_count(weir_request_duration_seconds{service=\"\",route=\"\",phase=\"total\"})";
    eventually("the request without a route is seen", || {
        prometheus.query(unrouted, None).first().is_some_and(|sample| sample.value == 1.0)
    });
    let kongs = prometheus.query("sum(kong_http_requests_total)", None);
    assert_eq!(kongs[0].value, REQUESTS as f64, "Kong's metrics are without it");
    // The rest of the metrics is what the text has.
    let requests = prometheus.query("sum(kong_http_requests_total{service=\"s-a\",code=\"200\"})", None);
    assert_eq!(requests[0].value, REQUESTS as f64);
    let classic = "weir_request_duration_microseconds_bucket{phase=\"total\",le=\"+Inf\"}";
    assert_eq!(prometheus.query(classic, None)[0].value, REQUESTS as f64);
    let exposed = prometheus.label_values("__name__", None);
    let text = gateway.status("/metrics").text().to_owned();
    for name in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        let has = |name: &str| exposed.iter().any(|known| known == name);
        let has_samples = text.lines().any(|line| line.starts_with(name));
        assert!(
            !has_samples || has(name) || has(&format!("{name}_bucket")),
            "{name} is not among {exposed:?}"
        );
    }
}
