//! prometheus over exchanges in memory, and the text of its scrapes.

use super::*;
use crate::PLUGINS;
use serde_json::json;
use std::sync::Arc;
use std::time::SystemTime;
use weir_plugin::testing::{self, Gateway, entity, id};
use weir_plugin::{BOUNDS, BodyMemoryUsage, Cost, Exchange, Hooks, Json, Phase, PhaseCost, Spread};
use weir_plugin::{ConsumerIndex, Credential};

/// A request's log hook, `microseconds` after its start, half of it spent in the upstream.
fn log(
    gateway: &Gateway,
    plugin: &Arc<dyn Hooks>,
    status: u16,
    microseconds: u64,
    change: impl FnOnce(&mut Exchange),
) {
    let mut exchange = gateway.exchange("GET /");
    let after = |part| Some(exchange.timing.start + Duration::from_micros(part));
    exchange.timing.upstream_start = after(microseconds / 4);
    exchange.timing.upstream_head = after(microseconds * 3 / 4);
    exchange.timing.end = after(microseconds);
    (exchange.response.status, exchange.bytes_in, exchange.bytes_out) = (status, 100, 1_000);
    change(&mut exchange);
    plugin.log(&mut exchange);
}

fn all_flags() -> Json {
    json!({ "status_code_metrics": true, "latency_metrics": true, "bandwidth_metrics": true })
}

/// A gateway with an enabled configuration of the plugin.
fn enabled() -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.plugins = vec![entity(json!({ "id": id(9), "name": "prometheus", "config": {} }))];
    gateway
}

fn scrape(gateway: &Gateway) -> String {
    scrape_as(gateway, &|node| exposition(&gateway.retained, node))
}

fn scrape_as(gateway: &Gateway, render: &dyn Fn(&NodeFacts<'_>) -> String) -> String {
    let connections = Connections { accepted: 9, handled: 8, active: 7, reading: 1, writing: 2, waiting: 4 };
    let targets = [TargetHealth {
        upstream: "orders".into(),
        target: "a.test:80".into(),
        address: "192.0.2.7:80".into(),
        state: TargetState::HealthchecksOff,
    }];
    let node = NodeFacts {
        node_id: "the-node",
        version: "3.9.1",
        process: Process {
            id: 17,
            started: Duration::from_millis(1_500),
            cpu: Duration::from_millis(2_250),
            resident_bytes: 4_096,
            open_files: 12,
            most_open_files: Some(1_024),
        },
        connections,
        streams: None,
        total_requests: 42,
        http2_requests: 12,
        http3_requests: 3,
        datastore_reachable: true,
        document: &gateway.document,
        costs: &costs(),
        retries: &[],
        limits: &[("connections", 0), ("requests_in_flight", 7)],
        upstream_loads: &[UpstreamLoad {
            upstream: "orders".into(),
            limit: Some(40),
            in_flight: 12,
            waiting: 1,
            shed: vec![("upstream", 5), ("targets", 0), ("waited", 2)],
        }],
        ejected_targets: &[EjectedTarget {
            upstream: "orders".into(),
            target: "a.test:80".into(),
            is_ejected: true,
            ejections: vec![("errors", 3), ("error_share", 0), ("latency", 1)],
        }],
        worker_cpu: Duration::from_millis(1_500),
        body_memory_usage: BodyMemoryUsage {
            bytes: 5_000,
            limit: Some(268_435_456),
            rejected: 2,
            skipped: 1,
        },
        lost_log_lines: [("proxy_access_log", 3), ("proxy_stream_access_log", 0)],
        targets: &targets,
        lua_vms_bytes: 2_048,
        shared_dicts: &[SharedStore { name: "counters".into(), bytes: 300, max_bytes: 1_048_576 }],
    };
    render(&node)
}

/// Two instances of one plugin on one route, and one of another where no route matched.
fn costs() -> Vec<Cost> {
    let cost = |plugin, route: bool, phase, nanos: u64| {
        let mut spread = Spread { measured: 1, nanos: nanos * 64, ..Spread::default() };
        spread.buckets[BOUNDS.partition_point(|bound| *bound < nanos)] = 64;
        Cost {
            plugin: Some(id(plugin)),
            route: route.then(|| id(0x61)),
            since: SystemTime::UNIX_EPOCH,
            cpu: Duration::from_secs(1),
            phases: vec![PhaseCost { phase, spread }],
            waits: 1,
            waited: Duration::from_millis(3),
            answers: 2,
            errors: 1,
        }
    };
    vec![
        cost(9, true, Phase::Log, 300),
        cost(8, true, Phase::Log, 50),
        cost(7, false, Phase::Access, 20_000_000),
    ]
}

/// The value of the line with this beginning.
fn value(text: &str, line: &str) -> Option<f64> {
    let mut values = text.lines().filter_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
    let value = values.next();
    assert_eq!(values.next(), None, "{line} is there twice");
    value
}

const REQUESTS: &str = "kong_http_requests_total{service=\"orders\",route=\"all\"";
const BYTES: &str = "kong_bandwidth_bytes{service=\"orders\",route=\"all\"";
const OTHER_LABELS: &str = "workspace=\"default\",consumer=\"\"}";

#[test]
fn a_scrape_is_as_the_golden_file() {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.plugins = vec![
        entity(json!({ "id": id(9), "name": "prometheus", "config": { "upstream_health_metrics": true } })),
        entity(json!({ "id": id(8), "name": "prometheus", "config": {} })),
        entity(json!({ "id": id(7), "name": "cors", "config": {} })),
    ];
    let plugin = gateway.plugin("prometheus", all_flags()).unwrap();
    log(&gateway, &plugin, 200, 400, |_| {});
    log(&gateway, &plugin, 200, 48_000, |_| {});
    log(&gateway, &plugin, 401, 20, |exchange| {
        exchange.source = weir_plugin::Source::Kong;
        (exchange.timing.upstream_start, exchange.timing.upstream_head) = (None, None);
    });
    let text = scrape(&gateway);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/src/prometheus/scrape.txt");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(golden, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(golden).unwrap());
}

#[test]
fn a_plugin_cannot_take_the_name_of_a_metric_of_the_node() {
    let gateway = Gateway::new(PLUGINS);
    let plugin: Arc<weir_plugin::entity::Plugin> = entity(json!({ "id": id(9), "name": "cors" }));
    let types = include_str!("scrape.txt").lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in types.filter_map(|line| line.split(' ').next()) {
        assert!(gateway.build_with(&plugin, |build| build.counter(name, "", &[]).is_err()), "{name}");
    }
}

#[test]
fn workers_are_added_up() {
    let gateway = enabled();
    let shared = gateway.plugin("prometheus", all_flags()).unwrap();
    let registry = gateway.retained.get::<Registry>();
    drop(shared);
    let key = Key { service: Some(id(0x51)), route: id(0x61), consumer: None };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1_000).for_each(|_| registry.with(key, |series| series.ingress.add(2))));
        }
        // Meanwhile scrapes see at most the final count, and never less than before.
        let mut before = 0.0;
        for _ in 0..50 {
            let now = value(&scrape(&gateway), &format!("{BYTES},direction=\"ingress\",{OTHER_LABELS}"))
                .unwrap_or_default();
            assert!((before..=8_000.0).contains(&now));
            before = now;
        }
    });
    assert_eq!(
        value(&scrape(&gateway), &format!("{BYTES},direction=\"ingress\",{OTHER_LABELS}")),
        Some(8_000.0)
    );
}

#[test]
fn apisixs_names_are_for_the_same_counts() {
    let gateway = enabled();
    let plugin = gateway.plugin("prometheus", all_flags()).unwrap();
    log(&gateway, &plugin, 200, 4_000, |_| {});
    log(&gateway, &plugin, 503, 2_000, |_| {});
    log(&gateway, &plugin, 503, 2_000, |exchange| exchange.source = weir_plugin::Source::Kong);
    let names = || [(id(0x61), "1".to_owned()), (id(0x51), String::new())].into();
    let text = scrape_as(&gateway, &|node| apisix_exposition(&gateway.retained, node, "here", names()));
    let of = "route=\"1\",service=\"\",consumer=\"\",node=\"\"";
    let status = |code: u16| {
        let unmatched = "matched_uri=\"\",matched_host=\"\"";
        let labels = format!("route=\"1\",{unmatched},service=\"\",consumer=\"\",node=\"\"");
        value(&text, &format!("apisix_http_status{{code=\"{code}\",{labels}}}"))
    };
    assert_eq!((status(200), status(503)), (Some(1.0), Some(2.0)));
    let latency = |kind: &str| value(&text, &format!("apisix_http_latency_sum{{type=\"{kind}\",{of}}}"));
    assert_eq!(["request", "upstream", "apisix"].map(latency), [Some(8.0), Some(4.0), Some(2.0)]);
    assert_eq!(value(&text, &format!("apisix_bandwidth{{type=\"egress\",{of}}}")), Some(3_000.0));
    assert_eq!(value(&text, "apisix_http_requests_total"), Some(42.0));
    assert_eq!(value(&text, "apisix_node_info{hostname=\"here\"}"), Some(1.0));
    assert_eq!(value(&text, "apisix_nginx_http_current_connections{state=\"active\"}"), Some(7.0));
}

#[test]
fn flags_are_honoured() {
    for flag in ["status_code_metrics", "latency_metrics", "bandwidth_metrics", "per_consumer"] {
        let gateway = enabled();
        let plugin = gateway.plugin("prometheus", json!({ flag: true })).unwrap();
        log(&gateway, &plugin, 200, 10, |_| {});
        let text = scrape(&gateway);
        assert_eq!(text.contains("kong_http_requests_total"), flag == "status_code_metrics");
        assert_eq!(text.contains("kong_bandwidth_bytes"), flag == "bandwidth_metrics");
        assert_eq!(text.contains("latency_ms"), flag == "latency_metrics");
        assert_eq!(text.contains("weir_request_duration_microseconds"), flag == "latency_metrics");
        assert!(!text.contains("kong_upstream_target_health"));
    }
}

#[test]
fn consumers_are_counted_separately_only_on_demand() {
    let gateway = enabled();
    let mut config = all_flags();
    let as_alice = |exchange: &mut Exchange| {
        exchange.authenticate(ConsumerIndex(0), Credential { id: id(0xa1), identifier: None });
    };
    let together = gateway.plugin("prometheus", config.clone()).unwrap();
    log(&gateway, &together, 200, 10, as_alice);
    config["per_consumer"] = json!(true);
    let apart = gateway.plugin("prometheus", config).unwrap();
    log(&gateway, &apart, 200, 10, as_alice);
    log(&gateway, &apart, 200, 10, |_| {});
    let text = scrape(&gateway);
    let count = |consumer: &str| {
        let line = format!(
            "{REQUESTS},code=\"200\",source=\"service\",workspace=\"default\",consumer=\"{consumer}\"}}"
        );
        value(&text, &line)
    };
    assert_eq!((count(""), count("alice")), (Some(2.0), Some(1.0)));
    let durations = "kong_request_latency_ms_count{service=\"orders\",route=\"all\",workspace=\"default\"}";
    assert_eq!(value(&text, durations), Some(3.0));
}

#[test]
fn counts_follow_renamed_routes_and_leave_with_those_that_are_gone() {
    let mut gateway = enabled();
    let plugin = gateway.plugin("prometheus", all_flags()).unwrap();
    log(&gateway, &plugin, 200, 10, |_| {});
    let route = gateway.document.routes[0].clone();
    Arc::make_mut(&mut gateway.document.routes[0]).name = Some("every\"thing".to_owned());
    let renamed = "kong_http_requests_total{service=\"orders\",route=\"every\\\"thing\",code=\"200\",source=\"service\"";
    assert_eq!(value(&scrape(&gateway), &format!("{renamed},{OTHER_LABELS}")), Some(1.0));

    gateway.document.routes.clear();
    assert!(!scrape(&gateway).contains("kong_http_requests_total"));
    // One scrape may see a configuration that is older than the workers'.
    gateway.document.routes.push(route.clone());
    assert_eq!(
        value(&scrape(&gateway), &format!("{REQUESTS},code=\"200\",source=\"service\",{OTHER_LABELS}")),
        Some(1.0)
    );

    gateway.document.routes.clear();
    scrape(&gateway);
    scrape(&gateway);
    gateway.document.routes.push(route);
    log(&gateway, &plugin, 200, 10, |_| {});
    log(&gateway, &plugin, 200, 10, |_| {});
    assert_eq!(
        value(&scrape(&gateway), &format!("{REQUESTS},code=\"200\",source=\"service\",{OTHER_LABELS}")),
        Some(2.0)
    );
}

#[test]
fn names_fall_back_on_host_and_id() {
    let mut gateway = enabled();
    Arc::make_mut(&mut gateway.document.services[0]).name = None;
    Arc::make_mut(&mut gateway.document.routes[0]).name = None;
    let plugin = gateway.plugin("prometheus", all_flags()).unwrap();
    log(&gateway, &plugin, 200, 10, |_| {});
    let line =
        format!("kong_http_requests_total{{service=\"orders.test\",route=\"{}\",code=\"200\"", id(0x61));
    assert!(scrape(&gateway).contains(&line));
}

#[test]
fn routes_without_a_service_are_counted_and_requests_without_a_route_are_not() {
    let mut gateway = enabled();
    let plugin = gateway.plugin("prometheus", all_flags()).unwrap();
    log(&gateway, &plugin, 404, 10, testing::no_route);
    assert!(!scrape(&gateway).contains("code=\"404\""));
    Arc::make_mut(&mut gateway.document.routes[0]).service = None;
    log(&gateway, &plugin, 503, 10, |_| {});
    assert!(scrape(&gateway).contains("kong_http_requests_total{service=\"\",route=\"all\",code=\"503\""));
}
