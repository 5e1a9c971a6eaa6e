//! Reloads and drains while clients are there: nothing in flight is touched, nothing is lost.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, PATIENCE, Peer, Upstream, document, eventually, service, weir};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const LIMITED: &str = "plugins: [{name: rate-limiting, config: {month: 2, limit_by: service}}]";

/// An upstream that answers `/held` when told to, and the rest at once.
fn upstream() -> (Upstream, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (asked, was_asked) = mpsc::channel();
    let (answer, may_answer) = mpsc::channel::<()>();
    let may_answer = Mutex::new(may_answer);
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            if request.head.start.contains("/held") {
                let _ = asked.send(());
                let _ = may_answer.lock().unwrap().recv();
            }
            peer.send(OK);
        }
    });
    (upstream, was_asked, answer)
}

fn get(client: &mut Peer, path: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).response().status
}

#[test]
fn a_reload_touches_neither_requests_in_flight_nor_idle_connections_nor_counters() {
    let (upstream, was_asked, answer) = upstream();
    let address = upstream.address;
    let before =
        [service("/held", address, "", "strip_path: false"), service("/limited", address, "", LIMITED)];
    let gateway = Gateway::start(&document(&before, ""));
    let mut idle = gateway.connect();
    assert_eq!(get(&mut idle, "/limited"), 200);
    let mut busy = gateway.connect();
    busy.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    was_asked.recv_timeout(PATIENCE).unwrap();
    // The route of the request in flight goes, and another comes.
    let after = [service("/new", address, "", ""), service("/limited", address, "", LIMITED)];
    let connections = upstream.connections();
    let output = gateway.reload(&document(&after, ""));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    answer.send(()).unwrap();
    assert_eq!(busy.response().status, 200);
    assert_eq!(get(&mut busy, "/held"), 404);
    assert_eq!(get(&mut idle, "/new"), 200);
    assert_eq!(get(&mut idle, "/limited"), 200);
    assert_eq!(get(&mut idle, "/limited"), 429, "the count before the reload is kept");
    assert_eq!(upstream.connections(), connections, "connections to what did not change are kept");
}

#[test]
fn a_bad_file_changes_nothing() {
    let (upstream, ..) = upstream();
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    for (bad, place) in [
        ("_format_version: \"3.0\"\nservices:\n- {name: s, url: \"http://a\", retries: -1}\n", "3:"),
        ("_format_version: \"3.0\"\nroutes:\n- {name: r, paths: [\"~/(\"]}\n", "kong.yml:"),
        ("_format_version: \"3.0\"\nservices: [\n", "kong.yml:"),
        ("_format_version: \"3.0\"\nplugins:\n- {name: rate-limiting, config: {minute: 0}}\n", "3:"),
    ] {
        let output = gateway.reload(bad);
        assert_eq!(output.status.code(), Some(1), "{bad}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("kong.yml:") && said.contains(place), "{bad}: {said}");
        assert_eq!(gateway.get("/").status, 200, "{bad}");
    }
    gateway.signal(Signal::HUP);
    eventually("the refusal is logged", || gateway.log().contains("reload refused"));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn no_request_is_lost_over_fifty_reloads() {
    let (upstream, ..) = upstream();
    let address = upstream.address;
    let version = |version: usize| {
        let mark = format!(
            "plugins: [{{name: correlation-id, config: {{header_name: X-V{version}, echo_downstream: true}}}}]"
        );
        document(&[service("/", address, "", &mark)], "")
    };
    // A connection must not end by having carried enough requests.
    let gateway =
        Gateway::builder(&version(0)).set("workers", "2").set("keepalive_requests", "1000000000").start();
    let (done, served, fresh) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for kept in [true, true, true, false] {
            let (gateway, done, served, fresh) = (&gateway, &done, &served, &fresh);
            scope.spawn(move || {
                let mut client = gateway.connect();
                while !done.load(Ordering::SeqCst) {
                    if !kept {
                        client = gateway.connect();
                    }
                    let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
                    assert_eq!(response.status, 200);
                    let marks =
                        response.head.fields.iter().filter(|(name, _)| name.starts_with("X-V")).count();
                    assert_eq!(marks, 1, "a response of one version");
                    fresh.fetch_add(usize::from(response.header("x-v50").is_some()), Ordering::SeqCst);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for number in 1..=50 {
            let served_before = served.load(Ordering::SeqCst);
            let output = gateway.reload(&version(number));
            if !output.status.success() {
                done.store(true, Ordering::SeqCst);
                panic!("{output:?}");
            }
            eventually("requests are served between reloads", || {
                served.load(Ordering::SeqCst) > served_before + 4
            });
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(fresh.into_inner() > 0, "the last reload came into force");
}

#[test]
fn a_drain_tells_clients_that_their_connection_ends() {
    let (upstream, was_asked, answer) = upstream();
    let services = [service("/", upstream.address, "", "strip_path: false")];
    let mut gateway = Gateway::start(&document(&services, ""));
    let mut busy = gateway.connect();
    busy.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    was_asked.recv_timeout(PATIENCE).unwrap();
    let mut idle = gateway.connect();
    assert_eq!(get(&mut idle, "/"), 200);
    gateway.signal(Signal::TERM);
    assert!(idle.is_closed());
    answer.send(()).unwrap();
    let response = busy.response();
    assert_eq!((response.status, response.header("connection")), (200, Some("close")));
    assert!(busy.is_closed());
    assert_eq!(gateway.exit().code(), Some(0));
}

const GRPC_CHECKS: &str = "healthchecks: {active: {type: grpc}}";

#[test]
fn fields_without_effect_are_named_once_for_as_long_as_they_are_declared() {
    let upstream = |name: &str, fields: &str| {
        format!(
            "_format_version: \"3.0\"\nservices:\n- {{host: {name}}}\nupstreams:\n- {{name: {name}, {fields}}}\n"
        )
    };
    let gateway = Gateway::start(&upstream("a", GRPC_CHECKS));
    let named = |name: &str| {
        let line = "upstreams[0].healthchecks.active.type: without effect in this version: targets are probed as by tcp";
        format!("kong.yml:5:43: {line} (upstream `{name}`)")
    };
    assert!(gateway.log().contains(&named("a")), "{}", gateway.log());
    let warnings = |configuration: &str| {
        let output = gateway.reload(configuration);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let warns = |configuration: &str| warnings(configuration).contains("without effect in this version");
    let further_down = upstream("a", GRPC_CHECKS).replace("services:", "\nservices:");
    assert!(!warns(&further_down));
    let said = warnings(&upstream("b", GRPC_CHECKS));
    assert!(said.contains(&named("b")), "{said}");
    assert!(!warns(&upstream("b", "hash_on: none")));
    assert!(warns(&upstream("b", GRPC_CHECKS)));
}

#[test]
fn many_fields_without_effect_are_counted_in_the_log_and_listed_by_check() {
    let route = |index: usize| format!("- {{name: r-{index}, paths: [/{index}], path_handling: v1}}\n");
    let routes: String = (1..=25).map(route).collect();
    let gateway = Gateway::start(&format!("_format_version: \"3.0\"\nroutes:\n{routes}"));
    let log = gateway.log();
    let named =
        |text: &str| text.lines().filter(|line| line.contains("path_handling: without effect")).count();
    assert_eq!(named(&log), 20, "{log}");
    let file = gateway.file().display().to_string();
    let more = format!("and 5 more fields without effect in this version: `weir check {file}` lists all");
    assert!(log.contains(&more), "{log}");
    let check = weir().arg("check").arg(gateway.file()).output().unwrap();
    assert_eq!(named(&String::from_utf8(check.stderr).unwrap()), 25);
}
