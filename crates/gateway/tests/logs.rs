//! Log plugins, and who gets what they tell.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Identity, Upstream, closed_port, document, eventually, service};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway with one plugin, and an upstream that answers.
fn gateway(plugin: &str, config: &str) -> (Gateway, Upstream) {
    gateway_with(plugin, config, &[])
}

/// The same, with settings.
fn gateway_with(plugin: &str, config: &str, settings: &[(&str, String)]) -> (Gateway, Upstream) {
    let upstream = Upstream::answering(OK);
    let plugins = format!("plugins: [{{name: {plugin}, config: {{{config}}}}}]");
    let document = document(&[service("/", upstream.address, "", &plugins)], "");
    let builder = Gateway::builder(&document).set("workers", "2");
    (settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start(), upstream)
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn dropped(gateway: &Gateway, plugin: &str) -> Option<u64> {
    let metrics = gateway.status("/metrics").text().to_owned();
    let name = format!("weir_plugin_dropped_total{{plugin=\"{plugin}\"");
    let line = metrics.lines().find(|line| line.starts_with(&name))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn a_file_gets_a_line_for_each_request_of_every_worker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (gateway, _upstream) = gateway("file-log", &format!("path: {}", path.display()));
    thread::scope(|scope| {
        for client in 0..8 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut peer = gateway.connect();
                for number in 0..50 {
                    let request = format!("GET /{client}/{number} HTTP/1.1\r\nHost: a\r\n\r\n");
                    assert_eq!(peer.send(request).response().status, 200);
                }
            });
        }
    });
    eventually("all lines are there", || {
        fs::read_to_string(&path).unwrap_or_default().lines().count() == 400
    });
    let text = fs::read_to_string(&path).unwrap();
    let mut uris: Vec<_> =
        text.lines().map(|line| json(line)["request"]["uri"].as_str().unwrap().to_owned()).collect();
    uris.sort();
    uris.dedup();
    assert_eq!(uris.len(), 400);
    assert_eq!(dropped(&gateway, "file-log"), Some(0));
}

#[test]
fn a_file_that_was_moved_is_written_anew_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("log"), folder.path().join("old"));
    let (gateway, _upstream) = gateway("file-log", &format!("path: {}, reopen: true", path.display()));
    gateway.get("/1");
    eventually("the first line is there", || {
        fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::rename(&path, &moved).unwrap();
    gateway.get("/2");
    eventually("the second line is there", || {
        fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))
    });
    let uri = |path| json(&fs::read_to_string(path).unwrap())["request"]["uri"].clone();
    assert_eq!((uri(&moved), uri(&path)), ("/1".into(), "/2".into()));
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_explained() {
    let (gateway, _upstream) = gateway("file-log", "path: /nowhere/to/be/found");
    assert_eq!(gateway.get("/").status, 200);
    eventually("a line is dropped", || dropped(&gateway, "file-log") == Some(1));
    assert!(gateway.log().contains("/nowhere/to/be/found"), "{}", gateway.log());
}

#[test]
fn what_was_told_before_the_end_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (mut gateway, _upstream) = gateway("file-log", &format!("path: {}", path.display()));
    gateway.get("/last");
    gateway.signal(Signal::TERM);
    gateway.exit();
    assert_eq!(json(&fs::read_to_string(&path).unwrap())["request"]["uri"], "/last");
}

#[test]
fn a_tcp_server_gets_lines_over_a_connection_that_is_kept_and_made_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (gateway, _upstream) = gateway("tcp-log", &format!("host: 127.0.0.1, port: {port}"));
    gateway.get("/1");
    let (connection, _) = listener.accept().unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(connection);
    let line = |reader: &mut BufReader<_>| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        json(&line)["request"]["uri"].clone()
    };
    assert_eq!(line(&mut reader), "/1");
    gateway.get("/2");
    assert_eq!(line(&mut reader), "/2");
    drop(reader);
    // A line that is sent before the gateway has noticed is lost with the connection.
    listener.set_nonblocking(true).unwrap();
    let mut connection = None;
    eventually("another connection is made", || {
        gateway.get("/3");
        connection = listener.accept().ok();
        connection.is_some()
    });
    let (connection, _) = connection.unwrap();
    connection.set_nonblocking(false).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(line(&mut BufReader::new(connection)), "/3");
    drop(listener);
    eventually("lines are dropped without a server", || {
        gateway.get("/4");
        dropped(&gateway, "tcp-log").is_some_and(|dropped| dropped > 0)
    });
}

#[test]
fn a_tcp_server_may_speak_tls() {
    let identity = Identity::new("logs.test");
    // Free now; the listener is closed before the server takes its place.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let mut server = Command::new("openssl")
        .args(["s_server", "-quiet", "-accept", &address.to_string(), "-cert"])
        .arg(identity.cert())
        .arg("-key")
        .arg(identity.key())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl runs");
    eventually("openssl listens", || TcpStream::connect(address).is_ok());
    let fields = "custom_fields_by_lua: {sent: \"return 'over-tls'\"}";
    let port = address.port();
    let trusted = [("lua_ssl_trusted_certificate", identity.cert().display().to_string())];
    let (gateway, _upstream) = gateway_with(
        "tcp-log",
        &format!("host: 127.0.0.1, port: {port}, tls: true, tls_sni: logs.test, {fields}"),
        &trusted,
    );
    gateway.get("/");
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(json(&line)["sent"], "over-tls");
}

#[test]
fn a_udp_server_gets_a_datagram_for_each_request() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = server.local_addr().unwrap().port();
    let settings = [("large_client_header_buffers", "4 64k".to_owned())];
    let (gateway, _upstream) = gateway_with("udp-log", &format!("host: 127.0.0.1, port: {port}"), &settings);
    let mut datagram = vec![0; 65_536];
    for uri in ["/1", "/2"] {
        gateway.get(uri);
        let length = server.recv(&mut datagram).unwrap();
        assert_eq!(json(std::str::from_utf8(&datagram[..length]).unwrap())["request"]["uri"], uri);
    }
    let long = format!("X-Long: {}\r\n", "x".repeat(32_500));
    assert_eq!(gateway.get_with("/3", &format!("{long}{}", long.replace("Long", "Longer"))).status, 200);
    eventually("what no datagram holds is dropped", || dropped(&gateway, "udp-log") == Some(1));
}

#[test]
fn a_statsd_server_gets_metrics_in_datagrams_or_over_tcp() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let metrics = "metrics: [{name: request_count, stat_type: counter, sample_rate: 1}, \
                   {name: status_count, stat_type: counter, sample_rate: 1}], service_identifier_default: service_host";
    let to = |port: u16, more: &str| format!("host: localhost, port: {port}, {metrics}{more}");
    let (gateway, _upstream) = gateway("statsd", &to(server.local_addr().unwrap().port(), ""));
    gateway.get("/");
    let received = || {
        let mut datagram = [0; 1000];
        let length = server.recv(&mut datagram).unwrap();
        String::from_utf8_lossy(&datagram[..length]).into_owned()
    };
    assert_eq!(received(), "kong.service.127_0_0_1.request.count:1|c");
    assert_eq!(received(), "kong.service.127_0_0_1.status.200:1|c");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config =
        to(listener.local_addr().unwrap().port(), ", use_tcp: true, allow_status_codes: [200-299, 404-404]");
    let (over_tcp, _upstream) = self::gateway("statsd", &config);
    over_tcp.get("/");
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "kong.service.127_0_0_1.request.count:1|c\nkong.service.127_0_0_1.status.200:1|c\n");
}

#[test]
fn an_http_server_that_fails_is_asked_again_with_the_same() {
    let (asked, requests) = mpsc::channel();
    let collector = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            asked.send(request.json()["request"]["uri"].clone()).unwrap();
            peer.send("HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno");
        }
    });
    let (gateway, _upstream) =
        gateway("http-log", &format!("http_endpoint: \"http://{}/\"", collector.address));
    gateway.get("/once");
    for _ in 0..3 {
        assert_eq!(requests.recv_timeout(PATIENCE).unwrap(), "/once");
    }
}

#[test]
fn sessions_are_told_of_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.try_send(b"bye");
    });
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: raw\n  url: tcp://{}\n  routes:\n  - name: all\n    \
         protocols: [tcp]\n    sources: [{{ip: 127.0.0.1}}]\nplugins:\n- name: file-log\n  protocols: [tcp]\n  \
         config: {{path: {}}}\n",
        upstream.address,
        path.display()
    );
    let gateway = Gateway::builder(&document).set("stream_listen", "127.0.0.1:0").start();
    let mut text = String::new();
    TcpStream::connect(gateway.stream(0)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
    eventually("the line is there", || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
    let record = json(&fs::read_to_string(&path).unwrap());
    assert_eq!((&record["session"]["sent"], &record["session"]["status"]), (&3.into(), &200.into()));
    assert_eq!((&record["service"]["name"], &record["route"]["name"]), (&"raw".into(), &"all".into()));
    let [only] = &record["tries"].as_array().unwrap()[..] else { panic!("{record}") };
    assert_eq!((&only["ip"], &only["port"]), (&"127.0.0.1".into(), &upstream.address.port().into()));
    assert!(only["balancer_start"].as_u64().unwrap() >= record["started_at"].as_u64().unwrap(), "{record}");
    assert_eq!((only.get("state"), record["session"].get("tls")), (None, None));
}

#[test]
fn the_record_of_a_session_has_its_tls_and_every_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let (dead, other) = (closed_port(), closed_port());
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: raw\n  host: pair\n  protocol: tcp\n  retries: 1\n  routes:\n  - \
         name: all\n    protocols: [tls]\n    snis: [a.test]\nupstreams:\n- name: pair\n  targets: [{{target: \"{dead}\"}}, \
         {{target: \"{other}\"}}]\nplugins:\n- name: file-log\n  protocols: [tls]\n  config: {{path: {}}}\n",
        path.display()
    );
    let gateway = Gateway::builder(&document).set("stream_listen", "127.0.0.1:0 ssl").start();
    let address = gateway.stream(0).to_string();
    let openssl = Command::new("openssl")
        .args(["s_client", "-connect", &address, "-servername", "a.test", "-tls1_3"])
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    assert!(String::from_utf8_lossy(&openssl.stdout).contains("TLSv1.3"));
    eventually("the line is there", || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
    let record = json(&fs::read_to_string(&path).unwrap());
    let tls = &record["session"]["tls"];
    assert_eq!((&tls["version"], &tls["client_verify"]), (&"TLSv1.3".into(), &"NONE".into()), "{record}");
    assert!(tls["cipher"].as_str().unwrap().starts_with("TLS_"), "{record}");
    let tries = record["tries"].as_array().unwrap();
    assert!(tries.iter().all(|tried| tried["state"] == "failed" && tried["code"] == 502), "{record}");
    let mut ports: Vec<_> = tries.iter().map(|tried| tried["port"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    let mut expected: [u64; 2] = [dead.port().into(), other.port().into()];
    expected.sort_unstable();
    assert_eq!(ports, expected);
}

/// Requests that match no route belong to the trace of their client too.
#[test]
fn zipkin_keeps_the_trace_of_a_request_without_a_route() {
    let (told, spans) = mpsc::channel();
    let collector = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            told.send(request.json()).unwrap();
            peer.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let document = format!(
        "_format_version: \"3.0\"\nplugins:\n- name: zipkin\n  config: {{http_endpoint: \"http://{}/\", sample_ratio: 0, \
         queue: {{max_batch_size: 2, max_coalescing_delay: 3600}}}}\n",
        collector.address
    );
    let gateway = Gateway::start(&document);
    let (long, short, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "463ac35c9f6413ad", "00f067aa0ba902b7");
    for (headers, trace) in [
        (format!("b3: {long}-{span}-1\r\n"), long),
        (format!("X-B3-TraceId: {short}\r\nX-B3-SpanId: {span}\r\nX-B3-Sampled: 1\r\n"), short),
        (format!("traceparent: 00-{long}-{span}-01\r\n"), long),
        (format!("uber-trace-id: {long}:{span}:0:1\r\n"), long),
        (format!("ot-tracer-traceid: {long}\r\not-tracer-spanid: {span}\r\not-tracer-sampled: 1\r\n"), long),
    ] {
        assert_eq!(gateway.get_with("/nowhere", &headers).status, 404);
        let spans = spans.recv_timeout(PATIENCE).unwrap();
        let [proxy, request] = &spans.as_array().unwrap()[..] else { panic!("{spans}") };
        assert_eq!((&proxy["traceId"], &request["traceId"]), (&trace.into(), &trace.into()), "{headers}");
        assert!([&request["id"], &request["parentId"]].contains(&&span.into()), "{headers}: {spans}");
    }
}

#[test]
fn a_zipkin_server_gets_the_spans_of_a_session() {
    let (told, spans) = mpsc::channel();
    let collector = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            told.send(request.json()).unwrap();
            peer.send("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.try_send(b"bye");
    });
    let gateway = |address: SocketAddr, spans: usize| {
        let document = format!(
            "_format_version: \"3.0\"\nservices:\n- name: raw\n  url: tcp://{address}\n  retries: 1\n  routes:\n  - name: \
             all\n    protocols: [tcp]\n    sources: [{{ip: 127.0.0.1}}]\nplugins:\n- name: zipkin\n  protocols: [tcp]\n  \
             config: {{http_endpoint: \"http://{}/\", sample_ratio: 1, queue: {{max_batch_size: {spans}, \
             max_coalescing_delay: 3600}}}}\n",
            collector.address
        );
        Gateway::builder(&document).set("stream_listen", "127.0.0.1:0").start()
    };
    let connect = |gateway: &Gateway| {
        let mut text = String::new();
        TcpStream::connect(gateway.stream(0)).unwrap().read_to_string(&mut text).unwrap();
        spans.recv_timeout(PATIENCE).unwrap()
    };
    let reported = connect(&gateway(upstream.address, 3));
    let [attempt, proxy, session] = &reported.as_array().unwrap()[..] else { panic!("{reported}") };
    assert_eq!((&proxy["name"], &session["name"]), (&"stream (proxy)".into(), &"stream".into()));
    assert_eq!((&proxy["parentId"], &proxy["traceId"]), (&session["id"], &session["traceId"]));
    assert_eq!(proxy["remoteEndpoint"]["serviceName"], "raw");
    assert_eq!(session["remoteEndpoint"]["ipv4"], "127.0.0.1");
    assert_eq!((&attempt["name"], &attempt["parentId"]), (&"stream (balancer try 1)".into(), &session["id"]));
    assert_eq!(attempt["remoteEndpoint"]["port"], upstream.address.port());
    assert_eq!(attempt["tags"]["error"], serde_json::Value::Null);
    let reported = connect(&gateway(closed_port(), 4));
    for number in [1, 2] {
        let failed = &reported[number - 1];
        assert_eq!(failed["name"], format!("stream (balancer try {number})"));
        assert_eq!(failed["tags"]["kong.balancer.state"], "failed");
    }
}

#[test]
fn records_have_the_correlation_id_and_the_status_of_each_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let upstream = Upstream::answering("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    let services = [
        service("/there", upstream.address, "", ""),
        service("/away", closed_port(), "retries: 1", ""),
        service("/missing", closed_port(), "retries: 0", ""),
    ];
    let plugins = format!(
        "plugins:\n- {{name: correlation-id, config: {{header_name: X-Id}}}}\n\
         - {{name: file-log, config: {{path: {}}}}}\n",
        path.display()
    );
    let gateway = Gateway::start(&document(&services, &plugins));
    let paths = [("/there", "201"), ("/away", "502, 502"), ("/missing", "502")];
    for (path, _) in paths {
        gateway.get_with(path, &format!("X-Id: of{path}\r\n"));
    }
    let lines = || fs::read_to_string(&path).unwrap_or_default();
    eventually("the lines are there", || lines().matches('\n').count() == paths.len());
    for (line, (path, statuses)) in lines().lines().zip(paths) {
        let record = json(line);
        assert_eq!(record["upstream_status"], statuses, "{path}");
        assert_eq!(record["correlation_id"], format!("of{path}"));
    }
}
