//! Answers that a node gets from a real Prometheus: of other nodes, and of times that it does not remember.
use super::prometheus::Prometheus;
use crate::harness::{Gateway, Upstream, closed_port, document, eventually, service};
use serde_json::{Value, json};
use std::sync::mpsc;

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const PLUGIN: &str = "plugins: [{name: prometheus, config: {status_code_metrics: true, latency_metrics: true, \
                      bandwidth_metrics: true}}]\n";

#[track_caller]
fn ask(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// The sums of a chart's columns, by name or label.
fn sums(chart: &Value) -> Vec<(String, f64)> {
    let columns = chart["columns"].as_array().unwrap().iter();
    columns
        .map(|column| {
            let label = column["name"].as_str().or(column["label"].as_str()).unwrap();
            let values = column["values"].as_array().unwrap().iter().filter_map(Value::as_f64);
            (label.to_owned(), values.sum())
        })
        .collect()
}

/// Whether an estimate is near what was sent; Prometheus extrapolates to the ends of the window.
#[track_caller]
fn assert_near(estimate: f64, sent: f64) {
    assert!((sent * 0.99..=sent * 1.5).contains(&estimate), "{estimate} rather than {sent}");
}

/// A node that serves, a Prometheus that scrapes it, and a node that has served nothing.
struct Scene {
    busy: Gateway,
    idle: Gateway,
    _prometheus: Prometheus,
    _upstreams: [Upstream; 2],
}

/// 40 requests with 200 and 10 with 404, beside the first of each.
fn scene() -> Scene {
    let (fine, missing) = (Upstream::answering(HI), Upstream::answering(MISSING));
    let services = [service("/a", fine.address, "", ""), service("/b", missing.address, "", "")];
    let configuration = document(&services, PLUGIN);
    let busy = Gateway::start(&configuration);
    let arguments = ["--enable-feature=native-histograms"];
    let prometheus = Prometheus::start(&[busy.status_address()], &arguments);
    let seen = |requests: f64| {
        eventually("the requests are seen", || {
            let count = prometheus.query("sum(kong_http_requests_total)", None);
            count.first().is_some_and(|sample| sample.value == requests)
        });
    };
    eventually("the first scrape has begun the count", || !prometheus.query("up == 1", None).is_empty());
    for path in ["/a", "/b"] {
        busy.get(path);
    }
    seen(2.0);
    (0..40).for_each(|_| drop(busy.get("/a")));
    (0..10).for_each(|_| drop(busy.get("/b")));
    seen(52.0);
    eventually("there are scrapes enough to extrapolate little", || {
        let few = "min(count_over_time(kong_http_requests_total[5m])) < 6";
        prometheus.query(few, None).is_empty()
    });
    let url = format!("http://{}", prometheus.address);
    let idle = Gateway::builder(&configuration).set("analytics_prometheus", &url).start();
    Scene { busy, idle, _prometheus: prometheus, _upstreams: [fine, missing] }
}

#[test]
fn a_node_answers_from_prometheus_what_it_did_not_see() {
    let Scene { busy, idle, .. } = &scene();
    let top = ask(idle, "/analytics/top?source=prometheus&by=route");
    assert_eq!(
        (&top["source"], &top["total"], &top["sampled"]),
        (&json!("prometheus"), &json!(2), &json!(true))
    );
    let (first, second) = (&top["data"][0], &top["data"][1]);
    assert_eq!((&first["name"], &second["name"]), (&json!("r-a"), &json!("r-b")));
    assert_eq!(first["id"], ask(idle, "/routes/r-a")["id"]);
    assert_near(first["requests"].as_f64().unwrap(), 40.0);
    assert_near(second["errors"].as_f64().unwrap(), 10.0);
    assert_eq!(first["errors"], json!(0));
    assert_eq!(second["error_rate"], json!(1.0));
    assert!(first["bytes_out"].as_u64() > Some(40 * 2), "{first}");
    let own = ask(busy, "/analytics/top?by=route&of=p99_upstream")["data"].clone();
    let own =
        own.as_array().unwrap().iter().find(|row| row["name"] == "r-a").unwrap()["p99_upstream"].clone();
    let (own, found) = (own.as_f64().unwrap(), first["p99_upstream"].as_f64().unwrap());
    // Prometheus did not see the first request, which may have been the slowest by far.
    assert!(found > own / 100.0 && found < own * 1.5, "{found} rather than {own}");
    for (query, expected) in [
        ("by=route", vec![("r-a", 40.0), ("r-b", 10.0)]),
        ("by=status", vec![("200", 40.0), ("404", 10.0)]),
        ("by=class", vec![("2xx", 40.0), ("4xx", 10.0)]),
        ("route=r-b", vec![("", 10.0)]),
        ("metric=errors&service=s-b", vec![("", 10.0)]),
    ] {
        let chart = ask(idle, &format!("/analytics/series?source=prometheus&from=-5m&step=5m&{query}"));
        let mut sums = sums(&chart);
        sums.sort_by(|a, b| a.0.cmp(&b.0));
        let labels: Vec<_> = sums.iter().map(|(label, _)| label.as_str()).collect();
        assert_eq!(labels, expected.iter().map(|(label, _)| *label).collect::<Vec<_>>(), "{query}");
        sums.iter().zip(&expected).for_each(|((_, estimate), (_, sent))| assert_near(*estimate, *sent));
        let totals =
            chart["columns"].as_array().unwrap().iter().map(|column| column["total"].as_f64().unwrap());
        assert_near(totals.sum(), expected.iter().map(|(_, sent)| sent).sum());
    }
    let p50 = ask(idle, "/analytics/series?source=prometheus&metric=p50");
    assert!(sums(&p50)[0].1 > 0.0, "{p50}");
    assert_eq!(p50["step"], json!(60));
}

#[test]
fn a_frame_before_the_history_is_asked_of_prometheus_and_a_recent_one_is_not() {
    let Scene { idle, .. } = &scene();
    let source = |query: &str| ask(idle, &format!("/analytics/series?{query}"))["source"].clone();
    assert_eq!(source("from=-2h"), json!("prometheus"));
    assert_eq!(source("from=-10m"), Value::Null);
    assert_eq!(source("from=-2h&source=node"), Value::Null);
    for (query, status, expected) in [
        ("by=cause", 400, "by: Prometheus does not have requests by cause"),
        ("route=none", 400, "route: Prometheus does not have requests of `none`"),
        ("upstream=a", 400, "upstream: Prometheus does not have requests by their upstream"),
        ("route=r-aa", 404, "there is no route `r-aa`"),
    ] {
        let answer = idle.admin(&format!("/analytics/series?source=prometheus&{query}"));
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.text().contains(expected), "{}", answer.text());
    }
}

#[test]
fn the_node_answers_where_prometheus_does_not() {
    let empty = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n\
         {\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[]}}",
    );
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], PLUGIN);
    for server in [closed_port(), empty.address] {
        let url = format!("http://{server}");
        let gateway = Gateway::builder(&configuration).set("analytics_prometheus", &url).start();
        gateway.get("/a");
        for path in
            ["series?by=bucket", "series?by=route", "series?route=r-a", "top?by=upstream", "top?by=route"]
        {
            eventually("the node answers", || {
                let answer = ask(&gateway, &format!("/analytics/{path}&from=0"));
                let rows = answer.get("columns").or(answer.get("data")).and_then(Value::as_array);
                assert_eq!(answer.get("source"), None, "{path}");
                rows.is_some_and(|rows| !rows.is_empty())
            });
        }
    }
}

#[test]
fn a_silent_prometheus_is_waited_for_once() {
    let (silent, _requests) = Upstream::holding("");
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], PLUGIN);
    let url = format!("http://weir:hunter2@{}", silent.address);
    let gateway = Gateway::builder(&configuration).set("analytics_prometheus", &url).start();
    gateway.get("/a");
    eventually("the request is counted", || {
        sums(&ask(&gateway, "/analytics/series?by=route")).iter().any(|(name, _)| name == "r-a")
    });
    let mut asked = None;
    for (path, expected) in [
        ("series?by=route", "the server took too long"),
        ("series?by=route", "and is asked again in"),
        ("top?by=route", "and is asked again in"),
    ] {
        let answer = ask(&gateway, &format!("/analytics/{path}&from=0"));
        let why = answer["source_error"].as_str().unwrap();
        assert!(why.contains(expected) && why.contains(&silent.address.to_string()), "{path}: {why}");
        assert!(!why.contains("hunter2"), "{why}");
        let rows = answer.get("columns").or(answer.get("data")).unwrap();
        assert_eq!(rows[0]["name"], json!("r-a"), "{path}: the node answers");
        assert_eq!(*asked.get_or_insert(silent.connections()), silent.connections(), "{path}");
    }
    assert_eq!(gateway.admin("/analytics/series?source=node&from=0").json().get("source_error"), None);
}

#[test]
fn what_goes_wrong_with_prometheus_is_told_without_its_password() {
    let (broken, stranger) = (
        Upstream::answering("HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\noops"),
        Upstream::answering("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"),
    );
    for (server, status, expected) in [
        (closed_port(), 503, "does not answer"),
        (broken.address, 502, "answered 500: something else than Prometheus' JSON"),
        (stranger.address, 502, "asks for a user and a password: write http://USER:PASSWORD@"),
    ] {
        let gateway = Gateway::builder(&document(&[], ""))
            .set("analytics_prometheus", &format!("http://weir:hunter2@{server}"))
            .start();
        for path in ["/analytics/series?source=prometheus", "/analytics/top?source=prometheus"] {
            let answer = gateway.admin(path);
            assert!(
                answer.status == status && answer.text().contains(expected),
                "{}: {}",
                answer.status,
                answer.text()
            );
            assert!(answer.text().contains(&server.to_string()) && !answer.text().contains("hunter2"));
        }
        assert!(!gateway.log().contains("hunter2") && !gateway.admin("/").text().contains("hunter2"));
    }
    let gateway = Gateway::start(&document(&[], ""));
    let answer = gateway.admin("/analytics/top?source=prometheus");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("set analytics_prometheus"), "{}", answer.text());
}

#[test]
fn user_and_password_of_the_url_are_sent() {
    let (sent, received) = mpsc::channel();
    let server = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            sent.send(request.header("authorization").unwrap_or_default().to_owned()).unwrap();
            let body = r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let url = format!("http://weir:p%40ss@{}", server.address);
    let gateway = Gateway::builder(&document(&[], "")).set("analytics_prometheus", &url).start();
    assert_eq!(ask(&gateway, "/analytics/series?source=prometheus")["columns"], json!([]));
    assert_eq!(received.recv().unwrap(), "Basic d2VpcjpwQHNz");
}
