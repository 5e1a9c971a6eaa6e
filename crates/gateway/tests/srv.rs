//! Services in the DNS: their priorities, weights, ports and names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Identity, NameServer, Service, TlsUpstream, Upstream};
use serde_json::json;
use std::collections::BTreeMap;

const NAME: &str = "svc.test";

fn answer(number: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}")
}

fn record(upstream: &Upstream, priority: u16, weight: u16, host: &'static str) -> Service {
    Service { name: NAME, priority, weight, port: upstream.address.port(), host }
}

/// A service whose host is a name or an upstream of that one target.
fn gateway(names: &NameServer, document: &str) -> Builder {
    Gateway::builder(&format!("_format_version: \"3.0\"\n{document}"))
        .set("dns_resolver", &names.address.to_string())
        .set("dns_hostsfile", "/dev/null")
}

const OF_HOST: &str = "services: [{name: s, host: svc.test, port: 1, routes: [{name: r, paths: [/]}]}]\n";
const OF_TARGET: &str = "services: [{name: s, host: u, routes: [{name: r, paths: [/]}]}]\n\
                         upstreams: [{name: u, targets: [{target: \"svc.test:1\"}], FIELDS}]\n";

#[test]
fn requests_are_spread_by_weight_over_the_services_of_the_first_priority() {
    let upstreams: Vec<_> = (0..3).map(|number| Upstream::answering(&answer(number))).collect();
    let names = NameServer::with_services(
        ".test",
        vec![
            record(&upstreams[0], 1, 30, "one.test"),
            record(&upstreams[1], 1, 10, "two.test"),
            record(&upstreams[2], 2, 90, "far.test"),
        ],
    );
    for document in [OF_HOST.to_owned(), OF_TARGET.replace(", FIELDS", "")] {
        // With connections that are kept, and without.
        for pool in ["512", "0"] {
            let gateway = gateway(&names, &document).set("upstream_keepalive_pool_size", pool).start();
            let mut counts = BTreeMap::new();
            for _ in 0..400 {
                *counts.entry(gateway.get("/").text().to_owned()).or_insert(0) += 1;
            }
            // 300 and 100 are expected; chance is off by 52 once in a billion.
            assert!((248..=352).contains(&counts["0"]), "{document} {pool}: {counts:?}");
            assert_eq!(counts["0"] + counts["1"], 400, "{counts:?}");
        }
    }
}

#[test]
fn health_shows_the_names_and_weights_of_services() {
    let upstream = Upstream::answering(&answer(0));
    let names = NameServer::with_services(
        ".test",
        vec![record(&upstream, 1, 30, "one.test"), record(&upstream, 1, 0, "two.test")],
    );
    let gateway = gateway(&names, &OF_TARGET.replace(", FIELDS", "")).start();
    let health = gateway.admin("/upstreams/u/health").json();
    let port = upstream.address.port();
    let data = &health["data"][0]["data"];
    assert_eq!(data["dns"], "SRV");
    assert_eq!(
        data["addresses"],
        json!([
            { "ip": "one.test", "port": port, "weight": 30, "health": "HEALTHCHECKS_OFF" },
            { "ip": "two.test", "port": port, "weight": 1, "health": "HEALTHCHECKS_OFF" },
        ])
    );
}

#[test]
fn the_name_of_a_service_is_the_host_that_is_asked_for() {
    let upstream = Upstream::echoing();
    let port = upstream.address.port();
    let names = NameServer::with_services(".test", vec![record(&upstream, 1, 1, "one.test")]);
    for (fields, host) in [
        ("use_srv_name: true", format!("one.test:{port}")),
        ("use_srv_name: false", "svc.test:1".to_owned()),
        ("use_srv_name: true, host_header: own.test", "own.test".to_owned()),
    ] {
        let gateway = gateway(&names, &OF_TARGET.replace("FIELDS", fields)).start();
        // On a new connection and on one that was kept.
        for _ in 0..2 {
            let told = gateway.get("/");
            let line = format!("Host: {host}");
            assert!(told.text().lines().any(|told| told == line), "{fields}: {}", told.text());
        }
    }
}

#[test]
fn the_name_of_a_service_is_asked_for_in_handshakes() {
    let identity = Identity::new("one.test");
    let upstream = TlsUpstream::start(&identity, &["-www"]);
    let names = NameServer::with_services(
        ".test",
        vec![Service { name: NAME, priority: 1, weight: 1, port: upstream.address.port(), host: "one.test" }],
    );
    let document = OF_TARGET
        .replace("FIELDS", "use_srv_name: true")
        .replace("host: u,", "host: u, protocol: https, tls_verify: true, ");
    let gateway = gateway(&names, &document)
        .set("lua_ssl_trusted_certificate", &identity.cert().display().to_string())
        .start();
    assert_eq!(gateway.get("/").status, 200, "{}", gateway.log());
}

#[test]
fn the_status_tells_what_the_resolver_has_done() {
    let upstream = Upstream::answering(&answer(0));
    let names = NameServer::with_services(".test", vec![record(&upstream, 1, 1, "one.test")]);
    let gateway = gateway(&names, OF_HOST).set("upstream_keepalive_pool_size", "0").start();
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    for status in [gateway.status("/status/dns"), gateway.admin("/status/dns")] {
        let status = status.json();
        assert_eq!(status["worker"], json!({ "id": 0, "count": 1 }));
        let svc = &status["stats"]["svc.test|SRV"];
        let counts = ["runs", "miss", "hit_lru", "query", "query_succ"].map(|name| svc[name].as_u64());
        assert_eq!(counts, [Some(3), Some(1), Some(2), Some(1), Some(1)], "{status}");
        assert!(svc["query_last_time"].is_u64(), "{status}");
    }
}
