//! HTTP/2 towards clients: by curl, by the `h2` crate, and byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::{Frames, ask, block_on, connect, get, read, start};
use crate::harness::{Gateway, Identity, Upstream, document, eventually, one_route, service};
use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, Request};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const BOTH: &str = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2";

fn gateway(configuration: &str) -> crate::harness::Builder {
    Gateway::builder(configuration).set("proxy_listen", BOTH)
}

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sSk", "--max-time", "20"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn curl_speaks_http2_in_clear_and_over_tls_and_http1_on_the_same_ports() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let plain = format!("http://{}/a%20b?q=1", gateway.proxy());
    let tls = format!("https://{}/a%20b?q=1", gateway.proxy_ssl());
    let version = "\n%{http_version}";
    let cases = [
        (vec!["--http2-prior-knowledge", &plain], "2"),
        (vec![&plain], "1.1"),
        (vec!["--http2", &tls], "2"),
        (vec!["--http1.1", &tls], "1.1"),
    ];
    for (arguments, expected) in cases {
        let said = curl(&[&["-w", version, "-d", "body"], &arguments[..]].concat());
        assert!(said.starts_with("POST /a%20b?q=1 HTTP/1.1\n"), "{said}");
        assert!(said.ends_with(&format!("\nbody\n{expected}")), "{arguments:?}: {said}");
    }
}

#[test]
fn without_the_flag_a_listener_speaks_http1_alone() {
    let upstream = Upstream::echoing();
    let gateway = Gateway::start(&one_route(upstream.address));
    let refused = gateway.connect().send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").response();
    assert_eq!(refused.status, 505);
    let tls = format!("https://{}/", gateway.proxy_ssl());
    assert!(curl(&["--http2", "-w", "%{http_version}", &tls]).ends_with("1.1"));
}

#[test]
fn heads_are_translated() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let said = block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = Request::get("http://shop.test:80/x")
            .header("cookie", "a=1")
            .header("x-twice", "1")
            .header("cookie", "b=2")
            .header("x-twice", "2")
            .header("te", "trailers")
            .header("x-consumer-id", "forged");
        ask(&requests, request.body(()).unwrap()).await.unwrap()
    });
    assert_eq!(said.status(), 200);
    assert_eq!(said.headers()["via"], "1.1 weir");
    let lines: Vec<&str> = said.body().lines().collect();
    let expected = [
        "Cookie: a=1; b=2",
        "x-twice: 1",
        "x-twice: 2",
        "X-Forwarded-Host: shop.test",
        "Via: 2 weir",
        "TE: trailers",
        "Connection: TE",
    ];
    for line in expected {
        assert!(lines.contains(&line), "no {line} in {lines:#?}");
    }
    assert!(!said.body().contains("forged"), "{lines:#?}");
}

#[test]
fn the_authority_is_one_and_valid() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let cases = [
        (Request::get("http://a.test/").header("host", "A.test"), 200),
        (Request::get("http://a.test/").header("host", "b.test"), 400),
        (Request::get("http://a.test/").header("host", "a.test").header("host", "a.test"), 400),
        (Request::get("http://u@a.test/"), 400),
        (Request::options("http://a.test/"), 200),
        (Request::connect("a.test:80"), 405),
    ];
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        for (request, status) in cases {
            let request = request.body(()).unwrap();
            let said = format!("{request:?}");
            assert_eq!(ask(&requests, request).await.unwrap().status(), status, "{said}");
        }
    });
}

#[test]
fn bodies_and_trailers_pass_both_ways() {
    let upstream = Upstream::start(|mut peer, _| {
        let request = peer.request().unwrap();
        assert_eq!(request.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        let size = request.body.len();
        peer.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n"));
        peer.send(&request.body).send("\r\n0\r\nX-Done: yes\r\n\r\n");
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = Request::post("http://localhost/").body(()).unwrap();
        let (response, mut body) = start(&requests, request, false).await.unwrap();
        let whole = "0123456789".repeat(100_000);
        body.send_data(whole.clone().into(), false).unwrap();
        let mut sum = HeaderMap::new();
        sum.insert("x-sum", "7".parse().unwrap());
        body.send_trailers(sum).unwrap();
        let (response, trailers) = read(response.await.unwrap()).await.unwrap();
        assert!(*response.body() == whole);
        assert_eq!(trailers.unwrap()["x-done"], "yes");
    });
}

#[test]
fn trailers_are_announced_both_ways() {
    let upstream = Upstream::start(|mut peer, _| {
        let request = peer.request().unwrap();
        assert_eq!((request.header("te"), request.header("trailer")), (Some("trailers"), Some("x-sum")));
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Done\r\n\r\n0\r\nX-Done: yes\r\n\r\n");
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let request = Request::post("http://localhost/").header("te", "trailers").header("trailer", "x-sum");
        let (response, mut body) = start(&requests, request.body(()).unwrap(), false).await.unwrap();
        body.send_data("hi".into(), false).unwrap();
        body.send_trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())])).unwrap();
        let (response, trailers) = read(response.await.unwrap()).await.unwrap();
        assert_eq!(
            (&response.headers()["trailer"], &trailers.unwrap()["x-done"]),
            (&"X-Done".parse().unwrap(), &"yes".parse().unwrap())
        );
    });
}

/// The status of a request with these trailers, and the names of those that the upstream got.
async fn ask_with_trailers(requests: &SendRequest<Bytes>, fields: HeaderMap) -> (u16, String) {
    let request = Request::post("http://localhost/").body(()).unwrap();
    let (response, mut body) = start(requests, request, false).await.unwrap();
    body.send_data("hi".into(), false).unwrap();
    body.send_trailers(fields).unwrap();
    let (response, _) = read(response.await.unwrap()).await.unwrap();
    (response.status().as_u16(), response.into_body())
}

#[test]
fn trailers_do_not_say_what_a_head_decides() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let names: Vec<_> = request.trailers.into_iter().map(|(name, _)| name).collect();
            let names = names.join(" ");
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{names}", names.len()));
        }
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    let forged =
        ["x-sum", "x-consumer-id", "x_consumer_id", "x-client_cert-dn", "x-forwarded-for", "authorization"];
    let one =
        |name: &'static str| HeaderMap::from_iter([(HeaderName::from_static(name), "7".parse().unwrap())]);
    let many = (0..101).map(|n| (format!("x-{n}").parse().unwrap(), "7".parse().unwrap())).collect();
    let large = HeaderMap::from_iter([(HeaderName::from_static("x"), "7".repeat(17_000).parse().unwrap())]);
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let forged = forged.into_iter().flat_map(one).map(|(name, value)| (name.unwrap(), value)).collect();
        assert_eq!(ask_with_trailers(&requests, forged).await, (200, "x-sum".to_owned()));
        for (trailers, status) in
            [(one("host"), 400), (one("content-length"), 400), (many, 431), (large, 431)]
        {
            assert_eq!(ask_with_trailers(&requests, trailers).await.0, status);
        }
    });
}

#[test]
fn a_client_that_waits_is_invited() {
    let upstream = Upstream::echoing();
    let gateway = gateway(&one_route(upstream.address)).start();
    let post = |expects: &str| {
        let url = format!("http://{}/", gateway.proxy());
        let expects = format!("Expect: {expects}");
        curl(&["--http2-prior-knowledge", "--expect100-timeout", "30", "-d", "hello", "-H", &expects, &url])
    };
    assert!(post("100-continue").ends_with("\nhello"));
    assert!(post("something").contains("Expectation failed"));
}

#[test]
fn a_hundred_requests_share_a_connection() {
    let (upstream, all) = Upstream::holding(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    // Answered once all have come: none waits for another.
    let answering = std::thread::spawn(move || {
        let all: Vec<_> = all.iter().take(100).collect();
        all.iter().for_each(|go| go.send(()).unwrap());
    });
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let mut responses = Vec::new();
        for _ in 0..100 {
            responses.push(start(&requests, get("/"), true).await.unwrap().0);
        }
        for response in responses {
            assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
        }
    });
    answering.join().unwrap();
}

#[test]
fn a_truncated_response_never_looks_whole() {
    let (go, may_close) = mpsc::channel();
    let may_close = Mutex::new(may_close);
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        let () = may_close.lock().unwrap().recv().unwrap();
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let response = start(&requests, get("/"), true).await.unwrap().0.await.unwrap();
        assert_eq!(response.status(), 200);
        go.send(()).unwrap();
        let error = read(response).await.unwrap_err();
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
        // The connection goes on.
        assert_eq!(ask(&requests, Request::connect("a:1").body(()).unwrap()).await.unwrap().status(), 405);
    });
}

#[test]
fn a_client_that_stops_reading_stops_the_upstream_and_is_cut_off() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [b"10000\r\n".to_vec(), vec![b'x'; 65536], b"\r\n".to_vec()].concat();
        while peer.try_send(&chunk).is_ok() {
            counted.fetch_add(chunk.len(), Ordering::SeqCst);
        }
    });
    let gateway = gateway(&one_route(upstream.address)).set("send_timeout", "2s").start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (response, _) = start(&requests, get("/"), true).await.unwrap();
        let mut body = response.await.unwrap().into_body();
        let mut taken = 0;
        let error = loop {
            match body.data().await.unwrap() {
                Ok(data) => taken += data.len(),
                Err(error) => break error,
            }
        };
        assert_eq!((taken, error.reason()), (65_535, Some(Reason::INTERNAL_ERROR)));
    });
    // What the sockets' buffers hold, and no more.
    assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{} bytes were sent", sent.load(Ordering::SeqCst));
}

#[test]
fn a_client_that_takes_its_request_back_frees_the_upstream() {
    let (closed, ended) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        assert!(peer.is_closed());
        closed.send(()).unwrap();
    });
    let gateway = gateway(&one_route(upstream.address)).start();
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        let (response, mut body) = start(&requests, get("/"), true).await.unwrap();
        let asked = async || {
            while upstream.connections() == 0 {
                tokio::task::yield_now().await
            }
        };
        asked().await;
        body.send_reset(Reason::CANCEL);
        drop(response);
        while ended.try_recv().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn the_last_request_of_a_connection_is_told_so() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).set("keepalive_requests", "3").start();
    block_on(async {
        let (requests, ended) = connect(gateway.proxy()).await;
        for _ in 0..3 {
            assert_eq!(ask(&requests, get("/")).await.unwrap().body(), "hi");
        }
        assert!(ask(&requests, get("/")).await.is_err());
        ended.await.unwrap().unwrap();
    });
}

#[test]
fn an_idle_connection_is_closed_and_one_with_requests_is_not() {
    let (upstream, release) = Upstream::holding(OK);
    let settings =
        [("keepalive_timeout", "1s"), ("client_header_timeout", "1s"), ("http2_ping_interval", "1s")];
    let builder = gateway(&one_route(upstream.address));
    let gateway = settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start();
    block_on(async {
        let (_unused, ended) = connect(gateway.proxy()).await;
        let (requests, mut busy) = connect(gateway.proxy()).await;
        let (response, _) = start(&requests, get("/"), true).await.unwrap();
        ended.await.unwrap().unwrap();
        // Three pings later it is still there.
        assert!(tokio::time::timeout(Duration::from_secs(3), &mut busy).await.is_err());
        release.recv().unwrap().send(()).unwrap();
        assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
        busy.await.unwrap().unwrap();
    });
}

#[test]
fn a_client_that_agrees_on_it_and_never_begins_is_not_waited_for_forever() {
    let gateway = gateway("_format_version: \"3.0\"\n").set("client_header_timeout", "1s").start();
    let address = gateway.proxy_ssl().to_string();
    let mut silent = Command::new("openssl");
    silent.args(["s_client", "-quiet", "-alpn", "h2", "-connect", &address]);
    silent.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut silent = silent.spawn().expect("openssl runs");
    let _input = silent.stdin.take();
    silent.wait().expect("the gateway closes its connection");
    eventually("it is counted", || gateway.acted("handshake_time") == 1);
}

#[test]
fn a_client_that_answers_no_ping_is_dropped() {
    let (closed, ended) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        assert!(peer.is_closed());
        closed.send(()).unwrap();
    });
    let gateway = gateway(&one_route(upstream.address)).set("http2_ping_interval", "1s").start();
    let mut silent = Frames::connect(gateway.proxy());
    assert!(silent.send(&Frames::get(1)));
    ended.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(silent.goaway(), None);
}

#[test]
fn a_drain_lets_requests_end() {
    let (upstream, release) = Upstream::holding(OK);
    let mut gateway = gateway(&one_route(upstream.address)).start();
    block_on(async {
        let (_idle, idle) = connect(gateway.proxy()).await;
        let (requests, ended) = connect(gateway.proxy()).await;
        let (response, _) = start(&requests, get("/"), true).await.unwrap();
        while upstream.connections() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        gateway.signal(Signal::TERM);
        idle.await.unwrap().unwrap();
        // Each connection is told by its own: until then it takes requests.
        let refused = loop {
            match requests.clone().ready().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => break error,
            }
        };
        assert!(refused.is_go_away(), "{refused}");
        release.recv().unwrap().send(()).unwrap();
        assert_eq!(read(response.await.unwrap()).await.unwrap().0.body(), "hi");
        drop(requests);
        ended.await.unwrap().unwrap();
    });
    assert!(gateway.exit().success());
}

/// Three names of two certificates, and a route bound to a name.
#[test]
fn a_connection_is_for_the_names_of_its_certificate() {
    let upstream = Upstream::answering(OK);
    let (one, two) = (Identity::new("a.test"), Identity::new("b.test"));
    let certificate = |identity: &Identity, names: &str| {
        format!("- {{cert: {}, key: {}, snis: [{names}]}}\n", identity.cert_yaml(), identity.key_yaml())
    };
    let configuration = document(
        &[service("/", upstream.address, "", ""), service("/bound", upstream.address, "", "snis: [c.test]")],
        &format!(
            "certificates:\n{}{}",
            certificate(&one, "{name: a.test}, {name: c.test}"),
            certificate(&two, "{name: b.test}")
        ),
    );
    let gateway = gateway(&configuration).start();
    let port = gateway.proxy_ssl().port();
    let status = |version: &str, sni: &str, host: &str, path: &str| {
        let to = format!("{sni}:{port}:127.0.0.1");
        let (host, url) = (format!("Host: {host}"), format!("https://{sni}:{port}{path}"));
        let said = ["-o", "/dev/null", "-w", "%{http_version} %{http_code}"];
        curl(&[&[version, "--resolve", &to, "-H", &host, &url], &said[..]].concat())
    };
    let cases = [
        ("--http2", "a.test", "a.test", "/", "2 200"),
        ("--http2", "a.test", "A.test:8443", "/", "2 200"),
        ("--http2", "a.test", "c.test", "/", "2 200"),
        ("--http2", "a.test", "unknown.test", "/", "2 200"),
        ("--http2", "unknown.test", "a.test", "/", "2 200"),
        ("--http2", "a.test", "b.test", "/", "2 421"),
        ("--http2", "a.test", "c.test", "/bound", "2 421"),
        ("--http2", "c.test", "c.test", "/bound", "2 200"),
        ("--http1.1", "a.test", "b.test", "/", "1.1 200"),
    ];
    for (version, sni, host, path, expected) in cases {
        assert_eq!(status(version, sni, host, path), expected, "{version} {sni} {host} {path}");
    }
}

#[test]
fn h2load_gets_every_answer() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let output = Command::new("h2load")
        .args(["-n", "2000", "-c", "4", "-m", "20", &format!("http://{}/", gateway.proxy())])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("2000 total, 2000 started, 2000 done, 2000 succeeded, 0 failed, 0 errored"),
        "{said}"
    );
}

#[test]
fn the_access_log_and_the_metrics_name_the_version() {
    let upstream = Upstream::answering(OK);
    let log = tempfile::NamedTempFile::new().unwrap();
    let gateway =
        gateway(&one_route(upstream.address)).set("proxy_access_log", log.path().to_str().unwrap()).start();
    curl(&["--http2-prior-knowledge", &format!("http://{}/x", gateway.proxy())]);
    eventually("the line is written", || {
        std::fs::read_to_string(log.path()).unwrap().contains("\"GET /x HTTP/2.0\" 200")
    });
    let twice = Request::get("http://a.test/").header("host", "a.test").header("host", "a.test");
    block_on(async {
        let (requests, _) = connect(gateway.proxy()).await;
        assert_eq!(ask(&requests, twice.body(()).unwrap()).await.unwrap().status(), 400);
    });
    eventually("the line of what is refused is written", || {
        std::fs::read_to_string(log.path()).unwrap().contains(" HTTP/2.0\" 400")
    });
    assert_eq!(gateway.get("/").status, 200);
    // A request is counted once its response is sent.
    eventually("all requests are counted by their version", || {
        let metrics = gateway.status("/metrics");
        let counted = |version, times| {
            let end = format!("version=\"{version}\"}} {times}");
            metrics.text().lines().any(|line| line.starts_with("weir_requests_total") && line.ends_with(&end))
        };
        counted(1, 1) && counted(2, 2)
    });
}
