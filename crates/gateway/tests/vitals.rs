//! `/vitals…`: what was measured, in the form of Kong Enterprise.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Upstream, document, eventually, service};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const ALICE: &str = "consumers: [{username: alice, keyauth_credentials: [{key: a}]}]\n";

fn ask(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// The counts of a report by status or class, over all of its time.
fn counts(report: &Value) -> BTreeMap<String, u64> {
    sums(&report["stats"]["cluster"])
}

fn sums(points: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for point in points.as_object().unwrap().values() {
        for (status, count) in point.as_object().unwrap() {
            *sums.entry(status.clone()).or_default() += count.as_u64().unwrap();
        }
    }
    sums
}

fn expected(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(status, count)| ((*status).to_owned(), *count)).collect()
}

fn id(gateway: &Gateway, path: &str) -> String {
    ask(gateway, path)["id"].as_str().unwrap().to_owned()
}

/// A gateway that has served 5 requests with 200, 3 with 404 and 2 with 401.
fn busy() -> (Gateway, [Upstream; 2]) {
    let (fine, missing) = (Upstream::answering(HI), Upstream::answering(MISSING));
    let services = [
        service("/a", fine.address, "", "plugins: [{name: key-auth}]"),
        service("/b", missing.address, "", ""),
        service("/idle", missing.address, "", ""),
    ];
    let gateway = Gateway::start(&document(&services, ALICE));
    for (times, path, headers) in [(5, "/a", "apikey: a\r\n"), (2, "/a", ""), (3, "/b", "")] {
        (0..times).for_each(|_| drop(gateway.get_with(path, headers)));
    }
    let total = || requests(&ask(&gateway, "/vitals/cluster?interval=minutes")["stats"]["cluster"]);
    eventually("all requests are counted", || total() >= 10);
    (gateway, [fine, missing])
}

/// The requests of a report on health.
fn requests(points: &Value) -> u64 {
    points.as_object().unwrap().values().map(|point| point[6].as_u64().unwrap()).sum()
}

#[test]
fn statuses_are_counted_by_service_route_consumer_and_class() {
    let (gateway, _upstreams) = busy();
    for (interval, width) in [("minutes", 60), ("days", 86_400)] {
        let asked = |path: &str| ask(&gateway, &format!("{path}interval={interval}"));
        let service = id(&gateway, "/services/s-a");
        let report = asked(&format!("/default/vitals/status_codes/by_service?service_id={service}&"));
        assert_eq!(counts(&report), expected(&[("200", 5), ("401", 2)]));
        let meta = &report["meta"];
        assert_eq!((&meta["entity_type"], &meta["entity_id"]), (&json!("service"), &json!(service)));
        assert_eq!((&meta["interval"], &meta["interval_width"]), (&json!(interval), &json!(width)));
        assert_eq!(meta["stat_labels"], json!(["status_codes_per_service_total"]));
        let route = id(&gateway, "/routes/r-b");
        let report = asked(&format!("/vitals/status_codes/by_route?route_id={route}&"));
        assert_eq!(counts(&report), expected(&[("404", 3)]));
        let consumer = id(&gateway, "/consumers/alice");
        let report = asked(&format!("/vitals/status_codes/by_consumer?consumer_id={consumer}&"));
        assert_eq!(counts(&report), expected(&[("200", 5)]));
        let report = asked(&format!("/vitals/status_codes/by_consumer_and_route?consumer_id={consumer}&"));
        let meta = &report["meta"];
        assert_eq!((&meta["entity_type"], &meta["entity_id"]), (&json!("consumer_route"), &json!(consumer)));
        assert_eq!(meta["stat_labels"], json!(["status_codes_per_consumer_route_total"]));
        assert_eq!((&meta["level"], &meta["interval_width"]), (&json!("cluster"), &json!(width)));
        let routes = report["stats"].as_object().unwrap();
        assert_eq!(routes.keys().collect::<Vec<_>>(), [&id(&gateway, "/routes/r-a")]);
        assert_eq!(sums(routes.values().next().unwrap()), expected(&[("200", 5)]));
        let report = asked(&format!("/vitals/consumers/{consumer}/cluster?"));
        let points = report["stats"]["cluster"].as_object().unwrap().values();
        assert_eq!(points.filter_map(Value::as_u64).sum::<u64>(), 5);
        for path in ["/vitals/status_code_classes?", "/default/vitals/cluster/status_codes?"] {
            assert_eq!(counts(&asked(path)), expected(&[("2xx", 5), ("4xx", 5)]), "{path}");
        }
        let idle = asked("/vitals/status_codes/by_service?service_id=s-idle&");
        assert_eq!(idle["stats"], json!({ "cluster": {} }));
    }
}

#[test]
fn health_has_the_numbers_in_the_order_of_their_labels() {
    let (gateway, _upstreams) = busy();
    let node = id_of_node(&gateway);
    let report = ask(&gateway, &format!("/vitals/nodes/{node}?interval=seconds"));
    assert_eq!((&report["meta"]["level"], &report["meta"]["interval_width"]), (&json!("node"), &json!(1)));
    assert!(report["meta"]["nodes"][&node]["hostname"].is_string(), "{report}");
    assert_eq!(report["meta"]["stat_labels"].as_array().unwrap().len(), 9);
    let points = report["stats"][&node].as_object().unwrap();
    assert_eq!(requests(&report["stats"][&node]), 10);
    for (time, point) in points {
        let point = point.as_array().unwrap();
        assert_eq!(point[..2], [json!(0), json!(0)], "{time}");
        if point[6] == 0 {
            assert_eq!(
                point[2..6],
                [Value::Null, Value::Null, Value::Null, Value::Null],
                "{time}: {point:?}"
            );
        } else {
            let [min, max, mean] = [2, 3, 7].map(|index: usize| point[index].as_u64().unwrap());
            assert!(min <= mean && mean <= max, "{time}: {point:?}");
        }
    }
    assert_eq!(ask(&gateway, "/vitals/nodes?interval=seconds")["stats"][&node], report["stats"][&node]);
    let times: Vec<u64> = points.keys().map(|time| time.parse().unwrap()).collect();
    let last = *times.iter().max().unwrap();
    let one = ask(&gateway, &format!("/vitals/cluster?interval=seconds&start_ts={last}&end_ts={last}"));
    assert_eq!(one["stats"]["cluster"].as_object().unwrap().keys().collect::<Vec<_>>(), [&last.to_string()]);
    let kept = ask(&gateway, "/vitals");
    let minutes = "/stats/requests_proxy_total/levels/cluster/intervals/minutes/retention_period_seconds";
    assert_eq!(kept.pointer(minutes), Some(&json!(90_000)));
}

fn id_of_node(gateway: &Gateway) -> String {
    ask(gateway, "/")["node_id"].as_str().unwrap().to_owned()
}

#[test]
fn wrong_parameters_get_400_and_unknown_entities_404() {
    let gateway = Gateway::start(&document(&[], ""));
    let cases = [
        ("/vitals/cluster", 400, "Invalid query params: interval must be one of seconds, minutes, days"),
        ("/vitals/cluster?interval=hours", 400, "Invalid query params: interval"),
        ("/vitals/nodes?interval=days&start_ts=now", 400, "Invalid query params: start_ts must be seconds"),
        (
            "/vitals/cluster?interval=days&start_ts=20&end_ts=10",
            400,
            "Invalid query params: start_ts must be before",
        ),
        ("/vitals/status_codes/by_route?interval=days", 400, "Invalid query params: route_id is required"),
        ("/vitals/status_codes/by_route?interval=days&route_id=x", 404, "Not found"),
        ("/vitals/status_codes/by_consumer_and_route?interval=days&consumer_id=x", 404, "Not found"),
        (
            "/vitals/status_codes/by_consumer_and_route?interval=days",
            400,
            "Invalid query params: consumer_id is required",
        ),
        ("/vitals/nodes/8b0d7a2c-6b1c-4e0e-9d7a-1f7f4f6f9d52?interval=days", 404, "Not found"),
        ("/vitals/consumers/alice/cluster?interval=days", 404, "Not found"),
        ("/sales/vitals/status_code_classes?interval=days", 404, "Not found"),
    ];
    gateway.assert_admin_messages("", &cases);
    let forgotten = ask(&gateway, "/vitals/cluster?interval=seconds&start_ts=10&end_ts=20");
    assert_eq!(forgotten["stats"], json!({ "cluster": {} }));
}
