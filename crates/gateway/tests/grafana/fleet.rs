//! The dashboard of fleets: what it asks of a Prometheus that scrapes a control plane and a data plane.
use super::dashboards::{Chosen, Dashboard, metrics, ours};
use super::prometheus::Prometheus;
use super::{answer, is_plausible};
use crate::fleet::{control_plane, data_plane, is_ready, route, shared};
use crate::harness::{Gateway, Upstream, eventually};
use std::collections::BTreeSet;

pub(super) const DASHBOARD: &str = "weir-fleet";

const PLUGIN: &str =
    r#"{"name": "prometheus", "config": {"status_code_metrics": true, "latency_metrics": true}}"#;

/// Sends requests until Prometheus has seen so many.
fn seen(prometheus: &Prometheus, data: &Gateway, requests: u64) {
    let sent = counted(prometheus);
    (sent..requests).for_each(|_| assert_eq!(data.get("/hello").status, 200));
    eventually("all requests are seen", || counted(prometheus) == requests);
}

fn counted(prometheus: &Prometheus) -> u64 {
    let sum = prometheus.query("sum(kong_http_requests_total)", None);
    sum.first().map_or(0, |sample| sample.value as u64)
}

#[test]
fn every_query_of_the_fleet_answers() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    let identity = shared();
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).start();
    eventually("the data plane is ready", || is_ready(&data));
    assert_eq!(control.ask_admin("POST", "/plugins", PLUGIN).status, 201);
    assert_eq!(route(&control, "hello", &upstream, "?wait=all"), 200);
    let prometheus = Prometheus::start(&[control.status_address(), data.status_address()], &[]);
    seen(&prometheus, &data, 1);
    seen(&prometheus, &data, 9);
    eventually("there are scrapes enough for rates", || {
        prometheus.query("min(count_over_time(weir_data_plane_up[1m])) < 3", None).is_empty()
    });
    let at = prometheus.query("max(timestamp(up))", None)[0].value;
    let dashboard = ours().into_iter().find(|dashboard| dashboard.name == DASHBOARD);
    let Dashboard { variables, queries, .. } = dashboard.unwrap();
    let chosen = Chosen::all(&variables, &prometheus);
    let exposed: BTreeSet<_> = prometheus.label_values("__name__", None).into_iter().collect();
    assert!(queries.len() > 15);
    for query in &queries {
        let what = format!("{}: {}", query.panel, query.expression);
        for metric in metrics(&query.expression) {
            assert!(exposed.contains(metric), "{metric} is not exposed: {what}");
        }
        let samples = answer(&prometheus, at, query, &chosen);
        assert!(!samples.is_empty(), "no answer: {what}");
        for sample in &samples {
            assert!(is_plausible(query, sample.value), "{sample:?}: {what}");
        }
        let value = samples[0].value;
        match &*query.panel {
            "Data planes" | "Up to date" | "Connection" if !query.instant => assert_eq!(value, 1.0, "{what}"),
            "Behind" | "Without a control plane" | "Refused" => assert_eq!(value, 0.0, "{what}"),
            _ => {}
        }
    }
}
