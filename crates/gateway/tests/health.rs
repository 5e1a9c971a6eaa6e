//! The health of targets: what requests and probes say of them, what operators say, and what becomes of requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{
    Gateway, Identity, Peer, TlsUpstream, Upstream, closed_port, document, eventually, service,
};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

const NO_PEER: &str = "failure to get a peer from the ring-balancer";

/// An upstream that answers with the status that the test sets, and counts requests to `/`, and those to `/probe`.
struct Switch {
    upstream: Upstream,
    status: Arc<AtomicU16>,
    asked: Arc<AtomicUsize>,
    probed: Arc<AtomicUsize>,
    last_probe: Arc<Mutex<Option<crate::harness::Message>>>,
}

fn switch(status: u16) -> Switch {
    let (status, asked, probed) = (Arc::new(AtomicU16::new(status)), Arc::default(), Arc::default());
    let last_probe = Arc::new(Mutex::new(None));
    let told = (status.clone(), Arc::clone(&asked), Arc::clone(&probed), last_probe.clone());
    let upstream = Upstream::start(move |mut peer, _| {
        let (status, asked, probed, last): &(_, Arc<AtomicUsize>, Arc<AtomicUsize>, _) = &told;
        while let Some(request) = peer.request() {
            let is_probe = request.head.start.starts_with("GET /probe");
            if is_probe { probed } else { asked }.fetch_add(1, Ordering::SeqCst);
            let status = status.load(Ordering::SeqCst);
            peer.send(format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n"));
            if is_probe {
                *last.lock().unwrap() = Some(request);
                return;
            }
        }
    });
    Switch { upstream, status, asked, probed, last_probe }
}

impl Switch {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// An upstream `some` with these targets and health checks, behind the service `/`.
fn configuration(targets: &[SocketAddr], healthchecks: &str, fields: &str) -> String {
    let targets: String = targets.iter().map(|target| format!("{{target: \"{target}\"}},")).collect();
    let upstreams =
        format!("upstreams:\n- {{name: some, targets: [{targets}], healthchecks: {healthchecks}}}\n");
    document(&[service("/", "some", fields, "")], &upstreams)
}

fn send(gateway: &Gateway, method: &str, path: &str) -> crate::harness::Message {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    Peer::connect(gateway.admin_addresses()[0]).send(request).response()
}

/// What the Admin API says of a target.
fn health(gateway: &Gateway, target: impl ToString) -> String {
    let target = target.to_string();
    let answer = gateway.admin("/upstreams/some/health").json();
    let of = answer["data"].as_array().unwrap().iter().find(|entry| entry["target"] == target);
    of.unwrap()["health"].as_str().unwrap().to_owned()
}

/// What decided the health of a target's first address, and why. It did within the last minutes.
fn decided(gateway: &Gateway, target: impl ToString) -> (Value, Value) {
    let target = target.to_string();
    let answer = gateway.admin("/upstreams/some/health").json();
    let of = answer["data"].as_array().unwrap().iter().find(|entry| entry["target"] == target).unwrap();
    let address = &of["data"]["addresses"][0];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let since = address["since"].as_f64().unwrap();
    assert!((now - 600.0..=now).contains(&since), "{address}");
    (address["decided_by"].clone(), address["reason"].clone())
}

fn balancer(gateway: &Gateway) -> Value {
    gateway.admin("/upstreams/some/health?balancer_health=1").json()["data"].clone()
}

fn no_peer(gateway: &Gateway) -> bool {
    let answer = gateway.get("/");
    answer.status == 503 && answer.json()["message"] == NO_PEER
}

#[test]
fn a_target_whose_answers_are_failures_is_not_asked_until_an_operator_says_so() {
    let (bad, good) = (switch(500), switch(200));
    let (at, checks) = (bad.upstream.address, "{passive: {unhealthy: {http_failures: 3}}}");
    let text = configuration(&[at, good.upstream.address], checks, "");
    let gateway = Gateway::start(&text);
    assert_eq!(health(&gateway, at), "HEALTHY");
    assert_eq!(decided(&gateway, at), (json!("configuration"), Value::Null));
    let failed = (0..20).filter(|_| gateway.get("/").status == 500).count();
    assert_eq!((failed, bad.asked(), good.asked()), (3, 3, 17));
    assert_eq!(health(&gateway, at), "UNHEALTHY");
    let by_requests = (json!("passive"), json!("3 HTTP failures"));
    eventually("the reason is shown", || decided(&gateway, at) == by_requests);
    assert_eq!(health(&gateway, good.upstream.address), "HEALTHY");
    assert!(gateway.log().contains("the target is unhealthy and is not asked: 3 HTTP failures"));
    // What is known of it outlives a configuration.
    let output = gateway.reload(&format!("{text}consumers: [{{username: new}}]\n"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!((0..10).all(|_| gateway.get("/").status == 200));
    bad.status.store(200, Ordering::SeqCst);
    assert_eq!(send(&gateway, "PUT", &format!("/upstreams/some/targets/{at}/healthy")).status, 204);
    assert_eq!(health(&gateway, at), "HEALTHY");
    assert_eq!(decided(&gateway, at), (json!("operator"), Value::Null));
    assert!((0..10).all(|_| gateway.get("/").status == 200));
    assert!(bad.asked() > 3);
}

#[test]
fn successes_forgive_failures_where_they_are_counted() {
    let some = switch(500);
    let checks = "{passive: {healthy: {successes: 1}, unhealthy: {http_failures: 2}}}";
    let gateway = Gateway::start(&configuration(&[some.upstream.address], checks, ""));
    for status in [500, 200, 500, 404, 500] {
        assert_eq!(health(&gateway, some.upstream.address), "HEALTHY");
        some.status.store(status, Ordering::SeqCst);
        assert_eq!(gateway.get("/").status, status);
    }
    assert_eq!(health(&gateway, some.upstream.address), "UNHEALTHY");
    assert!(no_peer(&gateway));
    assert_eq!(some.asked(), 5);
}

#[test]
fn a_response_that_breaks_off_in_its_head_is_a_failure_on_kept_connections_too() {
    let bad = Upstream::start(|mut peer, _| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
        if peer.request().is_some() {
            peer.send("HTTP/1.1 20");
        }
    });
    let checks = "{passive: {unhealthy: {tcp_failures: 1}}}";
    let gateway = Gateway::start(&configuration(&[bad.address], checks, "retries: 0"));
    assert_eq!([gateway.get("/").status, gateway.get("/").status], [200, 502]);
    assert_eq!(bad.connections(), 1);
    assert_eq!(health(&gateway, bad.address), "UNHEALTHY");
}

#[test]
fn targets_that_refuse_or_are_slow_are_passed_over() {
    let (down, good) = (closed_port(), switch(200));
    let checks = "{passive: {unhealthy: {tcp_failures: 2, timeouts: 1}}}";
    let gateway = Gateway::start(&configuration(&[down, good.upstream.address], checks, "read_timeout: 200"));
    assert!((0..20).all(|_| gateway.get("/").status == 200), "the other target is tried");
    assert_eq!(health(&gateway, down), "UNHEALTHY");
    assert_eq!(gateway.log().matches("it is tried again or passed over").count(), 1, "warned once a second");

    let silent = Upstream::start(|mut peer, _| while peer.request().is_some() {});
    let output = gateway.reload(&configuration(&[silent.address], checks, "read_timeout: 100"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(gateway.get("/").status, 504);
    assert_eq!(health(&gateway, silent.address), "UNHEALTHY");
    assert!(no_peer(&gateway));
}

#[test]
fn operators_take_targets_out_and_put_them_in() {
    let (one, two) = (switch(200), switch(200));
    let checks = "{threshold: 50, passive: {unhealthy: {tcp_failures: 9}}}";
    let gateway = Gateway::builder(&configuration(&[one.upstream.address, two.upstream.address], checks, ""))
        .set("workers", "2")
        .start();
    let target = |health: &str| format!("/upstreams/some/targets/{}/{health}", one.upstream.address);
    assert_eq!(balancer(&gateway)["health"], "HEALTHY");
    assert_eq!(send(&gateway, "POST", &target("unhealthy")).status, 204);
    assert_eq!(health(&gateway, one.upstream.address), "UNHEALTHY");
    // Half of the weight is not above the threshold.
    assert_eq!(balancer(&gateway)["health"], "UNHEALTHY");
    assert_eq!(
        balancer(&gateway)["details"]["weight"],
        json!({ "total": 200, "available": 100, "unavailable": 100 })
    );
    assert!((0..4).all(|_| no_peer(&gateway)));
    assert_eq!((one.asked(), two.asked()), (0, 0));
    let address = format!("{}/healthy", one.upstream.address);
    assert_eq!(send(&gateway, "PUT", &target(&address)).status, 204);
    assert_eq!(balancer(&gateway)["health"], "HEALTHY");
    assert!((0..8).all(|_| gateway.get("/").status == 200));
    assert!(one.asked() > 0 && two.asked() > 0);
}

#[test]
fn the_addresses_of_a_name_have_a_health_each() {
    let some = switch(200);
    let port = some.upstream.address.port();
    let upstreams = format!(
        "upstreams:\n- {{name: some, targets: [{{target: \"localhost:{port}\"}}, {{target: \"nothing.invalid:80\"}}], \
         healthchecks: {{passive: {{unhealthy: {{tcp_failures: 1}}}}}}}}\n"
    );
    let gateway = Gateway::start(&document(&[service("/", "some", "", "")], &upstreams));
    let target = format!("localhost:{port}");
    assert_eq!(health(&gateway, &target), "HEALTHY");
    assert_eq!(health(&gateway, "nothing.invalid:80"), "DNS_ERROR");
    let marked =
        |health: &str| send(&gateway, "POST", &format!("/upstreams/some/targets/{target}/{health}")).status;
    assert_eq!(marked("unhealthy"), 204);
    assert_eq!(health(&gateway, &target), "UNHEALTHY");
    assert_ne!(gateway.get("/").status, 200);
    assert_eq!(marked(&format!("127.0.0.1:{port}/healthy")), 204);
    assert_eq!(health(&gateway, &target), "HEALTHY");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn what_is_known_outlives_writes_and_ends_with_the_target() {
    let (one, two) = (switch(200), switch(200));
    let gateway = Gateway::empty().start();
    let write = |method: &str, path: &str, body: Value| {
        let answer = gateway.ask_admin(method, &format!("{path}?wait=true"), &body.to_string());
        assert!((200..300).contains(&answer.status), "{method} {path}: {}", answer.text());
    };
    let checks = json!({ "passive": { "unhealthy": { "tcp_failures": 1 } } });
    write("POST", "/upstreams", json!({ "name": "some", "healthchecks": checks }));
    let targets = [one.upstream.address, two.upstream.address];
    let add = |target: SocketAddr| write("POST", "/upstreams/some/targets", json!({ "target": target }));
    targets.into_iter().for_each(add);
    write("POST", "/services", json!({ "name": "s", "host": "some" }));
    write("POST", "/services/s/routes", json!({ "paths": ["/"] }));
    let target = format!("/upstreams/some/targets/{}", targets[0]);
    assert_eq!(send(&gateway, "PUT", &format!("{target}/unhealthy")).status, 204);
    write("PATCH", "/upstreams/some", json!({ "slots": 100 }));
    write("PATCH", &target, json!({ "weight": 300 }));
    write("PATCH", "/services/s", json!({ "retries": 1 }));
    assert!((0..8).all(|_| gateway.get("/").status == 200));
    assert_eq!((one.asked(), two.asked(), health(&gateway, targets[0])), (0, 8, "UNHEALTHY".to_owned()));
    // One that comes back is another.
    assert_eq!(send(&gateway, "DELETE", &format!("{target}?wait=true")).status, 204);
    add(targets[0]);
    assert_eq!(health(&gateway, targets[0]), "HEALTHY");
    assert!((0..8).all(|_| gateway.get("/").status == 200));
    assert!(one.asked() > 0);
}

const PROBES: &str = "{active: {http_path: /probe, headers: {X-Probe: [one, two]}, \
    healthy: {interval: 0.05, successes: 2}, unhealthy: {interval: 0.05, http_failures: 2, tcp_failures: 1, timeouts: 1}}}";

#[test]
fn probes_find_targets_that_fail_and_that_recover() {
    let (one, two) = (switch(200), switch(200));
    let gateway = Gateway::start(&configuration(&[one.upstream.address, two.upstream.address], PROBES, ""));
    eventually("both are probed", || [&one, &two].iter().all(|some| some.probed.load(Ordering::SeqCst) > 0));
    eventually("a probe was read", || one.last_probe.lock().unwrap().is_some());
    let probe = one.last_probe.lock().unwrap().clone().unwrap().head;
    assert_eq!(probe.start, "GET /probe HTTP/1.0");
    assert_eq!((probe.field("Host"), probe.all("X-Probe")), (Some("127.0.0.1"), vec!["one", "two"]));
    one.status.store(503, Ordering::SeqCst);
    eventually("one is found unhealthy", || health(&gateway, one.upstream.address) == "UNHEALTHY");
    let by_probes = (json!("active"), json!("2 HTTP failures"));
    eventually("the reason is shown", || decided(&gateway, one.upstream.address) == by_probes);
    assert!((0..10).all(|_| gateway.get("/").status == 200));
    one.status.store(200, Ordering::SeqCst);
    eventually("one is found healthy", || health(&gateway, one.upstream.address) == "HEALTHY");
    assert!(gateway.log().contains("the target is healthy again: 2 successes"));
    let before = one.asked();
    assert!((0..10).all(|_| gateway.get("/").status == 200));
    assert!(one.asked() > before);
}

#[test]
fn nobody_probes_what_is_gone() {
    let (gone, stays) = (switch(200), switch(200));
    let gateway =
        Gateway::start(&configuration(&[gone.upstream.address, stays.upstream.address], PROBES, ""));
    eventually("it is probed", || gone.probed.load(Ordering::SeqCst) > 0);
    let output = gateway.reload(&configuration(&[stays.upstream.address], PROBES, ""));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // A round that was under way may end.
    let rounds = |more| {
        let before = stays.probed.load(Ordering::SeqCst);
        eventually("rounds pass", || stays.probed.load(Ordering::SeqCst) >= before + more);
    };
    rounds(2);
    let before = gone.probed.load(Ordering::SeqCst);
    rounds(3);
    assert_eq!(gone.probed.load(Ordering::SeqCst), before);
}

#[test]
fn a_target_that_never_answers_holds_up_no_probe_of_another() {
    let silent = Upstream::start(|mut peer, _| while peer.request().is_some() {});
    let good = switch(200);
    let checks = PROBES.replace("http_path", "timeout: 0, http_path");
    let gateway = Gateway::start(&configuration(&[silent.address, good.upstream.address], &checks, ""));
    eventually("rounds pass", || good.probed.load(Ordering::SeqCst) >= 3);
    good.status.store(503, Ordering::SeqCst);
    eventually("it is found unhealthy", || health(&gateway, good.upstream.address) == "UNHEALTHY");
}

#[test]
fn names_that_nobody_resolves_hold_up_no_probe() {
    // Takes questions and answers none.
    let name_server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let good = switch(200);
    let names: String = (0..20).map(|n| format!("{{target: \"n{n}.test:80\"}},")).collect();
    let upstreams = format!(
        "upstreams:\n- {{name: some, targets: [{names}{{target: \"{}\"}}], healthchecks: {PROBES}}}\n",
        good.upstream.address
    );
    let _gateway = Gateway::builder(&document(&[service("/", "some", "", "")], &upstreams))
        .set("dns_resolver", &name_server.local_addr().unwrap().to_string())
        .start();
    name_server.recv(&mut [0; 512]).expect("a name is asked for");
    eventually("rounds pass all the while", || good.probed.load(Ordering::SeqCst) >= 3);
}

#[test]
fn probes_by_tcp_and_over_tls() {
    let identity = Identity::new("probed.test");
    let tls = TlsUpstream::start(&identity, &[]);
    let down = closed_port();
    let checks = |kind: &str| {
        format!(
            "{{active: {{{kind}, healthy: {{interval: 0.05, successes: 1}}, \
             unhealthy: {{interval: 0.05, tcp_failures: 1, timeouts: 1}}}}}}"
        )
    };
    let by_tcp = configuration(&[tls.address, down], &checks("type: tcp"), "");
    let gateway = Gateway::start(&by_tcp);
    eventually("the other refuses", || health(&gateway, down) == "UNHEALTHY");
    assert_eq!(health(&gateway, tls.address), "HEALTHY");
    for (kind, expected) in [
        ("type: https, https_sni: probed.test", "UNHEALTHY"),
        ("type: https, https_sni: probed.test, https_verify_certificate: false", "HEALTHY"),
    ] {
        let output = gateway.reload(&configuration(&[tls.address], &checks(kind), ""));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        eventually(kind, || health(&gateway, tls.address) == expected);
    }
}

#[test]
fn metrics_tell_the_health_of_each_address() {
    let some = switch(200);
    let plugins = "plugins: [{name: prometheus, config: {upstream_health_metrics: true}}]\n";
    let checks = "{passive: {unhealthy: {tcp_failures: 1}}}";
    let gateway = Gateway::start(&(configuration(&[some.upstream.address], checks, "") + plugins));
    let at = some.upstream.address;
    let shows = |state: &str| {
        let line = format!(
            "kong_upstream_target_health{{upstream=\"some\",target=\"{at}\",address=\"{at}\",state=\"{state}\",\
             subsystem=\"http\"}} 1"
        );
        let metrics = gateway.status("/metrics");
        assert!(metrics.text().contains(&line), "{line}");
    };
    shows("healthy");
    send(&gateway, "POST", &format!("/upstreams/some/targets/{at}/unhealthy"));
    shows("unhealthy");
}

/// A server that dies and comes back at its address. It ends between two requests, as one that is stopped does.
struct Mortal {
    address: SocketAddr,
    life: Option<(Arc<AtomicBool>, thread::JoinHandle<()>)>,
}

impl Mortal {
    fn born(address: SocketAddr) -> Mortal {
        let listener = TcpListener::bind(address).expect("the address is free again");
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let alive = Arc::new(AtomicBool::new(true));
        let lives = alive.clone();
        let thread = thread::spawn(move || {
            let mut served = Vec::new();
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        let lives = lives.clone();
                        served.push(thread::spawn(move || {
                            let mut peer = Peer::new(stream);
                            while lives.load(Ordering::SeqCst) && peer.request().is_some() {
                                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
                            }
                        }));
                    }
                    Err(_) if !lives.load(Ordering::SeqCst) => break,
                    Err(_) => thread::park_timeout(std::time::Duration::from_millis(1)),
                }
            }
        });
        Mortal { address, life: Some((alive, thread)) }
    }

    fn die(&mut self) {
        let (alive, thread) = self.life.take().unwrap();
        alive.store(false, Ordering::SeqCst);
        thread.join().unwrap();
    }
}

#[test]
fn a_target_dies_and_comes_back_and_hardly_a_client_notices() {
    const CLIENTS: usize = 4;
    let mut mortal = Mortal::born(([127, 0, 0, 1], 0).into());
    let steady = Mortal::born(([127, 0, 0, 1], 0).into());
    let gateway = Gateway::builder(&configuration(&[mortal.address, steady.address], PROBES, ""))
        .set("workers", "2")
        .start();
    let (over, failed) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = gateway.connect();
                while !over.load(Ordering::SeqCst) {
                    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    let answer = client.response();
                    if answer.status != 200 {
                        failed.lock().unwrap().push(answer.text().to_owned());
                    }
                }
            });
        }
        for _ in 0..2 {
            mortal.die();
            eventually("its death is noticed", || health(&gateway, mortal.address) == "UNHEALTHY");
            mortal = Mortal::born(mortal.address);
            eventually("it is back", || health(&gateway, mortal.address) == "HEALTHY");
        }
        over.store(true, Ordering::SeqCst);
    });
    let failed = failed.into_inner().unwrap();
    // Only what a dying server had taken and did not answer is lost: one request of each client at each death.
    assert!(failed.len() <= 2 * CLIENTS, "{failed:?}");
    let kinds: HashSet<_> = failed.iter().map(|text| text.contains("An invalid response")).collect();
    assert!(!kinds.contains(&false), "{failed:?}");
}
