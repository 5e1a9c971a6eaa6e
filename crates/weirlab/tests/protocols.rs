//! HTTP/2, gRPC and WebSocket: the generator and the upstream, with gateways between them and at either end programs that
//! are not ours.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod foreign;

use crate::catalogue_bench::{Bench, Gateway, cases, program, target};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weirlab::load::{self, Outcome, Pace, Plan, Protocol, WarmUp};
use weirlab::scenario::{CasePlan, Scheme};
use weirlab::upstream::{self, Answers, Upstream};

const PLAIN: &str = "kong/plain-1";
const GRPC: &str = "weir/grpc-unary";
const WEBSOCKET: &str = "weir/websocket-echo";

/// The laboratory's own, with bodies and messages of 1 KiB.
fn upstream(calls: bool) -> Upstream {
    let answers = Answers::new("200", &[], vec![b'x'; 1024], false).unwrap();
    answering(if calls { answers.to_calls() } else { answers })
}

fn answering(answers: Answers) -> Upstream {
    let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
    upstream::start(upstream::Plan {
        listen: vec![anywhere],
        listen_tls: vec![anywhere],
        threads: 1,
        answers,
        delay: None,
        at_once: None,
        event_pause: None,
        stall: None,
        seed: 1,
    })
    .unwrap()
}

fn case(scenario: &str, scheme: Scheme) -> CasePlan {
    cases(scenario, scheme).remove(0)
}

/// A case's load, short and small, at an address.
fn plan(case: &CasePlan, address: SocketAddr) -> Plan {
    Plan {
        addresses: vec![address],
        host: address.to_string(),
        protocol: case.load.protocol,
        tls: case.is_tls(),
        connections: 3,
        threads: 1,
        cpus: Vec::new(),
        keep_alive: true,
        first_byte: false,
        pace: Pace::Closed,
        warm_up: WarmUp { at_least: Duration::ZERO, at_most: Duration::ZERO },
        duration: Duration::from_millis(500),
        timeout: Duration::from_secs(10),
        requests: case.load.requests.clone(),
        seed: 1,
        live: None,
    }
}

fn run(plan: &Plan) -> Outcome {
    load::run(plan, &mut |_| {}, &AtomicBool::new(false)).unwrap()
}

/// What a load came to, in short.
fn counts(outcome: &Outcome) -> String {
    let Outcome { answers, good, statuses, errors, connections_opened, .. } = outcome;
    format!("{good} of {answers} good, {statuses:?}, {errors:?}, {connections_opened:?} connections opened")
}

/// A target before an upstream; none where it is not installed.
fn started(name: &str, case: &CasePlan, upstream: SocketAddr) -> Option<(Gateway, Bench)> {
    let bench = Bench::over(vec![upstream]);
    let target = target(name);
    assert_eq!(target.lacks(&case.needs), None, "{name}");
    Some((bench.start(&target, case)?, bench))
}

/// Everything that comes back is right, in a closed loop and in an open one.
fn is_all_good(what: &str, plan: &Plan, status: u16) {
    for pace in [Pace::Closed, Pace::Poisson(200.0)] {
        let outcome = run(&Plan { pace, ..plan.clone() });
        let what = format!("{what}, {pace:?}");
        assert!(outcome.good > 10 && outcome.errors.is_empty(), "{what}: {}", counts(&outcome));
        assert_eq!(outcome.good, outcome.answers, "{what}");
        assert_eq!(outcome.statuses.get(&status), Some(&outcome.answers), "{what}");
        assert!(outcome.bytes > outcome.answers * 1024, "{what}: {} bytes", outcome.bytes);
        assert!(outcome.latencies.service.count() > 0, "{what}");
    }
}

fn through(scenario: &str, schemes: [Scheme; 2], names: &[&str], status: u16) {
    let upstream = upstream(scenario == GRPC);
    for scheme in schemes {
        let case = case(scenario, scheme);
        for name in names {
            let Some((gateway, _bench)) = started(name, &case, upstream.listen[0]) else { continue };
            is_all_good(&format!("{name} over {}", scheme.as_str()), &plan(&case, gateway.address()), status);
        }
    }
}

#[test]
fn http2_through_those_that_speak_it() {
    through(PLAIN, [Scheme::H2, Scheme::H2c], &["nginx", "haproxy", "envoy"], 200);
}

#[test]
fn calls_of_grpc_through_those_that_speak_it() {
    through(GRPC, [Scheme::H2, Scheme::H2c], &["nginx", "haproxy", "envoy"], 200);
}

#[test]
fn messages_of_websockets_through_those_that_pass_them() {
    through(WEBSOCKET, [Scheme::Https, Scheme::Http], &["haproxy"], 101);
}

#[test]
fn the_upstream_itself_speaks_all_of_it() {
    let (plain, calls) = (upstream(false), upstream(true));
    for (scenario, scheme, address, status) in [
        (PLAIN, Scheme::H2c, plain.listen[0], 200),
        (PLAIN, Scheme::H2, plain.listen_tls[0], 200),
        (GRPC, Scheme::H2c, calls.listen[0], 200),
        (GRPC, Scheme::H2, calls.listen_tls[0], 200),
        (WEBSOCKET, Scheme::Http, plain.listen[0], 101),
        (WEBSOCKET, Scheme::Https, plain.listen_tls[0], 101),
    ] {
        is_all_good(scenario, &plan(&case(scenario, scheme), address), status);
    }
}

#[test]
fn large_messages_fit_through_small_windows() {
    let calls = upstream(true);
    let mut plan = plan(&case(GRPC, Scheme::H2c), calls.listen[0]);
    // More than a window of the upstream's, which must say again and again that there is room.
    plan.requests.templates[0].body = "x".repeat(300_000);
    let outcome = run(&plan);
    assert!(outcome.good > 0 && outcome.errors.is_empty(), "{}", counts(&outcome));
}

#[test]
fn each_answer_is_of_the_request_that_was_drawn() {
    let upstream =
        answering(Answers::new("200", &[], b"{method} {path} {header:x-a}".to_vec(), false).unwrap());
    let case = case(PLAIN, Scheme::H2c);
    let Some((gateway, _bench)) = started("nginx", &case, upstream.listen[0]) else { return };
    let mut plan = plan(&case, gateway.address());
    let template = plan.requests.templates.remove(0);
    for (method, path, header) in
        [("GET", "/a", "1"), ("GET", "/a", "2"), ("PUT", "/b", "1"), ("GET", "/b", "1")]
    {
        let mut template = template.clone();
        template.method = method.to_owned();
        template.path = format!("/route-1{path}");
        template.headers = vec![("X-A".to_owned(), header.to_owned())];
        template.expect.body_length = None;
        template.expect.body_contains = Some(format!("{method} {path} {header}"));
        plan.requests.templates.push(template);
    }
    let outcome = run(&plan);
    assert!(outcome.good > 10 && outcome.errors.is_empty(), "{}", counts(&outcome));
}

/// An address at which connections are accepted and nothing is answered, and how many there are.
fn silence() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (counting, kept) = (count.clone(), Mutex::new(Vec::new()));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            counting.fetch_add(1, Ordering::SeqCst);
            kept.lock().unwrap().push(client);
        }
    });
    (address, count)
}

#[test]
fn each_connection_has_several_requests_in_flight_and_each_times_out_alone() {
    let (address, count) = silence();
    let case = case(PLAIN, Scheme::H2c);
    let Some((gateway, _bench)) = started("nginx", &case, address) else { return };
    let plan = Plan {
        protocol: Protocol::Http2 { streams: 5 },
        connections: 2,
        timeout: Duration::from_millis(700),
        duration: Duration::from_millis(1200),
        ..plan(&case, gateway.address())
    };
    let outcome = run(&plan);
    assert!(outcome.errors.keys().eq(["timeout"]), "{}", counts(&outcome));
    assert_eq!(outcome.connections_opened, Some(0), "{}", counts(&outcome));
    // Ten at once, and one more for each that timed out.
    let (asked, timed_out) = (count.load(Ordering::SeqCst) as u64, outcome.errors["timeout"]);
    assert!(timed_out >= 10 && (10..=10 + timed_out).contains(&asked), "{asked}, {}", counts(&outcome));
}

#[test]
fn a_connection_that_takes_no_more_requests_is_replaced_without_an_error() {
    let (upstream, case) = (upstream(false), case(PLAIN, Scheme::H2));
    let bench = Bench::over(vec![upstream.listen[0]]);
    let nginx = target("nginx");
    let launch = bench.prepare(&nginx, &program(&nginx).unwrap(), &case, &bench.document(&case));
    let conf = launch.folder.join("nginx.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, text.replacen("keepalive_requests 1000000000", "keepalive_requests 50", 1))
        .unwrap();
    let gateway = Gateway::start(launch, &case.case.scheme);
    let outcome = run(&plan(&case, gateway.address()));
    assert!(outcome.good > 100 && outcome.errors.is_empty(), "{}", counts(&outcome));
    assert!(outcome.connections_opened > Some(outcome.good / 60), "{}", counts(&outcome));
}

#[test]
fn who_does_not_speak_http2_is_an_error_of_tls() {
    let (upstream, spoken) = (upstream(false), case(PLAIN, Scheme::Https));
    let Some((gateway, _bench)) = started("nginx", &spoken, upstream.listen[0]) else { return };
    let outcome = run(&plan(&case(PLAIN, Scheme::H2), gateway.address()));
    assert!(outcome.answers == 0 && outcome.errors.keys().eq(["tls"]), "{}", counts(&outcome));
}

#[test]
fn a_call_that_fails_in_its_trailers_alone_is_an_error() {
    // The port is closed now.
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let case = case(GRPC, Scheme::H2c);
    let Some((gateway, _bench)) = started("envoy", &case, nowhere) else { return };
    let outcome = run(&plan(&case, gateway.address()));
    assert_eq!(outcome.statuses.get(&200), Some(&outcome.answers), "{}", counts(&outcome));
    assert!(outcome.good == 0 && outcome.errors["status"] == outcome.answers, "{}", counts(&outcome));
}

#[test]
fn an_answer_that_is_no_call_is_an_error() {
    let outcome = run(&plan(&case(GRPC, Scheme::H2c), upstream(false).listen[0]));
    assert!(outcome.good == 0 && outcome.answers > 0, "{}", counts(&outcome));
    assert_eq!(outcome.errors.get("status"), Some(&outcome.answers), "{}", counts(&outcome));
}

#[test]
fn who_stays_with_http_is_an_error_of_status() {
    let (upstream, spoken) = (upstream(false), case(PLAIN, Scheme::Http));
    let Some((gateway, _bench)) = started("nginx", &spoken, upstream.listen[0]) else { return };
    let mut plan = plan(&case(WEBSOCKET, Scheme::Http), gateway.address());
    plan.requests.templates[0].path = "/route-1/".to_owned();
    let outcome = run(&plan);
    assert!(outcome.answers == 0 && outcome.errors.keys().eq(["status"]), "{}", counts(&outcome));
}

#[test]
fn single_exchanges_say_what_came() {
    let (plain, calls) = (upstream(false), upstream(true));
    let send = |scenario, scheme, address| load::send_one(&plan(&case(scenario, scheme), address)).unwrap();
    let got = send(PLAIN, Scheme::H2, plain.listen_tls[0]);
    assert_eq!((got.status, got.body.len(), got.grpc_status), (200, 1024, None));
    assert!(got.headers.contains(&"content-type".to_owned()), "{:?}", got.headers);
    let got = send(GRPC, Scheme::H2c, calls.listen[0]);
    assert_eq!((got.status, got.body.len(), got.grpc_status.as_deref()), (200, 1029, Some("0")));
    let got = send(WEBSOCKET, Scheme::Http, plain.listen[0]);
    assert_eq!((got.status, got.body.len()), (101, 1024));
    let refused = load::send_one(&plan(&case(PLAIN, Scheme::H2), plain.listen[0])).unwrap_err();
    assert!(refused.contains("handshake"), "{refused}");
}

#[test]
fn a_session_checks_and_measures_what_is_spoken() {
    for (scenario, scheme, name, got) in [
        (GRPC, "h2c", "nginx", "200, grpc-status 0, the upstream's body"),
        (WEBSOCKET, "http", "haproxy", "101, the upstream's body"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let ran = std::process::Command::new(env!("CARGO_BIN_EXE_weirlab"))
            .current_dir(crate::catalogue_bench::root())
            .args([
                "run",
                scenario,
                "--scheme",
                scheme,
                "--targets",
                &format!("{name},caddy"),
                "--rounds",
                "1",
            ])
            .arg("--out")
            .arg(out.path())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&ran.stdout);
        assert!(printed.contains("caddy: needs "), "{printed}");
        let folder = std::fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
        let data = std::fs::read_to_string(folder.join("data.json")).unwrap();
        let data: serde_json::Value = serde_json::from_str(&data).unwrap();
        let parity = &data["cells"][0]["parity"][0];
        assert_eq!(
            (parity["got"].as_str(), parity["agrees"].as_bool()),
            (Some(got), Some(true)),
            "{printed}"
        );
        assert!(data["cells"][0]["blocks"][0]["good"].as_u64() > Some(0), "{printed}");
    }
}
