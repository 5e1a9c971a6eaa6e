use super::*;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::Uuid;
use weir_plugin::testing::Gateway;
use weir_plugin::{ConsumerIndex, Credential};

fn lines(config: Json, consumer: bool) -> Vec<String> {
    let gateway = Gateway::new(PLUGINS);
    let mut exchange = gateway.exchange("GET /");
    // Nothing took time, however slow the machine is.
    exchange.timing.end = Some(exchange.timing.start);
    exchange.response.status = 404;
    if consumer {
        exchange.authenticate(ConsumerIndex(0), Credential { id: Uuid::nil(), identifier: None });
    }
    let scope = Scope::new(Config::from_value(&config).unwrap());
    String::from_utf8(scope.lines(&exchange)).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn everything_is_sent_by_default() {
    let expected = [
        "kong.service.orders.request.count:1|c",
        "kong.service.orders.latency:0|ms",
        "kong.service.orders.request.size:0|c",
        "kong.service.orders.status.404:1|c",
        "kong.service.orders.response.size:0|c",
        "kong.service.orders.user.uniques:alice-custom|s",
        "kong.service.orders.user.alice-custom.request.count:1|c",
        "kong.service.orders.kong_latency:0|ms",
        "kong.service.orders.user.alice-custom.status.404:1|c",
        "kong.service.orders.workspace.0dc6f45b-8f8d-40d2-a504-473544ee190b.status.404:1|c",
        "kong.route.00000000-0000-0000-0000-000000000061.user.alice-custom.status.404:1|c",
    ];
    assert_eq!(lines(json!({}), true), expected);
    let anonymous: Vec<_> = expected.into_iter().filter(|line| !line.contains("user")).collect();
    assert_eq!(lines(json!({}), false), anonymous);
}

#[test]
fn names_types_and_rates_are_those_of_the_metric() {
    let config = json!({ "prefix": "p", "service_identifier_default": "service_host", "metrics": [
        { "name": "request_count", "stat_type": "counter", "sample_rate": 0.5, "service_identifier": "service_id" },
        { "name": "response_size", "stat_type": "histogram" },
        { "name": "unique_users", "stat_type": "set", "consumer_identifier": "username" },
        { "name": "status_count_per_workspace", "stat_type": "counter", "sample_rate": 2,
          "workspace_identifier": "workspace_name" },
        { "name": "shdict_usage", "stat_type": "gauge", "sample_rate": 1 },
        { "name": "upstream_latency", "stat_type": "timer" },
    ] });
    let expected = [
        "p.service.00000000-0000-0000-0000-000000000051.request.count:1|c|@0.5",
        "p.service.orders_test.response.size:0|h",
        "p.service.orders_test.user.uniques:alice|s",
        "p.service.orders_test.workspace.default.status.404:1|c|@2",
    ];
    assert_eq!(lines(config, true), expected);
}

#[test]
fn tags_stand_where_each_style_has_them() {
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().replace('.', "_");
    let tags = |between: &str| {
        let workspace = "0dc6f45b-8f8d-40d2-a504-473544ee190b";
        [
            ("service", "orders"),
            ("route", "all"),
            ("workspace", workspace),
            ("node", &*node),
            ("status", "404"),
        ]
        .map(|(name, value)| format!("{name}{between}{value}"))
        .join(",")
    };
    for (style, expected) in [
        ("dogstatsd", format!("kong.request.count:1|c|#{}", tags(":"))),
        ("influxdb", format!("kong.request.count,{}:1|c", tags("="))),
        ("librato", format!("kong.request.count#{}:1|c", tags("="))),
        ("signalfx", format!("kong.request.count[{}]:1|c", tags("="))),
    ] {
        let config = json!({ "tag_style": style, "hostname_in_prefix": true });
        let lines = lines(config, false);
        assert_eq!(lines[0], expected);
        assert!(!lines.iter().any(|line| line.contains(".status.")), "{lines:?}");
    }
}

#[test]
fn lines_share_a_datagram_up_to_its_size() {
    let of = |most| datagrams(b"aa:1\nbb:2\ncc:3\n", most).map(<[u8]>::to_vec).collect::<Vec<_>>();
    assert_eq!(of(0), [b"aa:1", b"bb:2", b"cc:3"]);
    assert_eq!(of(9), [&b"aa:1\nbb:2"[..], b"cc:3"]);
    assert_eq!(of(65507), [&b"aa:1\nbb:2\ncc:3"[..]]);
}

#[test]
fn the_room_of_stores_is_sent_once_a_minute() {
    let gateway = Gateway::new(PLUGINS);
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().replace('.', "_");
    for (config, place) in [
        (json!({}), format!("kong.node.{node}.shdict.proxy_cache")),
        (json!({ "hostname_in_prefix": true, "prefix": "p" }), format!("p.node.{node}.shdict.proxy_cache")),
    ] {
        let config = Config::from_value(&config).unwrap();
        let usage = config.metrics.iter().find(|metric| metric.name == "shdict_usage").unwrap();
        let dictionaries = Dictionaries::new(usage, &gateway.retained);
        let scope = Scope::new(config);
        let mut lines = Vec::new();
        dictionaries.write(&mut lines, &scope);
        dictionaries.write(&mut lines, &scope);
        let lines = String::from_utf8(lines).unwrap();
        let (_, most) = crate::proxy_cache::usage(&gateway.retained)();
        assert_eq!(lines, format!("{place}.free_space:{most}|g\n{place}.capacity:{most}|g\n"));
    }
}
