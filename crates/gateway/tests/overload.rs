//! What happens when too much comes: the excess is refused at once, the rest is served, and metrics count what acted.

use crate::harness::{Gateway, Identity, Message, Peer, Upstream, document, eventually, one_route, service};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const FAILED: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// The value of a metric on the status listener.
pub(crate) fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    let text = gateway.status("/metrics");
    let line = text.text().lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
    line.and_then(|value| value.trim().parse().ok())
}

fn assert_shed(response: &Message, message: &str) {
    assert_eq!((response.status, response.header("Retry-After")), (503, Some("1")), "{}", response.text());
    assert!(response.text().contains(message), "{}", response.text());
}

/// Sends a request that the upstream holds, and returns its client and what lets it go.
pub(crate) fn hold(
    gateway: &Gateway,
    path: &str,
    asked: &mpsc::Receiver<mpsc::Sender<()>>,
) -> (Peer, mpsc::Sender<()>) {
    let mut client = gateway.connect();
    client.send(get(path));
    (client, asked.recv().unwrap())
}

pub(crate) fn let_go(held: Vec<(Peer, mpsc::Sender<()>)>) {
    for (mut client, go) in held {
        go.send(()).unwrap();
        assert_eq!(client.response().status, 200);
    }
}

/// The upstream entity `orders` of these targets, with these tags.
pub(crate) fn upstream_entity(targets: &[SocketAddr], tags: &str) -> String {
    let targets: Vec<_> = targets.iter().map(|target| format!("{{target: \"{target}\"}}")).collect();
    format!("upstreams:\n- {{name: orders, tags: [{tags}], targets: [{}]}}\n", targets.join(", "))
}

/// A document of that upstream entity and a service that leads to it.
fn balanced(targets: &[SocketAddr], tags: &str, service_fields: &str) -> String {
    document(&[service("/", "orders", service_fields, "")], &upstream_entity(targets, tags))
}

#[test]
fn a_full_upstream_is_not_asked_and_the_node_stays_reachable() {
    let (upstream, asked) = Upstream::holding(OK);
    let limited = service("/limited", upstream.address, "tags: [\"weir-max-requests:2\"]", "");
    let gateway = Gateway::start(&document(&[limited, service("/free", upstream.address, "", "")], ""));
    let held: Vec<_> = (0..2).map(|_| hold(&gateway, "/limited", &asked)).collect();
    for _ in 0..3 {
        assert_shed(&gateway.get("/limited"), "The upstream has too many requests");
    }
    let (mut free, go) = hold(&gateway, "/free", &asked);
    go.send(()).unwrap();
    assert_eq!(free.response().status, 200, "another service is served");
    assert_eq!(gateway.admin("/status").status, 200);
    assert_eq!(gateway.status("/status/ready").status, 200);
    let labels = format!("upstream=\"{} of s-limited\"", upstream.address);
    let counted = |name: &str, more: &str| metric(&gateway, &format!("{name}{{{labels}{more}}}"));
    assert_eq!(counted("weir_upstream_shed_total", ",reason=\"upstream\""), Some(3.0));
    assert_eq!(
        (counted("weir_upstream_limit", ""), counted("weir_upstream_in_flight", "")),
        (Some(2.0), Some(2.0))
    );
    let_go(held);
    eventually("nothing is in flight", || counted("weir_upstream_in_flight", "") == Some(0.0));
    let_go(vec![hold(&gateway, "/limited", &asked)]);
}

#[test]
fn each_target_has_as_many_requests_as_it_may_have_and_others_wait() {
    let (upstream, asked) = Upstream::holding(OK);
    let (other, asked_other) = Upstream::holding(OK);
    let tags = "\"weir-target-max-requests:1\", \"weir-max-waiting:1\"";
    let gateway =
        Gateway::builder(&balanced(&[upstream.address, other.address], tags, "")).set("workers", "2").start();
    let mut clients: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| {
        client.send(get("/"));
    });
    let (go, go_other) = (asked.recv().unwrap(), asked_other.recv().unwrap());
    let mut waiting = gateway.connect();
    waiting.send(get("/"));
    eventually("it waits", || metric(&gateway, "weir_upstream_waiting{upstream=\"orders\"}") == Some(1.0));
    assert_shed(&gateway.get("/"), "The upstream has too many requests");
    go.send(()).unwrap();
    asked.recv().unwrap().send(()).unwrap();
    assert_eq!(waiting.response().status, 200, "it was sent when a target became free");
    go_other.send(()).unwrap();
    clients.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    assert_eq!(metric(&gateway, "weir_upstream_waiting{upstream=\"orders\"}"), Some(0.0));
}

#[test]
fn a_client_that_leaves_or_waits_too_long_gives_its_place_back() {
    let (upstream, asked) = Upstream::holding(OK);
    let services =
        [service("/", "orders", "connect_timeout: 300", ""), service("/patient", "orders", "", "")];
    let upstreams = upstream_entity(&[upstream.address], "\"weir-max-requests:1\", \"weir-max-waiting:1\"");
    let gateway = Gateway::start(&document(&services, &upstreams));
    let waiting = || metric(&gateway, "weir_upstream_waiting{upstream=\"orders\"}");
    let held = hold(&gateway, "/", &asked);
    assert_shed(&gateway.get("/"), "The upstream has too many requests");
    assert_eq!(
        metric(&gateway, "weir_upstream_shed_total{upstream=\"orders\",reason=\"waited\"}"),
        Some(1.0)
    );
    let mut leaves = gateway.connect();
    leaves.send(get("/patient"));
    eventually("it waits", || waiting() == Some(1.0));
    leaves.reset();
    eventually("no request waits", || waiting() == Some(0.0));
    let_go(vec![held]);
    let_go(vec![hold(&gateway, "/", &asked)]);
}

#[test]
fn a_worker_with_too_many_requests_sheds_low_priorities_first() {
    let (upstream, asked) = Upstream::holding(OK);
    let services = [
        service("/low", upstream.address, "", "tags: [weir-priority-low]"),
        service("/normal", upstream.address, "", ""),
        service("/high", upstream.address, "", "tags: [weir-priority-high]"),
    ];
    let gateway = Gateway::builder(&document(&services, ""))
        .set("workers", "1")
        .set("worker_requests_in_flight", "5")
        .start();
    let message = "The gateway has too many requests";
    let mut held: Vec<_> = (0..4).map(|_| hold(&gateway, "/low", &asked)).collect();
    assert_shed(&gateway.get("/low"), message);
    held.push(hold(&gateway, "/normal", &asked));
    assert_shed(&gateway.get("/normal"), message);
    held.push(hold(&gateway, "/high", &asked));
    assert_shed(&gateway.get("/high"), message);
    assert_eq!(gateway.acted("requests_in_flight"), 3);
    assert_eq!((gateway.admin("/status").status, gateway.status("/status/ready").status), (200, 200));
    let_go(held);
    let_go(vec![hold(&gateway, "/low", &asked)]);
}

#[test]
fn an_upgraded_connection_does_not_count() {
    let upstream = Upstream::start(|mut peer, _| {
        peer.request();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        peer.rest();
    });
    let tags = "tags: [\"weir-max-requests:1\"]";
    let gateway = Gateway::builder(&document(&[service("/", upstream.address, tags, "")], ""))
        .set("workers", "1")
        .set("worker_requests_in_flight", "1")
        .start();
    let mut tunnels = Vec::new();
    for _ in 0..3 {
        let mut client = gateway.connect();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        let head = client.head().unwrap();
        assert!(head.start.contains(" 101 "), "{}", head.start);
        tunnels.push(client);
    }
}

#[test]
fn a_client_address_has_as_many_connections_as_it_may_have() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::builder(&one_route(upstream.address)).set("max_connections_per_ip", "3").start();
    let mut held: Vec<_> = (0..3).map(|_| gateway.connect()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.send(get("/")).response().status, 200));
    let mut further = gateway.connect();
    assert!(further.is_closed());
    eventually("it is counted", || gateway.acted("connections_per_ip") == 1);
    held.pop();
    eventually("another may connect", || {
        let mut client = gateway.connect();
        let _ = client.try_send(get("/").as_bytes());
        !client.is_closed()
    });
    let trusted = Gateway::builder(&one_route(upstream.address))
        .set("max_connections_per_ip", "1")
        .set("trusted_ips", "127.0.0.1")
        .start();
    let mut clients: Vec<_> = (0..3).map(|_| trusted.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.send(get("/")).response().status, 200));
}

#[test]
fn above_its_memory_the_node_sheds_and_stays_reachable() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::builder(&one_route(upstream.address)).set("memory_limit", "1m").start();
    eventually("requests are shed", || gateway.get("/").status == 503);
    let response = gateway.get("/");
    assert_shed(&response, "The gateway has no memory for the request");
    assert_eq!(response.header("Connection"), Some("close"));
    assert!(gateway.acted("memory") >= 1);
    assert_eq!(gateway.admin("/status").status, 200);
    let ready = gateway.status("/status/ready");
    assert_eq!(ready.status, 503, "balancers send requests to others");
    assert!(ready.text().contains("memory_limit"), "{}", ready.text());
    assert!(gateway.log().contains("memory_limit"));
    let roomy = Gateway::builder(&one_route(upstream.address)).set("memory_limit", "8g").start();
    assert_eq!((roomy.get("/").status, roomy.status("/status/ready").status), (200, 200));
}

#[test]
fn a_body_that_drips_in_is_given_up() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::builder(&one_route(upstream.address))
        .set("client_body_timeout", "1s")
        .set("client_body_min_rate", "1000000")
        .start();
    let mut client = gateway.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let mut sender = client.socket().try_clone().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let (is_over, drips) = (ended.clone(), std::time::Duration::from_millis(100));
    let dripping = std::thread::spawn(move || {
        while !is_over.load(SeqCst) && sender.write_all(b"x").is_ok() {
            std::thread::park_timeout(drips);
        }
    });
    assert_eq!(client.response().status, 408);
    ended.store(true, SeqCst);
    dripping.join().unwrap();
    eventually("it is counted", || gateway.acted("body_time") == 1);
}

#[test]
fn limits_of_messages_and_connections_are_counted() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::builder(&one_route(upstream.address))
        .set("client_max_body_size", "10")
        .set("large_client_header_buffers", "1 1k")
        .set("client_header_timeout", "1s")
        .set("keepalive_requests", "1")
        .start();
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(2000));
    assert_eq!(gateway.send(&long).status, 400);
    assert_eq!(
        gateway.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world").status,
        413
    );
    assert_eq!(gateway.connect().send("GET / HTTP/1.1\r\n").response().status, 408);
    assert_eq!(gateway.get("/").status, 200);
    for (limit, count) in [("head_size", 1), ("body_size", 1), ("head_time", 1)] {
        eventually(limit, || gateway.acted(limit) == count);
    }
    assert!(gateway.acted("requests_per_connection") >= 1);
}

/// Fails while it is told to, and counts what it is asked.
fn failing() -> (Upstream, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (fails, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let told = (fails.clone(), asked.clone());
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            told.1.fetch_add(1, SeqCst);
            peer.send(if told.0.load(SeqCst) { FAILED } else { OK });
        }
    });
    (upstream, fails, asked)
}

#[test]
fn a_target_that_fails_is_ejected_and_comes_back() {
    let ((bad, fails, asked), good) = (failing(), Upstream::answering(OK));
    // Longer than the requests take, so that it does not come back among them.
    let tags = "\"weir-eject-errors:3\", \"weir-eject-time:10\"";
    let gateway =
        Gateway::builder(&balanced(&[bad.address, good.address], tags, "")).set("workers", "2").start();
    let labels = format!("upstream=\"orders\",target=\"{}\"", bad.address);
    let failures = (0..60).filter(|_| gateway.get("/").status == 500).count();
    let ejections =
        metric(&gateway, &format!("weir_target_ejections_total{{{labels},reason=\"errors\"}}")).unwrap();
    assert!(
        ejections >= 1.0 && failures as f64 == ejections * 3.0,
        "{failures} failures, {ejections} ejections"
    );
    assert!(gateway.log().contains("the target is ejected"));
    fails.store(false, SeqCst);
    let before = asked.load(SeqCst);
    eventually("it is asked again", || gateway.get("/").status == 200 && asked.load(SeqCst) > before);
    let ejected = || metric(&gateway, &format!("weir_target_ejected{{{labels}}}"));
    eventually("it is no longer ejected", || ejected() == Some(0.0));
}

#[test]
fn the_last_targets_are_not_ejected() {
    let upstreams: Vec<_> = (0..4).map(|_| failing()).collect();
    let targets: Vec<_> = upstreams.iter().map(|(upstream, ..)| upstream.address).collect();
    let tags = "\"weir-eject-errors:1\", \"weir-eject-max-share:50\"";
    let gateway = Gateway::start(&balanced(&targets, tags, ""));
    (0..40).for_each(|_| assert_eq!(gateway.get("/").status, 500, "it is what the targets answer"));
    let ejected = |target: &SocketAddr| {
        metric(&gateway, &format!("weir_target_ejected{{upstream=\"orders\",target=\"{target}\"}}"))
            == Some(1.0)
    };
    assert_eq!(targets.iter().filter(|target| ejected(target)).count(), 2);
}

#[test]
fn an_adaptive_limit_lets_pass_what_the_upstream_serves_and_sheds_what_would_wait() {
    // One request at a time in the order in which they come, so that all others wait in it. Each takes much longer than the
    // way to it does on a busy machine, because what is on its way counts as well.
    let (queue, queued) = mpsc::channel::<mpsc::Sender<()>>();
    std::thread::spawn(move || {
        for turn in queued {
            std::thread::park_timeout(std::time::Duration::from_millis(10));
            let _ = turn.send(());
        }
    });
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let (turn, served) = mpsc::channel();
            queue.send(turn).unwrap();
            served.recv().unwrap();
            peer.send(OK);
        }
    });
    let tags = "tags: [weir-adaptive-concurrency]";
    let gateway = Gateway::start(&document(&[service("/", upstream.address, tags, "")], ""));
    // A calm time shows the latency without a queue. Otherwise it would be measured a minute later.
    let mut calm = gateway.connect();
    (0..100).for_each(|_| assert_eq!(calm.send(get("/")).response().status, 200));
    let stop = Arc::new(AtomicBool::new(false));
    let statuses = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let clients: Vec<_> = (0..100)
        .map(|_| {
            let (mut client, stop, statuses) = (gateway.connect(), stop.clone(), statuses.clone());
            std::thread::spawn(move || {
                while !stop.load(SeqCst) {
                    match client.send(get("/")).response().status {
                        200 => drop(statuses[0].fetch_add(1, SeqCst)),
                        503 => {
                            statuses[1].fetch_add(1, SeqCst);
                            // The CPU is the upstream's, so that it is what the limit sees.
                            std::thread::park_timeout(std::time::Duration::from_millis(20));
                        }
                        other => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    let name = format!("weir_upstream_limit{{upstream=\"{} of s-\"}}", upstream.address);
    let limit_is_below = |most: f64| metric(&gateway, &name).is_some_and(|it| it < most);
    eventually("the limit shrinks", || limit_is_below(32.0));
    // If the machine was slower in the calm time, the latency is measured again, a minute later.
    eventually("the limit shrinks to what the upstream serves", || limit_is_below(10.0));
    let [served, shed] = [0, 1].map(|index| statuses[index].load(SeqCst));
    assert!(served > 0 && shed > 0, "{served} served, {shed} shed");
    stop.store(true, SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
}

/// Sends a request over so many connections at the same time, and where it has a rest, that a second later. All are served.
fn serve_at_once(gateway: &Gateway, count: usize, request: &str, rest: &str) {
    let mut clients: Vec<_> = (0..count).map(|_| gateway.connect()).collect();
    for client in &mut clients {
        client.send(request);
    }
    if !rest.is_empty() {
        std::thread::park_timeout(std::time::Duration::from_secs(1));
    }
    for client in &mut clients {
        client.send(rest);
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn the_time_that_clients_take_to_send_bodies_does_not_shrink_the_adaptive_limit() {
    // It takes much longer than the way to it does on a busy machine.
    let upstream = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            std::thread::park_timeout(std::time::Duration::from_millis(200));
            peer.send(OK);
        }
    });
    let tags = "tags: [weir-adaptive-concurrency]";
    let gateway = Gateway::start(&document(&[service("/", upstream.address, tags, "")], ""));
    let limit = || {
        metric(&gateway, &format!("weir_upstream_limit{{upstream=\"{} of s-\"}}", upstream.address)).unwrap()
    };
    // Less than half of the limit, which shows the latency without a queue.
    serve_at_once(&gateway, 30, &get("/"), "");
    let before = limit();
    // More than half of it, so that the limit follows the latency. The upstream is asked before the rest comes, because
    // `request_buffering` holds less.
    let body = "a".repeat(70_000);
    let upload = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70010\r\n\r\n{body}");
    (0..4).for_each(|_| serve_at_once(&gateway, 36, &upload, "0123456789"));
    let after = limit();
    assert!(after > before / 2.0, "{before} before, {after} after");
}

#[test]
fn a_configuration_that_is_refused_leaves_the_limits_as_they_are() {
    let (upstream, asked) = Upstream::holding(OK);
    let limited = |most: usize, more: &str| {
        let tags = format!("tags: [\"weir-max-requests:{most}\"]");
        document(&[service("/", upstream.address, &tags, "")], more)
    };
    let gateway = Gateway::start(&limited(2, ""));
    let held: Vec<_> = (0..2).map(|_| hold(&gateway, "/", &asked)).collect();
    let [own, other] = ["a.test", "b.test"].map(Identity::new);
    let pair = format!("certificates:\n- {{cert: {}, key: {}}}\n", own.cert_yaml(), other.key_yaml());
    let output = gateway.reload(&limited(7, &pair));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("does not belong to the certificate"), "{said}");
    let counted =
        |name: &str| metric(&gateway, &format!("{name}{{upstream=\"{} of s-\"}}", upstream.address));
    assert_eq!(counted("weir_upstream_limit"), Some(2.0));
    assert_eq!(counted("weir_upstream_in_flight"), Some(2.0));
    let output = gateway.reload(&limited(2, ""));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_shed(&gateway.get("/"), "The upstream has too many requests");
    let_go(held);
}
