//! Dashboards: what they ask of a real Prometheus that scrapes a node with traffic, Kong's own and ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod dashboards;
mod files;
mod fleet;
mod load;
mod long_term;
mod native;
pub(crate) mod prometheus;

use crate::harness::eventually;
use dashboards::{Chosen, Dashboard, Query, kongs, metrics, ours, text};
use load::{Kind, Load};
use prometheus::{ALERTS, Prometheus, Sample, promtool};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds of requests, each of which Prometheus sees by itself.
const ROUNDS: u64 = 2;

/// A node, and what Prometheus knew of it at a moment right after the last round.
struct Scene {
    load: Load,
    prometheus: Prometheus,
    at: f64,
}

impl Scene {
    fn new() -> Scene {
        let load = Load::start();
        let prometheus = Prometheus::scraping(load.gateway.status_address());
        let mut scene = Scene { load, prometheus, at: 0.0 };
        scene.at = scene.seen(0);
        for round in 1..=ROUNDS {
            scene.load.round(round);
            scene.at = scene.seen(round);
        }
        scene
    }

    /// When Prometheus had first seen so many rounds.
    fn seen(&self, rounds: u64) -> f64 {
        let (requests, sessions) = (self.load.requests(rounds), 1 + rounds);
        let counted = format!("sum(kong_http_requests_total) == {requests}");
        let dropped = format!("sum(weir_plugin_dropped_total) == {}", requests + sessions);
        let ended = format!("sum(kong_stream_sessions_total) == {sessions}");
        let when = format!("timestamp(up) and on() ({counted}) and on() ({dropped}) and on() ({ended})");
        let mut at = None;
        eventually("all requests are seen", || {
            at = self.prometheus.query(&when, None).first().map(|sample| sample.value);
            at.is_some()
        });
        at.unwrap()
    }

    #[track_caller]
    fn answer(&self, query: &Query, chosen: &Chosen) -> Vec<Sample> {
        answer(&self.prometheus, self.at, query, chosen)
    }
}

/// What a query of a panel gives at a time.
#[track_caller]
fn answer(prometheus: &Prometheus, at: f64, query: &Query, chosen: &Chosen) -> Vec<Sample> {
    let expression = chosen.fill_in(&query.expression);
    match query.instant {
        true => prometheus.query(&expression, Some(at)),
        false => prometheus.range(&expression, at),
    }
}

#[test]
fn every_query_of_every_dashboard_answers() {
    let scene = Scene::new();
    let exposed: BTreeSet<_> = scene.prometheus.label_values("__name__", None).into_iter().collect();
    let mut asked = 0;
    let of_nodes = ours().into_iter().filter(|dashboard| dashboard.name != fleet::DASHBOARD);
    for Dashboard { name, variables, queries } in [kongs()].into_iter().chain(of_nodes) {
        let chosen = Chosen::all(&variables, &scene.prometheus);
        for query in &queries {
            let what = format!("{name}, {}: {}", query.panel, query.expression);
            for metric in metrics(&query.expression) {
                assert!(exposed.contains(metric), "{metric} is not exposed: {what}");
            }
            let samples = scene.answer(query, &chosen);
            assert!(!samples.is_empty(), "no answer: {what}");
            for sample in samples {
                assert!(is_plausible(query, sample.value), "{sample:?}: {what}");
            }
            asked += 1;
        }
    }
    assert!(asked > 150, "{asked}");
    alerts_are_about_what_is_exposed(&scene.prometheus, &exposed);
    kongs_values_are_those_sent(&scene);
    our_values_are_those_sent(&scene);
}

fn alerts_are_about_what_is_exposed(prometheus: &Prometheus, exposed: &BTreeSet<String>) {
    eventually("alerts are evaluated", || prometheus.alerts().iter().all(|alert| alert["health"] == "ok"));
    let alerts = prometheus.alerts();
    for metric in alerts.iter().flat_map(|alert| metrics(alert["query"].as_str().unwrap())) {
        assert!(exposed.contains(metric), "{metric} is not exposed");
    }
    let due: BTreeSet<_> =
        alerts.iter().filter(|it| it["state"] != "inactive").map(|it| text(&it["name"])).collect();
    for name in
        ["DropsLogs", "ServerErrors", "TargetIsUnhealthy", "UpstreamDoesNotAnswer", "UpstreamHasNoTarget"]
    {
        assert!(due.contains(&format!("Weir{name}")), "{name}: {due:?}");
    }
    for name in ["Restarts", "RunsOutOfFiles", "StoreIsAway"] {
        assert!(!due.contains(&format!("Weir{name}")), "{name}: {due:?}");
    }
}

/// Each alert is due where it should be, and there alone.
#[test]
fn alerts_tell_good_times_from_bad_ones() {
    let worlds = include_str!("alerts.yml");
    let alerts = std::fs::read_to_string(ALERTS).unwrap();
    let names: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 10);
    for name in names {
        assert_eq!(worlds.matches(&format!("alertname: {name}")).count(), 2, "{name}");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/grafana/alerts.yml");
    for arguments in [["check", "rules", ALERTS], ["test", "rules", file]] {
        let (is_content, said) = promtool(&arguments, "");
        assert!(is_content, "{said}");
    }
}

/// Whether a panel may show this. Kong's file has no units, and values below 0 for health.
fn is_plausible(query: &Query, value: f64) -> bool {
    let most = match &*query.unit {
        "µs" => 60e6,
        "ms" => 60e3,
        _ => query.most,
    };
    // Kong's dashboard counts each target once for each subsystem.
    let least = if query.unit.is_empty() { -2.0 } else { 0.0 };
    (least..=most).contains(&value)
}

/// What a query of a panel is, by one of its labels.
#[track_caller]
fn shown(
    scene: &Scene,
    dashboard: &Dashboard,
    panel: &str,
    number: usize,
    label: &str,
) -> BTreeMap<String, f64> {
    let chosen = Chosen::all(&dashboard.variables, &scene.prometheus);
    let query = dashboard.queries.iter().filter(|query| query.panel == panel).nth(number);
    let samples = scene.answer(query.unwrap_or_else(|| panic!("{panel} is a panel")), &chosen);
    samples.iter().map(|sample| (sample.label(label).to_owned(), sample.value)).collect()
}

/// Rates over a minute are those sent, but for what Prometheus adds where it saw less than a minute.
#[track_caller]
fn assert_rates(rates: &BTreeMap<String, f64>, load: &Load, by: impl Fn(&Kind) -> String) {
    let mut sent = BTreeMap::<String, u64>::new();
    load.kinds.iter().for_each(|kind| *sent.entry(by(kind)).or_default() += ROUNDS * kind.times);
    assert_eq!(rates.keys().collect::<Vec<_>>(), sent.keys().collect::<Vec<_>>());
    for (name, sent) in &sent {
        let (seen, sent) = (rates[name] * 60.0, *sent as f64);
        assert!((sent * 0.999..=sent * 1.5).contains(&seen), "{name}: {seen} of {sent}");
    }
}

fn kongs_values_are_those_sent(scene: &Scene) {
    let (kong, load) = (kongs(), &scene.load);
    let shown = |panel: &str, number, label: &str| shown(scene, &kong, panel, number, label);
    let rps = "RPS per route/service ($service)";
    assert_rates(&shown(rps, 0, "service"), load, |kind| kind.service.to_owned());
    assert_rates(&shown(rps, 1, "route"), load, |kind| kind.route.to_owned());
    assert_rates(&shown("Total requests per second (RPS)", 0, ""), load, |_| String::new());
    // A connection a request, and sessions of streams, which have theirs apart.
    let requests = load.requests(ROUNDS) as f64;
    assert_eq!(shown("Total Connections", 0, "")[""], requests + (1 + ROUNDS) as f64);
    assert_eq!(shown("Accepted Connections", 0, "")[""], requests + (1 + ROUNDS) as f64);
    assert!(shown("Upstream Time per Service", 0, "service")["slow"] > 25.0);
    // Each target has a line for requests and one for streams.
    let health = shown("Targets", 0, "state_value");
    assert_eq!(health, BTreeMap::from([("-1", 2.0), ("0", 2.0), ("1", 2.0)].map(|(k, v)| (k.to_owned(), v))));
    let vms = shown("Kong worker Lua VM usage by Node ($instance)", 0, "pid");
    let (pid, bytes) = vms.first_key_value().unwrap();
    assert_eq!(*pid, load.gateway.pid().to_string());
    assert_eq!(*bytes, 0.0, "no Lua runs there");
    counts_are_those_sent(scene);
}

fn counts_are_those_sent(Scene { load, prometheus, at }: &Scene) {
    let of = |labels: [&str; 5]| labels.join(" ");
    let labelled = |sample: &Sample| {
        of(["service", "route", "code", "source", "consumer"].map(|name| sample.label(name)))
    };
    let counted = prometheus.query("kong_http_requests_total", Some(*at));
    let counted: BTreeMap<_, _> = counted.iter().map(|sample| (labelled(sample), sample.value)).collect();
    let sent = load.kinds.iter().map(|kind| {
        let labels = of([kind.service, kind.route, &kind.code.to_string(), kind.source, kind.consumer]);
        (labels, (1 + ROUNDS * kind.times) as f64)
    });
    assert_eq!(counted, sent.collect());
    let passed = |direction: &str, route: &str| {
        let selector = format!("sum(kong_bandwidth_bytes{{direction=\"{direction}\",route=\"{route}\"}})");
        prometheus.query(&selector, Some(*at))[0].value
    };
    let posts = (1 + ROUNDS * 4) as f64;
    assert!((posts * 10_000.0..posts * 10_500.0).contains(&passed("ingress", "orders-write")));
    assert!((posts * 1_000.0..posts * 1_500.0).contains(&passed("egress", "orders-write")));
    assert_eq!(passed("ingress", "lines"), (5 * (1 + ROUNDS)) as f64);
}

fn our_values_are_those_sent(scene: &Scene) {
    let (ours, load) = (ours(), &scene.load);
    let shown = |name: &str, panel: &str, label: &str| {
        let dashboard = ours.iter().find(|dashboard| dashboard.name == name).unwrap();
        shown(scene, dashboard, panel, 0, label)
    };
    assert_rates(&shown("weir-traffic", "By status", "code"), load, |kind| kind.code.to_string());
    let kinds = |has: &dyn Fn(&&Kind) -> bool| {
        load.kinds.iter().filter(has).map(|kind| kind.times).sum::<u64>() as f64
    };
    let failed = kinds(&|kind| kind.code >= 500) / kinds(&|_| true);
    assert!((shown("weir-traffic", "Server errors", "")[""] / failed - 1.0).abs() < 0.4, "{failed}");
    for (panel, count) in [("Healthy", 1.0), ("Unhealthy", 1.0), ("Not resolved", 1.0), ("Not checked", 1.0)]
    {
        assert_eq!(shown("weir-upstreams", panel, "")[""], count, "{panel}");
    }
    let states: Vec<_> = shown("weir-upstreams", "Health", "target").into_values().collect();
    assert_eq!(states.iter().sum::<f64>(), 0.0 + 1.0 + 2.0 + 3.0, "{states:?}");
    assert!(shown("weir-upstreams", "Time of upstreams", "service")["slow"] > 10_000.0);
    for (plugin, of_round) in [("key-auth", 6), ("proxy-cache", 4), ("prometheus", 0)] {
        let answers = format!("sum(weir_plugin_answers_total{{plugin=\"{plugin}\"}})");
        let first = f64::from(u8::from(of_round > 0));
        assert_eq!(
            scene.prometheus.query(&answers, Some(scene.at))[0].value,
            first + (ROUNDS * of_round) as f64
        );
    }
    let calls = "sum(weir_plugin_calls_total{plugin=\"prometheus\"})";
    assert_eq!(scene.prometheus.query(calls, Some(scene.at))[0].value, load.requests(ROUNDS) as f64);
    let costs = shown("weir-plugins", "Share of the workers' CPU by plugin", "plugin");
    assert!(costs.values().all(|share| *share > 0.0), "{costs:?}");
    assert!(shown("weir-nodes", "CPU", "")[""] > 0.0);
    assert_eq!(shown("weir-nodes", "Store", "")[""], 1.0);
}

/// Names that are Kong's, and one of ours that Kong's histograms are beside; `docs/grafana.md` has the reasons.
const OBJECTIONS: [&str; 10] = [
    "kong_ai_llm_provider_latency_ms metric names should not contain abbreviated units",
    "kong_ai_llm_time_to_first_token_ms metric names should not contain abbreviated units",
    "kong_bandwidth_bytes counter metrics should have \"_total\" suffix",
    "kong_kong_latency_ms metric names should not contain abbreviated units",
    "kong_nginx_connections_total non-counter metrics should not have \"_total\" suffix",
    "kong_nginx_requests_total non-counter metrics should not have \"_total\" suffix",
    "kong_request_latency_ms metric names should not contain abbreviated units",
    "kong_session_duration_ms metric names should not contain abbreviated units",
    "kong_upstream_latency_ms metric names should not contain abbreviated units",
    "weir_request_duration_microseconds use base unit \"seconds\" instead of \"microseconds\"",
];

#[test]
fn promtool_finds_no_fault_with_what_is_exposed() {
    let load = Load::start();
    let exposed = || load.gateway.status("/metrics").text().to_owned();
    eventually("the session is counted", || exposed().contains("kong_stream_sessions_total{"));
    let (_, said) = promtool(&["check", "metrics"], &exposed());
    let mut said: Vec<_> = said.lines().collect();
    said.sort_unstable();
    assert_eq!(said, OBJECTIONS);
}
