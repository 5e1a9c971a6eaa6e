//! Plugins as clients and upstreams meet them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Upstream, document, eventually, service};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn limited(config: &str) -> String {
    format!("plugins: [{{name: rate-limiting, config: {{{config}}}}}]")
}

/// Many connections at once, spread over four workers: exactly the limit passes, wherever the requests land.
#[test]
fn a_limit_admits_exactly_as_many_as_it_says() {
    const LIMIT: usize = 100;
    let upstream = Upstream::answering(OK);
    let config = format!("month: {LIMIT}, limit_by: service");
    let services = [service("/", upstream.address, "", &limited(&config))];
    let gateway = Gateway::builder(&document(&services, "")).set("workers", "4").start();
    let (passed, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut client = gateway.connect();
                for _ in 0..10 {
                    match client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().status {
                        200 => passed.fetch_add(1, Ordering::SeqCst),
                        429 => refused.fetch_add(1, Ordering::SeqCst),
                        other => panic!("{other}"),
                    };
                }
            });
        }
    });
    assert_eq!((passed.into_inner(), refused.into_inner()), (LIMIT, 320 - LIMIT));
}

/// Kong's own form of a password: hex(sha1(password .. consumer_id)), here of `pass` and this id.
const ALICE: &str = "11111111-2222-3333-4444-555555555555";

fn sha1_of_pass() -> String {
    let hash = std::process::Command::new("sh")
        .arg("-c")
        .arg(format!("printf 'pass{ALICE}' | openssl dgst -sha1 -r"))
        .output()
        .expect("openssl runs");
    String::from_utf8(hash.stdout).unwrap()[..40].to_owned()
}

#[test]
fn credentials_are_asked_for_and_believed() {
    let upstream = Upstream::echoing();
    let keyed = |config: &str| format!("plugins: [{{name: key-auth, config: {{{config}}}}}]");
    let services = [
        service("/key", upstream.address, "", &keyed("")),
        service("/hiding", upstream.address, "", &keyed("hide_credentials: true, key_names: [token]")),
        service("/basic", upstream.address, "", "plugins: [{name: basic-auth}]"),
        service("/anyone", upstream.address, "", &keyed("anonymous: guest")),
    ];
    let document = document(
        &services,
        &format!(
            "_transform: false\nconsumers:\n- {{id: {ALICE}, username: alice, keyauth_credentials: [{{key: k1}}], \
             basicauth_credentials: [{{username: al, password: \"{}\"}}]}}\n- {{username: guest}}\n",
            sha1_of_pass()
        ),
    );
    let gateway = Gateway::start(&document);
    for (path, headers, status, message) in [
        ("/key", "", 401, "No API key found in request"),
        ("/key", "apikey: wrong\r\n", 401, "Unauthorized"),
        ("/key", "apikey: k1\r\napikey: k1\r\n", 401, "Duplicate API key found"),
        ("/key?apikey=wrong", "", 401, "Unauthorized"),
        ("/basic", "", 401, "Unauthorized"),
        ("/basic", "Authorization: Basic YWw6d3Jvbmc=\r\n", 401, "Unauthorized"),
        ("/basic", "Authorization: Basic Ym9iOnBhc3M=\r\n", 401, "Unauthorized"),
        ("/basic", "Authorization: Bearer YWw6cGFzcw==\r\n", 401, "Unauthorized"),
    ] {
        let response = gateway.get_with(path, headers);
        assert_eq!(
            (response.status, response.json()["message"].as_str()),
            (status, Some(message)),
            "{path} {headers}"
        );
        let scheme = if path == "/basic" { "Basic realm=\"service\"" } else { "Key" };
        assert_eq!(response.header("www-authenticate"), Some(scheme), "{path} {headers}");
    }
    for (path, headers, user) in [
        ("/key", "apikey: k1\r\n", "alice"),
        ("/key?apikey=k1&a=b", "", "alice"),
        ("/hiding?token=k1&a=b", "", "alice"),
        ("/basic", "Authorization: Basic YWw6cGFzcw==\r\n", "alice"),
        ("/anyone", "", "guest"),
        ("/anyone", "apikey: wrong\r\n", "guest"),
        ("/anyone", "apikey: k1\r\n", "alice"),
    ] {
        let response = gateway.get_with(path, headers);
        assert_eq!(response.status, 200, "{path} {headers}: {}", response.text());
        let told = response.text();
        assert!(told.contains(&format!("X-Consumer-Username: {user}\n")), "{path} {headers}: {told}");
        assert_eq!(told.contains("X-Anonymous-Consumer: true"), user == "guest", "{path} {headers}: {told}");
        assert!(!path.starts_with("/hiding") || !told.contains("k1"), "{told}");
    }
}

#[test]
fn correlation_id_names_requests_to_both_sides() {
    let upstream = Upstream::echoing();
    let marked = |config: &str| format!("plugins: [{{name: correlation-id, config: {{{config}}}}}]");
    let services = [
        service(
            "/uuid",
            upstream.address,
            "",
            &marked("generator: uuid, echo_downstream: true, header_name: X-Id"),
        ),
        service("/counter", upstream.address, "", &marked("")),
    ];
    let gateway = Gateway::start(&document(&services, ""));
    let response = gateway.get("/uuid");
    let id = response.header("x-id").unwrap();
    assert_eq!(id.len(), 36);
    assert!(response.text().contains(&format!("X-Id: {id}\n")));
    assert_eq!(gateway.get_with("/uuid", "X-Id: mine\r\n").header("x-id"), Some("mine"));
    let ids: Vec<String> = (0..2)
        .map(|_| gateway.get("/counter"))
        .map(|response| {
            assert_eq!(response.header("kong-request-id"), None);
            response
                .text()
                .lines()
                .find_map(|line| line.strip_prefix("Kong-Request-ID: "))
                .unwrap()
                .to_owned()
        })
        .collect();
    let parts: Vec<_> = ids.iter().map(|id| id.rsplit_once('#').unwrap()).collect();
    assert_eq!(parts[0].0, parts[1].0);
    assert_ne!(parts[0].1, parts[1].1);
}

/// Samples of Prometheus' text format, by name and labels. Panics on what is none.
fn samples(text: &str) -> HashMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().unwrap();
            assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b)), "{line}");
            assert!(!series.contains('{') || series.ends_with('}'), "{line}");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// The sum of the samples of a metric that have all these labels.
fn total(samples: &HashMap<String, f64>, name: &str, labels: &[&str]) -> f64 {
    let of = |series: &&String| {
        series.starts_with(&format!("{name}{{")) && labels.iter().all(|label| series.contains(label))
    };
    samples.keys().filter(of).map(|series| samples[series]).sum()
}

#[test]
fn prometheus_counts_what_was_served() {
    let upstream = Upstream::answering(OK);
    let services = [
        service("/open", upstream.address, "", ""),
        service("/keyed", upstream.address, "", "plugins: [{name: key-auth}]"),
    ];
    let plugin = "plugins: [{name: prometheus, config: {status_code_metrics: true, latency_metrics: true, bandwidth_metrics: true, per_consumer: true}}]\n\
                  consumers:\n- {username: alice, keyauth_credentials: [{key: k1}]}\n";
    let gateway = Gateway::builder(&document(&services, plugin)).set("workers", "2").start();
    let body = "x".repeat(10_000);
    (0..7).for_each(|_| _ = gateway.get("/open"));
    (0..3).for_each(|_| _ = gateway.get("/keyed"));
    (0..2).for_each(|_| _ = gateway.get_with("/keyed", "apikey: k1\r\n"));
    gateway.send(&format!("POST /open HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    gateway.get("/nowhere");
    let requests = "kong_http_requests_total";
    eventually("everything is counted", || {
        total(&samples(gateway.status("/metrics").text()), requests, &[]) == 13.0
    });
    for metrics in [gateway.status("/metrics"), gateway.admin("/metrics")] {
        assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
        let samples = samples(metrics.text());
        let counted = |labels: &[&str]| total(&samples, requests, labels);
        assert_eq!(
            counted(&["route=\"r-open\"", "service=\"s-open\"", "code=\"200\"", "source=\"service\""]),
            8.0
        );
        assert_eq!(counted(&["route=\"r-keyed\"", "code=\"401\"", "source=\"kong\"", "consumer=\"\""]), 3.0);
        assert_eq!(counted(&["route=\"r-keyed\"", "code=\"200\"", "consumer=\"alice\""]), 2.0);
        assert_eq!(total(&samples, "kong_request_latency_ms_count", &["route=\"r-open\""]), 8.0);
        assert_eq!(total(&samples, "kong_upstream_latency_ms_count", &["route=\"r-keyed\""]), 2.0);
        let ingress = total(&samples, "kong_bandwidth_bytes", &["route=\"r-open\"", "direction=\"ingress\""]);
        assert!(ingress > 10_000.0, "bodies count: {ingress}");
        assert_eq!(total(&samples, "kong_nginx_requests_total", &[]), 14.0);
        for name in ["kong_nginx_connections_total", "kong_node_info", "kong_datastore_reachable"] {
            assert!(samples.keys().any(|series| series.starts_with(name)), "{name}");
        }
    }
}

/// The most specific configuration of a plugin is the one that runs.
#[test]
fn a_plugin_runs_once_in_its_most_specific_form() {
    let upstream = Upstream::answering(OK);
    let address = upstream.address;
    let key = "{name: key-auth, config: {anonymous: guest}}";
    let services = [
        service("/all", address, &format!("plugins: [{key}]"), ""),
        service(
            "/service",
            address,
            &format!("plugins: [{key}, {{name: rate-limiting, config: {{month: 20}}}}]"),
            "",
        ),
        service(
            "/route",
            address,
            &format!("plugins: [{key}, {{name: rate-limiting, config: {{month: 20}}}}]"),
            "plugins: [{name: rate-limiting, config: {month: 30}}]",
        ),
    ];
    let more = "consumers:\n- {username: alice, keyauth_credentials: [{key: k1}]}\n- {username: guest}\nplugins:\n\
                - {name: rate-limiting, config: {month: 10}}\n\
                - {name: rate-limiting, consumer: alice, config: {month: 25}}\n\
                - {name: rate-limiting, consumer: alice, route: r-route, config: {month: 40}}\n\
                - {name: rate-limiting, consumer: alice, service: s-service, config: {month: 50}}\n";
    let gateway = Gateway::start(&document(&services, more));
    for (path, guest, alice) in [("/all", "10", "25"), ("/service", "20", "50"), ("/route", "30", "40")] {
        for (headers, limit) in [("", guest), ("apikey: k1\r\n", alice)] {
            let response = gateway.get_with(path, headers);
            assert_eq!(response.status, 200, "{}", response.text());
            assert_eq!(response.head.all("x-ratelimit-limit-month"), [limit], "{path} {headers}");
        }
    }
}
