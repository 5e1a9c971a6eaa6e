//! Every target that can be had here really runs, and answers as the scenarios ask.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::catalogue_bench::{Bench, UPSTREAM_SAYS, cases, target};
use weirlab::scenario::Scheme;

fn passes_parity(scenario: &str, scheme: Scheme, name: &str) {
    // The points of a sweep differ in the load alone.
    for case in cases(scenario, scheme).iter().take(1) {
        let bench = Bench::new(case.upstream.listeners);
        let Some(gateway) = bench.start(&target(name), case) else { return };
        for check in &case.parity {
            let reply = gateway.ask(check);
            assert_eq!(reply.status, check.status, "{name} {}: {reply:?}", check.path);
            assert!(
                !check.upstream_body || reply.body.contains(UPSTREAM_SAYS),
                "{name} {}: {reply:?}",
                check.path
            );
            for header in &check.with_headers {
                let line = format!("\r\n{}:", header.to_lowercase());
                assert!(reply.head.contains(&line), "{name} {} lacks {header}: {reply:?}", check.path);
            }
        }
    }
}

#[test]
fn a_plain_route_is_served_over_http() {
    for name in ["direct", "nginx", "weir", "haproxy", "envoy", "caddy", "traefik"] {
        passes_parity("kong/plain-1", Scheme::Http, name);
    }
}

#[test]
fn a_plain_route_is_served_over_https() {
    for name in ["nginx", "weir", "haproxy", "envoy", "caddy", "traefik"] {
        passes_parity("kong/plain-1", Scheme::Https, name);
    }
}

/// Routes with and without a prefix that is cut off, with and without a path of their service, on several upstreams.
const ROUTES: &str = r#"
_format_version: "3.0"
upstreams:
- name: two
  targets: [{target: "{{ upstreams[0] }}", weight: 30}, {target: "{{ upstreams[1] }}", weight: 30}]
services:
- {name: root, url: "http://{{ upstream }}", routes: [{name: cut, paths: [/cut, /other]}, {name: all, paths: [/]}]}
- {name: based, url: "http://{{ upstream }}/base", routes: [{name: deep, paths: [/deep/er/]}]}
- {name: kept, host: two, port: 80, routes: [{name: keep, paths: [/keep], strip_path: false}]}
"#;

/// A route that the gateway answers itself, as the last of these.
const ENDED: &str = r#"- name: ended
  url: http://{{ upstream }}
  routes:
  - name: end
    paths: [/end]
    plugins: [{name: request-termination, config: {status_code: 418, body: short, content_type: text/plain}}]
"#;

#[test]
fn every_target_sends_the_same_paths_to_the_upstream() {
    let targets =
        ["weir", "nginx", "haproxy", "envoy", "caddy"].map(|name| (name, format!("{ROUTES}{ENDED}")));
    // It makes no responses of its own.
    let targets = targets.into_iter().chain([("traefik", ROUTES.to_owned())]);
    targets.for_each(|(name, document)| sends_the_same_paths(name, &document));
}

fn sends_the_same_paths(name: &str, document: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kong.yml"), document).unwrap();
    let manifest = "title = 't'\nsource = 's'\n[upstream]\nlisteners = 2\n\
                    [load]\nconnections = 1\nthreads = 1\n[[load.request]]\npath = '/'\n";
    std::fs::write(folder.path().join("scenario.toml"), manifest).unwrap();
    let case = &cases(folder.path().to_str().unwrap(), Scheme::Http)[0];
    let bench = Bench::new(2);
    assert_eq!(target(name).lacks(&case.needs), None);
    let Some(gateway) = bench.start(&target(name), case) else { return };
    let expected = [
        ("/cut/a?q=1", "/a?q=1"),
        ("/cut", "/"),
        ("/other/a/b", "/a/b"),
        ("/deep/er/x?q=1", "/base/x?q=1"),
        ("/keep/x", "/keep/x"),
        ("/keep", "/keep"),
        ("/elsewhere", "/elsewhere"),
    ];
    for (asked, seen) in expected {
        let reply = gateway.get(asked);
        assert_eq!(reply.body, format!("{UPSTREAM_SAYS}{seen}\n"), "{name} {asked}: {reply:?}");
    }
    if document.ends_with(ENDED) {
        let ended = gateway.get("/end/x");
        assert_eq!((ended.status, ended.body.as_str()), (418, "short"), "{name}: {ended:?}");
    }
}

/// What Weir claims, it does: plugins, limits, credentials.
#[test]
fn weir_passes_the_parity_checks_of_what_it_claims() {
    for scenario in [
        "kong/rate-limiting-1",
        "kong/rate-limiting-key-auth-100",
        "kong/rate-limiting-basic-auth-100",
        "apisix/limit-count-prometheus",
        "kong-perf/key-auth",
        "kong-perf/balancer-10",
        "kong-perf/plugin-iterator-irrelevant",
    ] {
        passes_parity(scenario, Scheme::Http, "weir");
    }
}

#[test]
fn rivals_pass_the_parity_checks_of_what_they_claim() {
    for name in ["nginx", "haproxy", "envoy", "caddy"] {
        for scenario in ["apisix/no-plugins", "kong-perf/10x10", "kong-perf/plugin-iterator-global"] {
            passes_parity(scenario, Scheme::Http, name);
        }
    }
    passes_parity("apisix/no-plugins", Scheme::Http, "traefik");
    passes_parity("kong-perf/10x10", Scheme::Http, "traefik");
}

/// Those that can reload do so while they serve, and still serve afterwards.
#[test]
fn targets_reload_in_their_own_way() {
    let case = &cases("kong/plain-1", Scheme::Http)[0];
    for name in ["weir", "nginx", "haproxy", "caddy"] {
        let bench = Bench::new(1);
        let Some(mut gateway) = bench.start(&target(name), case) else { continue };
        gateway.reload();
        let reply = gateway.get("/route-1/after");
        assert_eq!(reply.body, format!("{UPSTREAM_SAYS}/after\n"), "{name}: {reply:?}");
        assert!(gateway.is_alive(), "{name} ended: {}", gateway.log());
    }
}
