//! Streams: connections and datagrams that are passed on as they are.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Builder, Gateway, Haproxy, Peer, Upstream, closed_port, eventually};
use rustix::process::Signal;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

/// One service and one route, which any connection takes.
fn any(protocols: &str, service: &str) -> String {
    format!(
        "_format_version: \"3.0\"
services:
- name: s
  {service}
  routes:
  - {{ name: r, protocols: [{protocols}], sources: [{{ ip: 127.0.0.0/8 }}, {{ ip: 203.0.113.0/24 }}] }}
"
    )
}

fn to(address: SocketAddr) -> String {
    format!("protocol: tcp\n  host: {}\n  port: {}", address.ip(), address.port())
}

fn gateway(configuration: &str, listen: &str) -> Builder {
    Gateway::builder(configuration).set("stream_listen", listen).set("proxy_stream_access_log", "/dev/stderr")
}

/// An upstream that says who it is, then sends back what it gets.
fn echo(name: &'static str) -> Upstream {
    Upstream::start(move |mut peer, _| {
        peer.send(name);
        let mut output = peer.socket().try_clone().unwrap();
        let _ = std::io::copy(peer.reader(), &mut output);
        let _ = output.shutdown(Shutdown::Write);
    })
}

/// What a connection brings that says this.
#[track_caller]
fn exchange(address: SocketAddr, text: &str) -> String {
    let mut peer = Peer::connect(address);
    String::from_utf8(peer.send(text).finish_sending().rest()).unwrap()
}

#[test]
fn bytes_and_ends_pass_both_ways() {
    let upstream = Upstream::start(|mut peer, _| {
        let said = peer.rest();
        peer.send(format!("{} bytes, then the end", said.len()));
    });
    let gateway = gateway(&any("tcp", &to(upstream.address)), "127.0.0.1:0").start();
    assert_eq!(exchange(gateway.stream(0), "hello"), "5 bytes, then the end");
    // The upstream speaks first and ends first; the client may still speak.
    let received = Arc::new(AtomicU64::new(0));
    let counted = received.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.send("welcome").finish_sending();
        counted.store(peer.rest().len() as u64, Ordering::SeqCst);
    });
    gateway.reload(&any("tcp", &to(upstream.address)));
    let mut peer = Peer::connect(gateway.stream(0));
    assert_eq!(peer.rest(), b"welcome");
    peer.send("goodbye").finish_sending();
    eventually("what the client says last arrives", || received.load(Ordering::SeqCst) == 7);
    eventually("both sessions are logged", || {
        let log = gateway.log();
        log.contains(" TCP 200 21 5 0.") && log.contains(" TCP 200 7 7 ")
    });
}

#[test]
fn much_passes_both_ways_at_once_and_memory_stays() {
    const BYTES: u64 = 48 * 1024 * 1024;
    let upstream = echo("");
    let gateway = gateway(&any("tcp", &to(upstream.address)), "127.0.0.1:0").start();
    let before = resident(gateway.pid());
    let stream = TcpStream::connect(gateway.stream(0)).unwrap();
    let mut output = stream.try_clone().unwrap();
    let sender = thread::spawn(move || {
        let mut state = 1u64;
        let mut sum = 0u64;
        for _ in 0..BYTES / 65_536 {
            let block = noise(&mut state);
            sum = block.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
            output.write_all(&block).unwrap();
        }
        output.shutdown(Shutdown::Write).unwrap();
        sum
    });
    let (mut sum, mut total, mut most, mut buffer) = (0u64, 0u64, 0, vec![0; 65_536]);
    let mut input = &stream;
    loop {
        let n = input.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        total += n as u64;
        sum = buffer[..n].iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        if total % (8 * 1024 * 1024) < n as u64 {
            most = most.max(resident(gateway.pid()));
        }
    }
    assert_eq!((total, sum), (BYTES, sender.join().unwrap()));
    assert!(most < before + 16 * 1024, "from {before} KiB to {most} KiB");
}

fn noise(state: &mut u64) -> Vec<u8> {
    let next = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()
    };
    std::iter::repeat_with(next).take(8192).flatten().collect()
}

/// The process's memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_side_that_reads_nothing_holds_the_other_up() {
    let upstream = Upstream::start(|peer, _| {
        // Reads nothing, until the client has given up.
        let mut output = peer.socket().try_clone().unwrap();
        thread::park_timeout(std::time::Duration::from_secs(20));
        let _ = output.write_all(b"x");
    });
    let gateway = gateway(&any("tcp", &to(upstream.address)), "127.0.0.1:0").start();
    let before = resident(gateway.pid());
    let stream = TcpStream::connect(gateway.stream(0)).unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut idle) = (0u64, 0);
    while idle < 200 {
        match (&stream).write(&[7; 65_536]) {
            Ok(n) => (sent, idle) = (sent + n as u64, 0),
            Err(_) => {
                idle += 1;
                thread::park_timeout(std::time::Duration::from_millis(5));
            }
        }
    }
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes were taken");
    let now = resident(gateway.pid());
    assert!(now < before + 4 * 1024, "from {before} KiB to {now} KiB");
}

#[test]
fn destinations_choose_the_service_and_a_reload_cuts_no_session() {
    let (first, second) = (echo("first "), echo("second "));
    let routes = |gateway: &Gateway, order: [&Upstream; 2]| {
        let route = |index: usize| {
            let port = gateway.stream(index).port();
            let to = to(order[index].address);
            format!(
                "- name: s{index}\n  {to}\n  routes: [{{ name: r{index}, protocols: [tcp], destinations: [{{ port: {port} }}] }}]\n"
            )
        };
        format!("_format_version: \"3.0\"\nservices:\n{}{}", route(0), route(1))
    };
    let gateway = gateway("_format_version: \"3.0\"", "127.0.0.1:0, 127.0.0.1:0").set("workers", "2").start();
    assert_eq!(exchange(gateway.stream(0), "nobody is asked"), "");
    eventually("it is logged", || gateway.log().contains(" TCP 500 0 0 "));
    assert!(gateway.log().contains("no stream route matched"));
    let reloaded = gateway.reload(&routes(&gateway, [&first, &second]));
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(!String::from_utf8_lossy(&reloaded.stderr).contains("not in force"), "{reloaded:?}");
    assert_eq!(exchange(gateway.stream(0), "a"), "first a");
    assert_eq!(exchange(gateway.stream(1), "b"), "second b");
    let mut open = Peer::connect(gateway.stream(0));
    assert_eq!(read(&mut open, 6), "first ");
    assert!(gateway.reload(&routes(&gateway, [&second, &first])).status.success());
    assert_eq!(exchange(gateway.stream(0), "c"), "second c");
    open.send("still here");
    assert_eq!(read(&mut open, 10), "still here");
}

#[track_caller]
fn read(peer: &mut Peer, length: usize) -> String {
    let mut bytes = vec![0; length];
    peer.reader().read_exact(&mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn targets_take_turns_and_one_that_cannot_be_reached_is_passed_over() {
    let (a, b) = (echo("a"), echo("b"));
    let configuration = any("tcp", "protocol: tcp\n  host: targets");
    let targets = [a.address, closed_port(), b.address].map(|target| format!("{{ target: \"{target}\" }}"));
    let configuration =
        format!("{configuration}upstreams:\n- name: targets\n  targets: [{}]\n", targets.join(", "));
    let gateway = gateway(&configuration, "127.0.0.1:0").start();
    let answers: Vec<_> = (0..6).map(|_| exchange(gateway.stream(0), "")).collect();
    // Two turns each; the two turns of the target in between are retried at one of them by chance.
    let count = |name: &str| answers.iter().filter(|answer| *answer == name).count();
    assert!(count("a") >= 2 && count("b") >= 2 && count("a") + count("b") == 6, "{answers:?}");
    gateway.reload(&any("tcp", &format!("{}\n  retries: 0", to(closed_port()))));
    assert_eq!(exchange(gateway.stream(0), "x"), "");
    eventually("it is logged", || gateway.log().contains(" TCP 502 0 0 "));
}

/// A service that is balanced over targets, by fields of the upstream.
fn balanced(targets: &[SocketAddr], fields: &str) -> String {
    let targets: Vec<_> = targets.iter().map(|target| format!("{{ target: \"{target}\" }}")).collect();
    let upstream = format!("upstreams:\n- name: targets\n  {fields}\n  targets: [{}]\n", targets.join(", "));
    any("tcp", "protocol: tcp\n  host: targets") + &upstream
}

#[test]
fn a_target_that_refuses_sessions_is_asked_no_more_until_an_operator_says_so() {
    let (good, bad) = (echo("hello"), closed_port());
    let checks = "healthchecks: { passive: { healthy: { successes: 1 }, unhealthy: { tcp_failures: 1 } } }";
    let gateway = gateway(&balanced(&[good.address, bad], checks), "127.0.0.1:0").start();
    let health = || {
        let said = gateway.admin("/upstreams/targets/health").json();
        let of = |target: SocketAddr| {
            let all = said["data"].as_array().unwrap().iter();
            all.clone().find(|it| it["target"] == target.to_string()).unwrap()["health"].clone()
        };
        [of(good.address), of(bad)]
    };
    assert_eq!(health(), ["HEALTHY", "HEALTHY"]);
    let answers: Vec<_> = (0..6).map(|_| exchange(gateway.stream(0), "")).collect();
    assert_eq!(answers, ["hello"; 6]);
    assert_eq!(health(), ["HEALTHY", "UNHEALTHY"]);
    let mut admin = Peer::connect(gateway.admin_addresses()[0]);
    let mark = |target: SocketAddr, health: &str| {
        format!(
            "PUT /upstreams/targets/targets/{target}/{health} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        )
    };
    assert_eq!(admin.send(mark(good.address, "unhealthy")).response().status, 204);
    assert_eq!(exchange(gateway.stream(0), ""), "", "none is left");
    assert_eq!(admin.send(mark(good.address, "healthy")).response().status, 204);
    assert_eq!(exchange(gateway.stream(0), ""), "hello");
}

#[test]
fn sessions_count_as_connections_and_are_hashed_by_their_address() {
    let (a, b) = (echo("a"), echo("b"));
    let least = balanced(&[a.address, b.address], "algorithm: least-connections");
    let gateway = gateway(&least, "127.0.0.1:0").start();
    let mut open = Peer::connect(gateway.stream(0));
    let busy = read(&mut open, 1);
    let answers: Vec<_> = (0..4).map(|_| exchange(gateway.stream(0), "")).collect();
    assert_eq!(answers, [if busy == "a" { "b" } else { "a" }; 4]);
    let hashed = balanced(&[a.address, b.address], "algorithm: consistent-hashing\n  hash_on: ip");
    assert!(gateway.reload(&hashed).status.success());
    let answers: Vec<_> = (0..6).map(|_| exchange(gateway.stream(0), "")).collect();
    assert_eq!(answers, vec![answers[0].clone(); 6], "one client keeps to one target");
}

#[test]
fn a_session_in_which_nothing_is_said_ends_after_the_longer_of_two_timeouts() {
    let upstream = echo("hello");
    let service = format!("{}\n  read_timeout: 1\n  write_timeout: 2000", to(upstream.address));
    let gateway = gateway(&any("tcp", &service), "127.0.0.1:0").start();
    let mut peer = Peer::connect(gateway.stream(0));
    assert_eq!(read(&mut peer, 5), "hello");
    thread::park_timeout(std::time::Duration::from_millis(50));
    peer.send("x");
    assert_eq!(peer.rest(), b"x");
    eventually("it is logged", || gateway.log().contains(" TCP 200 6 1 "));
}

#[test]
fn a_reset_passes_on() {
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.reader().read(&mut [0; 16]);
        peer.reset();
    });
    let gateway = gateway(&any("tcp", &to(upstream.address)), "127.0.0.1:0").start();
    let mut peer = Peer::connect(gateway.stream(0));
    peer.send("x");
    assert_eq!(end(&mut peer), Some(ErrorKind::ConnectionReset), "the upstream's reset");
    let (sender, ends) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        let _ = peer.reader().read(&mut [0; 16]);
        peer.send("y");
        let _ = sender.send(end(&mut peer));
    });
    gateway.reload(&any("tcp", &to(upstream.address)));
    let mut peer = Peer::connect(gateway.stream(0));
    peer.send("x");
    assert_eq!(read(&mut peer, 1), "y");
    peer.reset();
    assert_eq!(ends.recv().unwrap(), Some(ErrorKind::ConnectionReset), "the client's reset");
}

/// How the other side's half ends: none for an end in good order.
fn end(peer: &mut Peer) -> Option<ErrorKind> {
    peer.reader().read(&mut [0; 16]).err().map(|error| error.kind())
}

#[test]
fn a_drain_waits_for_sessions() {
    let upstream = echo("hello ");
    let mut gateway = gateway(&any("tcp", &to(upstream.address)), "127.0.0.1:0").start();
    let address = gateway.stream(0);
    let mut peer = Peer::connect(address);
    assert_eq!(read(&mut peer, 6), "hello ");
    gateway.signal(Signal::TERM);
    eventually("nobody else is let in", || TcpStream::connect(address).is_err());
    peer.send("last words").finish_sending();
    assert_eq!(peer.rest(), b"last words");
    assert!(gateway.exit().success());
    assert!(gateway.log().contains(" TCP 200 16 10 "), "{}", gateway.log());
}

#[test]
fn the_proxy_protocol_comes_in_and_goes_out() {
    let section = "mode http\n  http-request return status 200 content-type text/plain lf-string \"%[src]:%[src_port] %[dst]\"";
    let haproxy = Haproxy::listening("accept-proxy", section);
    for field in [
        "proxy_protocol: v1",
        "proxy_protocol: v2",
        "tags: [weir-proxy-protocol-v1]",
        "tags: [weir-proxy-protocol-v2]",
    ] {
        let service = format!("{}\n  {field}", to(haproxy.address));
        let gateway = gateway(&any("tcp", &service), "127.0.0.1:0 proxy_protocol, 127.0.0.1:0")
            .set("trusted_ips", "127.0.0.1")
            .start();
        let header = "PROXY TCP4 203.0.113.7 10.0.0.1 12345 80\r\n";
        let request = "GET / HTTP/1.0\r\n\r\n";
        let said = exchange(gateway.stream(0), &format!("{header}{request}"));
        assert!(said.ends_with("203.0.113.7:12345 127.0.0.1"), "{said}");
        let said = exchange(gateway.stream(1), request);
        assert!(said.contains("\r\n\r\n127.0.0.1:"), "{said}");
        eventually("the client is logged", || gateway.log().contains("203.0.113.7 ["));
        assert_eq!(exchange(gateway.stream(0), "GET / HTTP/1.0\r\n\r\n"), "");
        eventually("the refusal is logged", || gateway.log().contains(" TCP 400 0 0 "));
    }
}

#[test]
fn sessions_are_counted_where_prometheus_is_asked_to() {
    let upstream = echo("hello ");
    let plugin = "plugins:
- name: prometheus
  protocols: [http, tcp]
  config: { status_code_metrics: true, bandwidth_metrics: true, latency_metrics: true }
";
    let configuration = any("tcp", &to(upstream.address)) + plugin;
    let gateway = gateway(&configuration, "127.0.0.1:0").start();
    assert_eq!(exchange(gateway.stream(0), "world"), "hello world");
    let of = "service=\"s\",route=\"r\"";
    let by = "workspace=\"default\"";
    let lines = [
        format!("kong_stream_sessions_total{{{of},code=\"200\",source=\"service\",{by}}} 1"),
        format!("kong_bandwidth_bytes{{{of},direction=\"ingress\",{by},consumer=\"\"}} 5"),
        format!("kong_bandwidth_bytes{{{of},direction=\"egress\",{by},consumer=\"\"}} 11"),
        format!("kong_session_duration_ms_count{{{of},{by}}} 1"),
    ];
    let says = |line: &str| gateway.status("/metrics").text().lines().any(|said| said == line);
    eventually("the session is counted", || lines.iter().all(|line| says(line)));
    let metrics = gateway.status("/metrics");
    let connections = |rest: &str| {
        let line = |line: &&str| line.starts_with("kong_nginx_connections_total") && line.contains(rest);
        metrics.text().lines().find(line).and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    assert_eq!(connections("subsystem=\"stream\",state=\"accepted\"").as_deref(), Some("1"));
    assert_eq!(connections("subsystem=\"stream\",state=\"active\"").as_deref(), Some("0"));
    assert_eq!(connections("subsystem=\"http\",state=\"accepted\"").as_deref(), Some("0"));
}

#[test]
fn datagrams_take_no_more_than_half_of_what_is_there() {
    let upstream = echo("hello ");
    let configuration = any("tcp, udp", &to(upstream.address));
    // Of 372 files, 356 are the node's own: there are 8 for clients and 8 for upstreams.
    let gateway = gateway(&configuration, "127.0.0.1:0, 127.0.0.1:0 udp").open_files(372).start();
    let clients: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for client in &clients {
        client.send_to(b"x", gateway.stream(1)).unwrap();
    }
    eventually("some are dropped", || gateway.log().contains("datagrams of new clients are dropped: 4 "));
    assert_eq!(exchange(gateway.stream(0), "world"), "hello world");
}

#[test]
fn the_admin_api_shows_where_streams_come_in() {
    let gateway =
        gateway("_format_version: \"3.0\"", "127.0.0.1:0 ssl proxy_protocol, 127.0.0.1:0 udp").start();
    let root = gateway.admin("/").json();
    let listeners = &root["configuration"]["stream_listeners"];
    assert_eq!(root["configuration"]["stream_listen"][1], "127.0.0.1:0 udp");
    for (index, (tls, udp)) in [(true, false), (false, true)].into_iter().enumerate() {
        let listener = &listeners[index];
        assert_eq!(listener["port"], gateway.stream(index).port(), "{listener}");
        assert_eq!(listener["ip"], "127.0.0.1");
        let flags = [&listener["ssl"], &listener["udp"], &listener["proxy_protocol"]];
        assert_eq!(flags, [tls, udp, tls], "{listener}");
    }
}

#[test]
fn datagrams_are_answered_by_session() {
    let upstream = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = upstream.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((n, from)) = upstream.recv_from(&mut buffer) {
            let _ = upstream
                .send_to(&[&buffer[..n], b" from ", from.port().to_string().as_bytes()].concat(), from);
        }
    });
    let service = to(address).replace("tcp", "udp") + "\n  read_timeout: 1000\n  write_timeout: 1000";
    let mut gateway = gateway(&any("udp", &service), "127.0.0.1:0 udp").set("workers", "2").start();
    let ask = |socket: &UdpSocket, text: &str| {
        socket.send_to(text.as_bytes(), gateway.stream(0)).unwrap();
        let mut buffer = [0; 2048];
        let n = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..n]).into_owned()
    };
    let clients: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    let ports: Vec<_> = clients
        .iter()
        .map(|client| {
            client.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
            let first = ask(client, "one");
            let second = ask(client, "two");
            assert_eq!(first.replace("one", "two"), second, "one client has one session");
            second
        })
        .collect();
    assert_eq!(ports.iter().collect::<std::collections::HashSet<_>>().len(), 8, "each has its own");
    eventually("they end once nobody says anything", || gateway.log().matches(" UDP 200 ").count() == 8);
    assert_eq!(ask(&clients[0], "three").split(' ').next(), Some("three"));
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());
    assert!(!gateway.log().contains("drain_timeout ended"), "a drain does not wait for what is answered");
}

/// Without `protocols` of its own the plugin is for sessions too, as in Kong.
#[test]
fn sessions_are_let_in_by_the_address_of_their_client() {
    let upstream = echo("hello ");
    for (plugin, admitted) in [
        ("config: {allow: [127.0.0.0/8]}", true),
        ("config: {deny: [127.0.0.0/8]}", false),
        ("protocols: [http], config: {deny: [127.0.0.0/8]}", true),
    ] {
        let plugins = format!("plugins: [{{name: ip-restriction, {plugin}}}]\n");
        let gateway = gateway(&(any("tcp", &to(upstream.address)) + &plugins), "127.0.0.1:0").start();
        let said = exchange(gateway.stream(0), "world");
        assert_eq!(said, if admitted { "hello world" } else { "" }, "{plugin}");
    }
}

#[test]
fn datagrams_of_another_node_are_not_shared() {
    let first = gateway("_format_version: \"3.0\"", "127.0.0.1:0 udp").start();
    let address = first.stream(0);
    let (status, said) = gateway("_format_version: \"3.0\"", &format!("{address} udp")).fail();
    assert_eq!(status.code(), Some(1));
    let mend = format!("{address} is in use: stop what listens there, or set another stream_listen");
    assert!(said.contains(&mend), "{said}");
}

#[test]
fn stream_routes_that_nobody_reaches_are_told_of() {
    let told = |log: &str| log.matches("routes of tcp, tls, tls_passthrough and udp get no traffic").count();
    let configuration = any("tcp", &to(closed_port()));
    let gateway = Gateway::builder(&configuration).start();
    eventually("it is told at the start", || told(&gateway.log()) == 1);
    gateway.reload("_format_version: \"3.0\"");
    gateway.reload(&configuration);
    eventually("it is told at a reload", || told(&gateway.log()) == 2);
}

#[test]
fn the_log_tells_the_end_of_a_session_that_reached_nobody() {
    let configuration = any("tcp", &format!("{}\n  retries: 2", to(closed_port())));
    let gateway = gateway(&configuration, "127.0.0.1:0").start();
    assert_eq!(exchange(gateway.stream(0), ""), "");
    eventually("its end is told", || gateway.log().contains("the session is closed: "));
    assert_eq!(gateway.log().matches("it is tried again or passed over").count(), 1);
}

#[test]
fn plugins_that_may_name_a_stream_as_in_kong_pass_its_sessions_by() {
    let upstream = echo("hello ");
    let plugins = "plugins:
- { name: statsd, protocols: [http, tcp] }
- { name: proxy-cache, protocols: [http, tcp, tls_passthrough], config: { strategy: memory } }
";
    let gateway = gateway(&(any("tcp", &to(upstream.address)) + plugins), "127.0.0.1:0").start();
    assert_eq!(exchange(gateway.stream(0), "world"), "hello world");
    for warning in ["plugins[0].protocols", "plugins[1].protocols"] {
        assert!(gateway.log().contains(warning), "{}", gateway.log());
    }
}
