//! What plugins cost: counted, told by the Admin API, in the metrics and to clients that ask.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Upstream, document, service};
use serde_json::Value;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
/// What a service that decides takes at least.
const DECIDES: Duration = Duration::from_millis(20);

const CONSUMERS: &str = "consumers: [{username: alice, keyauth_credentials: [{key: k}]}]\n";

/// A gateway that measures every request.
fn all_measured(configuration: &str) -> Gateway {
    Gateway::builder(configuration).set("cost_sampling", "1").start()
}

fn guarded(upstream: SocketAddr) -> String {
    document(&[service("/a", upstream, "", "plugins: [{name: key-auth}]")], CONSUMERS)
}

/// The rows of a query.
fn costs(gateway: &Gateway, query: &str) -> Vec<Value> {
    gateway.admin(&format!("/plugins/costs{query}")).json()["data"].as_array().unwrap().clone()
}

/// The only row of a query.
fn cost(gateway: &Gateway, query: &str) -> Value {
    let mut rows = costs(gateway, query);
    assert_eq!(rows.len(), 1, "{query}: {rows:?}");
    rows.remove(0)
}

/// Sends so many requests one after another.
fn ask(gateway: &Gateway, times: usize, path: &str, headers: &str) {
    for _ in 0..times {
        gateway.get_with(path, headers);
    }
}

/// The values of a metric's samples whose labels hold all of these.
fn samples(metrics: &str, name: &str, labels: &[&str]) -> Vec<f64> {
    let of_it =
        |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|l| line.contains(l));
    metrics.lines().filter(of_it).map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_plugin_is_told_with_its_calls_and_its_share_of_the_cpu() {
    let upstream = Upstream::answering(HI);
    let gateway = all_measured(&guarded(upstream.address));
    ask(&gateway, 50, "/a", "apikey: k\r\n");
    let row = cost(&gateway, "");
    assert_eq!(
        (&row["name"], &row["route"]["name"], &row["service"]["name"]),
        (&"key-auth".into(), &"r-a".into(), &"s-a".into())
    );
    assert_eq!((&row["calls"], &row["sampled"]), (&50.into(), &50.into()));
    let phases: Vec<_> = row["phases"].as_object().unwrap().keys().collect();
    assert_eq!(phases, ["access"], "of the hooks that it has");
    let number = |name: &str| row[name].as_f64().unwrap();
    assert!(0.0 < number("cpu_share") && number("cpu_share") < 1.0, "{row}");
    assert!(0.0 < number("us_p50") && number("us_p50") <= number("us_p99"), "{row}");
    assert!(0.0 < number("us_mean"), "{row}");
    assert_eq!((&row["answers"], &row["errors"], &row["waits"]), (&0.into(), &0.into(), &0.into()));
    let told = gateway.admin("/plugins/costs").json();
    let route = &told["routes"][0];
    assert_eq!((&route["route"]["name"], &route["requests"]), (&"r-a".into(), &50.into()));
    let mean = |part: &str| route[part]["us_mean"].as_f64().unwrap();
    let parts = mean("rest") + mean("upstream") + row["us_mean"].as_f64().unwrap();
    assert!((parts / mean("total") - 1.0).abs() < 0.01, "they make up the total: {route} {row}");
    assert!(told["worker_cpu_seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn rows_are_asked_for_by_plugin_route_and_service() {
    let upstream = Upstream::answering(HI);
    let services = ["/a", "/b"].map(|path| service(path, upstream.address, "", ""));
    let global = "plugins: [{name: correlation-id, instance_name: ids, config: {echo_downstream: true}}, {name: cors}]\n";
    let gateway = all_measured(&document(&services, global));
    ask(&gateway, 3, "/a", "");
    ask(&gateway, 2, "/b", "");
    ask(&gateway, 1, "/nowhere", "");
    assert_eq!(costs(&gateway, "").len(), 6, "each on both routes, and where no route matched");
    assert_eq!(costs(&gateway, "?plugin=cors").len(), 3);
    assert_eq!(cost(&gateway, "?plugin=ids&route=r-a")["calls"], 3);
    assert_eq!(cost(&gateway, "?plugin=correlation-id&service=s-b")["calls"], 2);
    for (nobody, told) in [
        ("?route=no-such", "there is no route `no-such`"),
        ("?service=no-such", "there is no service `no-such`"),
        ("?plugin=keyauth", "there is no plugin `keyauth`; did you mean `key-auth`?"),
        ("?plugin=cors&route=s-a", "there is no route `s-a`; did you mean `r-a`?"),
    ] {
        let answer = gateway.admin(&format!("/plugins/costs{nobody}"));
        assert_eq!((answer.status, answer.json()["message"].as_str()), (404, Some(told)), "{nobody}");
    }
    assert_eq!(
        costs(&gateway, "?plugin=jwt"),
        Vec::<Value>::new(),
        "a plugin that there is, and nobody uses"
    );
    let misspelt = gateway.admin("/plugins/costs?rout=r-a");
    let told = "unknown argument `rout`; there are: plugin, route, service; did you mean `route`?";
    assert_eq!((misspelt.status, misspelt.json()["message"].as_str()), (400, Some(told)));
}

#[test]
fn quantiles_and_shares_are_told_where_enough_was_measured() {
    let upstream = Upstream::answering(HI);
    let services = ["/a", "/b"].map(|path| service(path, upstream.address, "", ""));
    let gateway = all_measured(&document(&services, "plugins: [{name: correlation-id}, {name: cors}]\n"));
    ask(&gateway, 49, "/a", "");
    ask(&gateway, 50, "/b", "");
    for row in costs(&gateway, "?route=r-a") {
        for told in [&row, &row["phases"]["access"]] {
            assert_eq!((&told["us_p50"], &told["us_p99"]), (&Value::Null, &Value::Null), "{row}");
            assert!(told["us_mean"].is_number());
        }
        assert_eq!((&row["cpu_share"], &row["calls"]), (&Value::Null, &49.into()), "{row}");
    }
    for row in costs(&gateway, "?route=r-b") {
        assert!(row["us_p50"].is_number() && row["phases"]["access"]["us_p99"].is_number(), "{row}");
    }
    let shares: Vec<_> = costs(&gateway, "").iter().map(|row| row["cpu_share"].as_f64()).collect();
    assert!(shares.is_sorted_by(|a, b| a >= b), "the dearest first, then those not known: {shares:?}");
    assert_eq!(shares.iter().flatten().count(), 2);
}

#[test]
fn answers_and_errors_are_counted_whether_measured_or_not() {
    let upstream = Upstream::answering(HI);
    let broken = "plugins: [{name: request-termination, config: {status_code: 503}}]";
    let services = [
        service("/a", upstream.address, "", "plugins: [{name: key-auth}]"),
        service("/down", upstream.address, "", broken),
    ];
    let gateway = Gateway::builder(&document(&services, CONSUMERS)).set("cost_sampling", "100000").start();
    ask(&gateway, 30, "/a", "");
    ask(&gateway, 20, "/a", "apikey: k\r\n");
    ask(&gateway, 40, "/down", "");
    let row = cost(&gateway, "?plugin=key-auth");
    assert_eq!((&row["answers"], &row["errors"]), (&30.into(), &0.into()));
    let row = cost(&gateway, "?plugin=request-termination");
    assert_eq!((&row["answers"], &row["errors"]), (&40.into(), &40.into()));
}

#[test]
fn what_a_plugin_waits_is_told_apart_from_what_it_does() {
    let upstream = Upstream::answering(HI);
    let decider = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            thread::park_timeout(DECIDES);
            peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let plugin =
        format!("plugins: [{{name: forward-auth, config: {{url: \"http://{}/\"}}}}]", decider.address);
    let gateway = all_measured(&document(&[service("/", upstream.address, "", &plugin)], ""));
    ask(&gateway, 10, "/", "");
    let row = cost(&gateway, "");
    assert_eq!((&row["calls"], &row["waits"]), (&10.into(), &10.into()));
    let waited = row["us_waited_mean"].as_f64().unwrap();
    assert!(waited >= DECIDES.as_micros() as f64, "{row}");
    assert!(row["us_mean"].as_f64().unwrap() < waited, "{row}");
    let metrics = gateway.status("/metrics");
    let seconds = samples(metrics.text(), "weir_plugin_waited_seconds_total", &["plugin=\"forward-auth\""]);
    assert!(seconds[0] >= 10.0 * DECIDES.as_secs_f64(), "{seconds:?}");
}

#[test]
fn the_metrics_are_on_both_listeners() {
    let upstream = Upstream::answering(HI);
    let gateway = all_measured(&guarded(upstream.address));
    ask(&gateway, 20, "/a", "apikey: k\r\n");
    ask(&gateway, 5, "/a", "");
    for metrics in [gateway.status("/metrics"), gateway.admin("/metrics")] {
        let of = |name, more: &[&str]| {
            let labels = ["plugin=\"key-auth\"", "service=\"s-a\"", "route=\"r-a\""];
            let found = samples(metrics.text(), name, &[&labels[..], more].concat());
            assert_eq!(found.len(), 1, "{name} {more:?}");
            found[0]
        };
        let access = "phase=\"access\"";
        assert_eq!(of("weir_plugin_calls_total", &[access]), 25.0);
        assert_eq!(of("weir_plugin_duration_seconds_count", &[access]), 25.0);
        assert_eq!(of("weir_plugin_duration_seconds_bucket", &[access, "le=\"+Inf\""]), 25.0);
        assert!(of("weir_plugin_duration_seconds_bucket", &[access, "le=\"0.01\""]) <= 25.0);
        assert!(of("weir_plugin_duration_seconds_bucket", &[access, "le=\"0.00000005\""]) <= 25.0);
        assert!(of("weir_plugin_duration_seconds_sum", &[access]) > 0.0);
        assert_eq!(of("weir_plugin_answers_total", &[]), 5.0);
        assert_eq!(of("weir_plugin_errors_total", &[]), 0.0);
        assert_eq!(of("weir_plugin_waited_seconds_total", &[]), 0.0);
        let cpu = metrics.text().lines().find_map(|line| line.strip_prefix("weir_worker_cpu_seconds_total "));
        assert!(cpu.unwrap().parse::<f64>().unwrap() > 0.0);
    }
}

#[test]
fn estimates_come_near_what_there_was() {
    let upstream = Upstream::answering(HI);
    let gateway = Gateway::start(&guarded(upstream.address));
    let mut client = gateway.connect();
    for _ in 0..5_000 {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\napikey: k\r\n\r\n").response();
    }
    let row = cost(&gateway, "");
    let (calls, sampled) = (row["calls"].as_u64().unwrap(), row["sampled"].as_u64().unwrap());
    assert!(
        (5_000 - 127..=5_000).contains(&calls),
        "but for those since the last that was measured: {calls}"
    );
    assert!((64..300).contains(&sampled), "{sampled}");
}

#[test]
fn nothing_is_measured_where_that_is_switched_off() {
    let upstream = Upstream::answering(HI);
    let gateway = Gateway::builder(&guarded(upstream.address)).set("cost_sampling", "0").start();
    ask(&gateway, 20, "/a", "");
    assert_eq!(costs(&gateway, ""), Vec::<Value>::new());
    assert!(!gateway.status("/metrics").text().contains("weir_plugin_"));
}

#[test]
fn a_reload_keeps_what_is_still_there_and_drops_what_is_gone() {
    let upstream = Upstream::answering(HI);
    let with = |plugins: &str| {
        document(&[service("/a", upstream.address, "", plugins), service("/b", upstream.address, "", "")], "")
    };
    let gateway = all_measured(&with("plugins: [{name: correlation-id}, {name: cors}]"));
    ask(&gateway, 10, "/a", "");
    assert_eq!(costs(&gateway, "").len(), 2);
    assert!(gateway.reload(&with("plugins: [{name: correlation-id}]")).status.success());
    assert_eq!(cost(&gateway, "")["calls"], 10);
    assert!(!gateway.status("/metrics").text().contains("plugin=\"cors\""));
    assert!(gateway.reload(&with("plugins: [{name: correlation-id}, {name: cors}]")).status.success());
    ask(&gateway, 4, "/a", "");
    assert_eq!(cost(&gateway, "?plugin=correlation-id")["calls"], 14);
    assert_eq!(cost(&gateway, "?plugin=cors")["calls"], 4, "it begins anew");
}

#[test]
fn all_workers_are_added_up() {
    let upstream = Upstream::answering(HI);
    let gateway =
        Gateway::builder(&guarded(upstream.address)).set("cost_sampling", "1").set("workers", "4").start();
    let mut clients: Vec<_> = (0..8).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        for _ in 0..5 {
            client.send("GET /a HTTP/1.1\r\nHost: a\r\napikey: k\r\n\r\n").response();
        }
    }
    assert_eq!(cost(&gateway, "")["calls"], 40);
}

/// The entries of `Server-Timing`: names, and milliseconds.
fn timing(header: &str) -> Vec<(String, f64)> {
    let entry = |entry: &str| {
        let (name, parameter) = entry.trim().split_once(';').expect("an entry has a duration");
        let is_token = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        assert!(!name.is_empty() && is_token(name), "{name}");
        (name.to_owned(), parameter.strip_prefix("dur=").unwrap().parse().unwrap())
    };
    header.split(',').map(entry).collect()
}

fn timed(settings: &[(&str, &str)], upstream: SocketAddr) -> Gateway {
    let plugins = "plugins: [{name: correlation-id}, {name: key-auth}]\n";
    let configuration = document(&[service("/a", upstream, "", "")], &format!("{plugins}{CONSUMERS}"));
    let builder = Gateway::builder(&configuration).set("cost_sampling", "0");
    settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start()
}

const ASKS: &str = "Weir-Server-Timing: 1\r\napikey: k\r\n";

#[test]
fn a_client_that_may_ask_is_told_where_its_time_went() {
    let upstream = Upstream::answering(HI);
    let gateway = timed(&[("server_timing", "on_request")], upstream.address);
    let told = gateway.get_with("/a", ASKS);
    let entries = timing(told.header("server-timing").expect("it is told"));
    let names: Vec<_> = entries.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["correlation-id", "key-auth", "upstream", "total"]);
    let total = entries[3].1;
    assert!(entries.iter().all(|(_, time)| (0.0..=total).contains(time)), "{entries:?}");
    let refused = gateway.get_with("/a", "Weir-Server-Timing: 1\r\n");
    let names: Vec<_> =
        timing(refused.header("server-timing").unwrap()).into_iter().map(|entry| entry.0).collect();
    assert_eq!(
        (refused.status, names),
        (401, ["correlation-id", "key-auth", "total"].map(String::from).to_vec())
    );
    assert_eq!(
        gateway.get_with("/a", "apikey: k\r\n").header("server-timing"),
        None,
        "who does not ask is not"
    );
    assert_eq!(
        gateway.get_with("/a", "Weir-Server-Timing: 0\r\napikey: k\r\n").header("server-timing"),
        None
    );
}

#[test]
fn others_are_told_nothing() {
    let upstream = Upstream::answering(HI);
    let told = |settings: &[(&str, &str)], headers: &str| {
        let gateway = timed(settings, upstream.address);
        gateway.get_with("/a", &format!("{ASKS}{headers}")).header("server-timing").is_some()
    };
    let on = ("server_timing", "on_request");
    assert!(!told(&[], ""), "by default nobody is");
    assert!(!told(&[on, ("server_timing_ips", "192.0.2.0/24")], ""));
    assert!(!told(&[on], "X-Forwarded-For: 127.0.0.1\r\n"), "somebody else speaks for it");
    assert!(!told(&[on], "Forwarded: for=127.0.0.1\r\n"));
    let trusted = [on, ("trusted_ips", "127.0.0.1"), ("real_ip_header", "X-Forwarded-For")];
    assert!(!told(&trusted, "X-Forwarded-For: 192.0.2.7\r\n"), "a trusted proxy says who it is");
    assert!(told(
        &[&trusted[..], &[("server_timing_ips", "192.0.2.0/24")]].concat(),
        "X-Forwarded-For: 192.0.2.7\r\n"
    ));
}

#[test]
fn everybody_is_told_where_it_says_always() {
    let upstream = Upstream::answering(HI);
    let gateway = timed(&[("server_timing", "always")], upstream.address);
    assert!(gateway.get_with("/a", "apikey: k\r\n").header("server-timing").is_some());
    let own = "HTTP/1.1 200 OK\r\nServer-Timing: db;dur=5\r\nContent-Length: 0\r\n\r\n";
    let upstream = Upstream::answering(own);
    let gateway = timed(&[("server_timing", "always")], upstream.address);
    let all = gateway.get_with("/a", "apikey: k\r\n");
    assert_eq!(all.head.all("server-timing").len(), 2, "beside the upstream's own");
}

#[test]
fn bad_settings_are_refused() {
    let said = |key, value| Gateway::builder("_format_version: \"3.0\"").set(key, value).fail().1;
    assert!(said("server_timing", "yes").contains("`on_request`"), "{}", said("server_timing", "yes"));
    assert!(said("server_timing_ips", "localhost").contains("server_timing_ips"));
    assert!(said("cost_sampling", "-1").contains("cost_sampling"));
}
