//! How plugins reach other servers: by which addresses, with which certificates, and until when.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{
    Gateway, Identity, NameServer, NginxOverTls, PATIENCE, TlsUpstream, Upstream, closed_port, document,
    eventually, service,
};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::sync::mpsc;
use std::thread;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A token whose issuer must be asked for its keys.
const TOKEN: &str =
    "Authorization: Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJpc3MiOiJpc3N1ZXIifQ.AAAA\r\n";

/// The client of a plugin, and where its configuration names a server.
struct Client {
    name: &'static str,
    plugin: &'static str,
    config: &'static str,
    is_udp: bool,
}

const fn client(name: &'static str, plugin: &'static str, config: &'static str) -> Client {
    Client { name, plugin, config, is_udp: false }
}

/// `HOST` and `PORT` stand for the server's.
const CLIENTS: &[Client] = &[
    client("http-log", "http-log", "http_endpoint: 'http://HOST:PORT/'"),
    client("kafka", "kafka-logger", "brokers: [{host: HOST, port: PORT}], kafka_topic: t, batch_max_size: 1"),
    client("tcp-log", "tcp-log", "host: HOST, port: PORT"),
    Client { name: "udp-log", plugin: "udp-log", config: "host: HOST, port: PORT", is_udp: true },
    Client { name: "statsd", plugin: "statsd", config: "host: HOST, port: PORT", is_udp: true },
    client("statsd-tcp", "statsd", "host: HOST, port: PORT, use_tcp: true"),
    client("zipkin", "zipkin", "http_endpoint: 'http://HOST:PORT/', sample_ratio: 1"),
    client("otlp-http", "opentelemetry", "traces_endpoint: 'http://HOST:PORT/', sampling_rate: 1"),
    client("otlp-grpc", "opentelemetry", "traces_endpoint: 'grpc://HOST:PORT', sampling_rate: 1"),
    client("forward-auth", "forward-auth", "url: 'http://HOST:PORT/', timeout: 500"),
    client("jwks", "jwt", "jwks_uri: 'http://HOST:PORT/'"),
    client(
        "redis",
        "rate-limiting",
        "minute: 9, policy: redis, redis: {host: HOST, port: PORT, timeout: 500}",
    ),
    client(
        "sentinel",
        "rate-limiting",
        "minute: 9, policy: redis, redis: {sentinel_master: m, sentinel_nodes: [{host: HOST, port: PORT}], timeout: 500}",
    ),
    client(
        "cluster",
        "rate-limiting",
        "minute: 9, policy: redis, redis: {cluster_nodes: [{ip: HOST, port: PORT}], timeout: 500}",
    ),
];

/// A server's socket; what comes is told of.
fn listen(is_udp: bool) -> (u16, mpsc::Receiver<()>) {
    let (told, reached) = mpsc::channel();
    let any = ("127.0.0.1", 0);
    let port = if is_udp {
        let socket = UdpSocket::bind(any).unwrap();
        let port = socket.local_addr().unwrap().port();
        thread::spawn(move || socket.recv(&mut [0; 10_000]).map(|_| told.send(())));
        port
    } else {
        let listener = TcpListener::bind(any).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || listener.accept().map(|_| told.send(())));
        port
    };
    (port, reached)
}

/// Has every client reach its server, by a name of its own below this domain.
fn all_reach_their_servers(domain: &str, settings: &[(&str, String)]) {
    let upstream = Upstream::answering(OK);
    let (mut services, mut servers) = (Vec::new(), Vec::new());
    for client in CLIENTS {
        let (port, reached) = listen(client.is_udp);
        let config = client.config.replace("HOST", &format!("{}{domain}", client.name));
        let config = config.replace("PORT", &port.to_string());
        let plugins = format!("plugins: [{{name: {}, config: {{{config}}}}}]", client.plugin);
        services.push(service(&format!("/{}/", client.name), upstream.address, "", &plugins));
        servers.push((client.name, reached));
    }
    let builder = Gateway::builder(&document(&services, ""));
    let gateway = settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start();
    for (name, reached) in servers {
        gateway.get_with(&format!("/{name}/"), TOKEN);
        reached.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name}: {}", gateway.log()));
    }
}

#[test]
fn names_are_resolved_as_those_of_upstreams_are() {
    let names = NameServer::of(".test");
    all_reach_their_servers(".test", &[("dns_resolver", names.address.to_string())]);
    let expected: BTreeSet<_> = CLIENTS.iter().map(|client| format!("{}.test", client.name)).collect();
    assert!(names.asked().is_superset(&expected), "{:?}", names.asked());
}

#[test]
fn names_of_the_hosts_file_are_asked_of_nobody() {
    let (folder, names) = (tempfile::tempdir().unwrap(), NameServer::of(".test"));
    let file = folder.path().join("hosts");
    let lines: Vec<_> = CLIENTS.iter().map(|client| format!("127.0.0.1 {}.test\n", client.name)).collect();
    fs::write(&file, lines.concat()).unwrap();
    let settings =
        [("dns_resolver", names.address.to_string()), ("dns_hostsfile", file.display().to_string())];
    all_reach_their_servers(".test", &settings);
    assert_eq!(names.asked(), BTreeSet::new());
}

#[test]
fn a_name_that_is_not_known_is_told_of() {
    let names = NameServer::of(".test");
    let upstream = Upstream::answering(OK);
    let plugins = "plugins: [{name: http-log, config: {http_endpoint: 'http://logs.absent/', queue: {max_retry_time: -1}}}]";
    let document = document(&[service("/", upstream.address, "", plugins)], "");
    let gateway = Gateway::builder(&document).set("dns_resolver", &names.address.to_string()).start();
    gateway.get("/");
    eventually("the log says why", || {
        let log = gateway.log();
        log.contains("failed request to logs.absent: ") && log.contains("the name has no address in the DNS")
    });
}

/// Plugins that speak TLS to a server at PORT, each on a path of its own and there too.
const OVER_TLS: [(&str, &str, &str); 3] = [
    ("http-log", "http-log", "http_endpoint: 'https://localhost:PORT/http-log'"),
    ("zipkin", "zipkin", "http_endpoint: 'https://localhost:PORT/zipkin', sample_ratio: 1"),
    ("otlp", "opentelemetry", "traces_endpoint: 'https://localhost:PORT/otlp', sampling_rate: 1"),
];

/// A gateway whose plugins tell a server over TLS, once.
fn over_tls(port: u16, settings: &[(&str, &str)]) -> (Gateway, Upstream) {
    let upstream = Upstream::answering(OK);
    let services = OVER_TLS.map(|(name, plugin, config)| {
        let config = config.replace("PORT", &port.to_string());
        let plugins = format!(
            "plugins: [{{name: {plugin}, config: {{{config}, queue: {{max_batch_size: 99, max_retry_time: -1}}}}}}]"
        );
        service(&format!("/{name}/"), upstream.address, "", &plugins)
    });
    let builder = Gateway::builder(&document(&services, ""));
    let gateway = settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start();
    for (name, ..) in OVER_TLS {
        assert_eq!(gateway.get(&format!("/{name}/")).status, 200);
    }
    (gateway, upstream)
}

#[test]
fn certificates_of_log_servers_are_verified() {
    let (authority, other) = (Identity::new("authority"), Identity::new("other"));
    let folder = tempfile::tempdir().unwrap();
    let requests = folder.path().join("requests");
    let more = format!("access_log {};", requests.display());
    let server = NginxOverTls::start(&Identity::signed("localhost", &authority), &[], &more, "");
    let port = server.address.port();
    let arrived = || {
        let text = fs::read_to_string(&requests).unwrap_or_default();
        OVER_TLS.iter().all(|(path, ..)| text.contains(&format!("\"POST /{path} ")))
    };
    let refusals = |log: &str| {
        log.lines()
            .filter(|line| {
                line.contains("entries are dropped")
                    && line.contains(&format!("localhost:{port}: "))
                    && line.contains("the certificate of localhost is issued by no authority that is trusted (invalid peer certificate: UnknownIssuer): ")
                    && line.contains("as `system,/path/to/ca.pem`, or set log_tls_verify=off")
            })
            .count()
    };
    let (stern, _upstream) =
        over_tls(port, &[("lua_ssl_trusted_certificate", &other.cert().display().to_string())]);
    eventually("each says that the certificate is not trusted", || refusals(&stern.log()) == OVER_TLS.len());
    // Without a setting, the system's authorities count.
    let (usual, _upstream) = over_tls(port, &[]);
    eventually("each says so", || refusals(&usual.log()) == OVER_TLS.len());
    assert_eq!(fs::read_to_string(&requests).unwrap_or_default(), "", "nothing was sent");
    let (trusting, _upstream) =
        over_tls(port, &[("lua_ssl_trusted_certificate", &authority.cert().display().to_string())]);
    eventually("each arrives by a certificate that is trusted", arrived);
    fs::write(&requests, "").unwrap();
    let (careless, _upstream) = over_tls(port, &[("log_tls_verify", "off")]);
    eventually("each arrives without verification", arrived);
    for gateway in [trusting, careless] {
        assert_eq!(refusals(&gateway.log()), 0);
    }
}

#[test]
fn a_log_server_of_version_1_is_refused_with_the_setting_that_counts() {
    let authority = Identity::new("authority");
    let server = NginxOverTls::start(&Identity::version_1("localhost", &authority), &[], "", "");
    let trusted = authority.cert().display().to_string();
    let (gateway, _upstream) = over_tls(server.address.port(), &[("lua_ssl_trusted_certificate", &trusted)]);
    let said = "the certificate of localhost is of X.509 version 1 and cannot be verified: issue one of version 3 with a subjectAltName, or set \
                log_tls_verify=off";
    eventually("each says so", || gateway.log().matches(said).count() == OVER_TLS.len());
    assert!(!gateway.log().contains("`tls_verify"), "{}", gateway.log());
}

#[test]
fn a_log_server_of_another_name_is_refused_with_what_helps() {
    let authority = Identity::new("authority");
    let server = NginxOverTls::start(&Identity::signed("elsewhere.test", &authority), &[], "", "");
    let trusted = authority.cert().display().to_string();
    let (gateway, _upstream) = over_tls(server.address.port(), &[("lua_ssl_trusted_certificate", &trusted)]);
    let fix = "address the server by a name in the certificate, or issue one with a subjectAltName of this name, or set \
               log_tls_verify=off";
    eventually("each says so", || gateway.log().matches(fix).count() == OVER_TLS.len());
}

#[test]
fn certificates_are_verified_of_lines_and_calls_over_tls_too() {
    let (authority, upstream) = (Identity::new("authority"), Upstream::answering(OK));
    let server = TlsUpstream::start(&Identity::signed("localhost", &authority), &[]);
    let port = server.address.port();
    let plugins = format!(
        "plugins: [{{name: tcp-log, config: {{host: localhost, port: {port}, tls: true}}}}, {{name: opentelemetry, \
         config: {{traces_endpoint: 'grpcs://localhost:{port}', sampling_rate: 1, queue: {{max_retry_time: -1}}}}}}]"
    );
    let document = document(&[service("/", upstream.address, "", &plugins)], "");
    let gateway = Gateway::start(&document);
    gateway.get("/");
    for plugin in ["tcp-log", "opentelemetry"] {
        eventually(&format!("{plugin} says that the certificate is not trusted"), || {
            let log = gateway.log();
            let mut lines = log.lines().filter(|line| line.contains(&format!("queue={plugin}.")));
            lines.any(|line| {
                line.contains("the certificate of localhost is issued by no authority that is trusted (invalid peer certificate: UnknownIssuer): ")
                    && line.contains("log_tls_verify=off")
            })
        });
    }
}

#[test]
fn a_password_in_the_url_of_a_log_server_is_not_logged() {
    let (upstream, server) = (Upstream::answering(OK), closed_port().to_string());
    for (plugin, config) in WITH_QUEUE {
        let config = config.replace("SERVER", &format!("shipper:letmein@{server}"));
        let plugins =
            format!("plugins: [{{name: {plugin}, config: {{{config}, queue: {{max_retry_time: -1}}}}}}]");
        let gateway = Gateway::start(&document(&[service("/", upstream.address, "", &plugins)], ""));
        gateway.get("/");
        let said = format!("failed request to {server}: ");
        eventually(&format!("{plugin} says where nobody answers"), || gateway.log().contains(&said));
        assert!(!gateway.log().contains("letmein"), "{}", gateway.log());
    }
}

#[test]
fn a_node_without_authorities_serves_and_says_what_to_set() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let (gateway, _upstream) = over_tls(port, &[("lua_ssl_trusted_certificate", "")]);
    let said = "lua_ssl_trusted_certificate names no authority: set lua_ssl_trusted_certificate, or set log_tls_verify=off";
    eventually("each says so", || gateway.log().matches(said).count() == OVER_TLS.len());
}

/// A collector that tells of the bodies it gets, and answers as it is told: the first time with another status.
fn collector(first_status: u16) -> (Upstream, mpsc::Receiver<()>) {
    let (told, requests) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, connection| {
        let mut number = connection;
        while peer.request().is_some() {
            let status = if number == 0 { first_status } else { 200 };
            peer.send(format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n"));
            told.send(()).unwrap();
            number += 1;
        }
    });
    (upstream, requests)
}

/// Plugins with a queue, whose configuration names a server.
const WITH_QUEUE: [(&str, &str); 3] = [
    ("http-log", "http_endpoint: 'http://SERVER/'"),
    ("zipkin", "http_endpoint: 'http://SERVER/', sample_ratio: 1"),
    ("opentelemetry", "traces_endpoint: 'http://SERVER/', sampling_rate: 1"),
];

fn with_queue((plugin, config): (&str, &str), server: &Upstream, queue: &str) -> String {
    let config = config.replace("SERVER", &server.address.to_string());
    format!("plugins: [{{name: {plugin}, config: {{{config}, queue: {{{queue}}}}}}}]")
}

#[test]
fn a_stop_delivers_what_waits_for_more() {
    for plugin in WITH_QUEUE {
        let ((collector, requests), upstream) = (collector(200), Upstream::answering(OK));
        let queue = "max_batch_size: 1000, max_coalescing_delay: 3600";
        let plugins = with_queue(plugin, &collector, queue);
        let document = document(&[service("/", upstream.address, "", &plugins)], "");
        let mut gateway = Gateway::builder(&document).set("drain_timeout", "1h").start();
        (0..10).for_each(|_| assert_eq!(gateway.get("/").status, 200));
        assert!(requests.try_recv().is_err(), "entries wait for others");
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.exit().code(), Some(0), "{plugin:?}");
        requests.try_recv().unwrap_or_else(|_| panic!("{plugin:?}: {}", gateway.log()));
        assert!(!gateway.log().contains("entries are lost"), "{plugin:?}: {}", gateway.log());
    }
}

#[test]
fn a_stop_does_not_wait_for_the_next_try() {
    let ((collector, requests), upstream) = (collector(503), Upstream::answering(OK));
    let queue = "initial_retry_delay: 3600, max_retry_delay: 3600, max_retry_time: 7200";
    let plugins = with_queue(WITH_QUEUE[0], &collector, queue);
    let document = document(&[service("/", upstream.address, "", &plugins)], "");
    let mut gateway = Gateway::builder(&document).set("drain_timeout", "1h").start();
    gateway.get("/");
    requests.recv_timeout(PATIENCE).unwrap();
    eventually("it is to be retried", || gateway.log().contains("it is retried"));
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(0));
    requests.try_recv().expect("it was tried again");
    assert!(!gateway.log().contains("entries are lost"), "{}", gateway.log());
}

#[test]
fn what_a_stop_cannot_deliver_in_time_is_counted_by_plugin() {
    let upstream = Upstream::answering(OK);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let services = [
        service(
            "/refused/",
            upstream.address,
            "",
            &format!(
                "plugins: [{{name: http-log, id: 00000000-0000-4000-8000-000000000001, config: \
                 {{http_endpoint: 'http://{}/', queue: {{max_retry_time: 7200}}}}}}]",
                closed_port()
            ),
        ),
        service(
            "/silent/",
            upstream.address,
            "",
            &format!(
                "plugins: [{{name: zipkin, id: 00000000-0000-4000-8000-000000000002, config: {{http_endpoint: \
                 'http://127.0.0.1:{port}/', sample_ratio: 1, queue: {{max_batch_size: 2}}}}}}]"
            ),
        ),
    ];
    let mut gateway = Gateway::builder(&document(&services, "")).set("drain_timeout", "1s").start();
    for path in ["/refused/", "/refused/", "/refused/", "/silent/"] {
        assert_eq!(gateway.get(path).status, 200);
    }
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(0));
    let log = gateway.log();
    let lost: Vec<_> = log.lines().filter(|line| line.contains("entries are lost")).collect();
    assert_eq!(lost.len(), 2, "{log}");
    // A request has three spans.
    for (line, plugin) in lost
        .iter()
        .zip(["http-log.00000000-0000-4000-8000-000000000001", "zipkin.00000000-0000-4000-8000-000000000002"])
    {
        assert!(
            line.contains(plugin) && line.contains("entries=3") && line.contains("drain_timeout"),
            "{line}"
        );
    }
}
