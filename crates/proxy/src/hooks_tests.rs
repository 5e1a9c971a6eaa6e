//! Tests of the plugin contract: plugins that use it, between a real client and a real upstream.

#![allow(clippy::disallowed_methods, reason = "these threads are the tests' own")]

mod body_filters;
mod fallback;
mod phases;
mod upstream_replacement;

use crate::observe::access_log::{AccessLog, Format, Target};
use crate::snapshot::CompiledRoute;
use crate::snapshot::chain::{Chain, Instance, Step};
use crate::testing::{Gateway, entity, id};
use crate::{AccessLogs, Listen, Options, Proxy};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use weir_plugin::*;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A plugin whose hooks a test writes.
struct Scripted {
    access: fn(&mut Exchange) -> Flow,
    response: fn(&mut Exchange),
    body: fn(&mut Exchange, Vec<u8>) -> Vec<u8>,
    /// The text that it logs of each finished exchange.
    log: fn(&Exchange) -> String,
    reports: Mutex<Option<Sender<String>>>,
}

/// One that does nothing.
fn idle() -> Scripted {
    Scripted {
        access: |_| Flow::Continue,
        response: |_| {},
        body: |_, body| body,
        log: |_| String::new(),
        reports: Mutex::new(None),
    }
}

impl Hooks for Scripted {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        (self.access)(exchange)
    }
    fn response(&self, exchange: &mut Exchange) {
        (self.response)(exchange);
    }
    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        (self.body)(exchange, body)
    }
    fn log(&self, exchange: &mut Exchange) {
        if let Some(reports) = &*self.reports.lock().unwrap() {
            let _ = reports.send((self.log)(exchange));
        }
    }
}

/// A gateway with one plugin before one upstream.
struct Bench {
    proxy: Proxy,
    asked: Receiver<String>,
    logged: Receiver<String>,
}

impl Bench {
    /// The upstream answers everything with these bytes and closes.
    fn new(plugin: Scripted, answer: &'static str) -> Self {
        let (reports, asked) = mpsc::channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                if reports.send(request(&mut stream)).is_err() {
                    return;
                }
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        Self { asked, ..Self::before(plugin, address) }
    }

    fn before(plugin: Scripted, upstream: SocketAddr) -> Self {
        Self::of(vec![plugin], json!({ "port": upstream.port() }))
    }

    /// With these plugins, in this order, and a service on this machine.
    fn of(plugins: Vec<Scripted>, mut service: Json) -> Self {
        let (reports, logged) = mpsc::channel();
        let mut gateway = Gateway::new();
        for (name, value) in [("id", json!(id(0x51))), ("host", json!("127.0.0.1")), ("retries", json!(1))] {
            service[name] = value;
        }
        gateway.document.services = vec![entity(service)];
        let mut snapshot = gateway.snapshot();
        let route = &snapshot.routes[0];
        let step = |plugin: Scripted| {
            *plugin.reports.lock().unwrap() = Some(reports.clone());
            let instance = Instance {
                id: id(1),
                name: "probe",
                authenticates: false,
                hooks: Arc::new(plugin),
                http: Phases::ALL,
                https: Phases::ALL,
                stream: Phases::NONE,
            };
            Step { base: Some(instance), ..Step::default() }
        };
        let chain = Chain::new(plugins.into_iter().map(step).collect());
        let route = CompiledRoute::new(&route.entity, route.service.as_ref(), Arc::new(chain));
        snapshot.routes = Arc::new([route]);
        let listen = vec![Listen { http2: true, ..Listen::http(SocketAddr::from(([127, 0, 0, 1], 0))) }];
        let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
        let logs = AccessLogs { requests: off(), sessions: off() };
        let proxy = Proxy::start(Options { listen, ..Options::default() }, logs, snapshot, &gateway.retained)
            .unwrap();
        Self { proxy, asked: mpsc::channel().1, logged }
    }

    fn address(&self) -> SocketAddr {
        self.proxy.listening()[0].address.ip().unwrap()
    }

    /// A connection that has sent a request.
    fn connect(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let (line, rest) = request.split_once("\r\n").unwrap();
        stream.write_all(format!("{line}\r\nHost: a\r\nConnection: close\r\n{rest}").as_bytes()).unwrap();
        stream
    }

    /// The response to a request on a connection of its own.
    fn send(&self, request: &str) -> String {
        let mut stream = self.connect(request);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        String::from_utf8(response).unwrap()
    }

    fn asked(&self) -> String {
        self.asked.recv_timeout(TEST_TIMEOUT).unwrap()
    }

    fn logged(&self) -> String {
        self.logged.recv_timeout(TEST_TIMEOUT).unwrap()
    }
}

/// A request, to the end of its body or of the connection.
fn request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            let is_whole = match length {
                Some(length) => body.len() >= length.parse::<usize>().unwrap(),
                None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
            };
            if is_whole {
                return text;
            }
        }
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => text.push_str(std::str::from_utf8(&buffer[..n]).unwrap()),
            _ => return format!("{text}|broken off"),
        }
    }
}

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";

#[test]
fn an_access_hook_changes_what_the_upstream_is_asked() {
    let access = |exchange: &mut Exchange| {
        exchange.set_method("PUT");
        exchange.set_method("no method");
        exchange.set_upstream_path("/new path\r\n");
        exchange.set_query("a=b c\r\nX: y".into());
        exchange.set_upstream_host("other.test:81");
        exchange.set_upstream_host("evil\r\nX: y");
        assert!(exchange.set_body(b"body".to_vec()));
        Flow::Continue
    };
    let log = |exchange: &Exchange| String::from_utf8(exchange.upstream_uri().unwrap()).unwrap();
    let bench = Bench::new(Scripted { access, log, ..idle() }, HI);
    let response = bench.send("GET /old?x=y HTTP/1.1\r\n\r\n");
    assert!(response.ends_with("\r\n\r\nhi"), "{response}");
    let asked = bench.asked();
    let line = "PUT /new%20path%0D%0A?a=b%20c%0D%0AX:%20y HTTP/1.1\r\nHost: other.test:81\r\n";
    assert!(asked.starts_with(line), "{asked}");
    assert!(asked.contains("X-Forwarded-Path: /old\r\n"), "{asked}");
    assert!(asked.contains("Content-Length: 4\r\n") && asked.ends_with("\r\n\r\nbody"), "{asked}");
    assert_eq!(bench.logged(), "/new%20path%0D%0A?a=b%20c%0D%0AX:%20y");
}

#[test]
fn a_body_that_streams_is_not_replaced() {
    let access = |exchange: &mut Exchange| {
        assert!(!exchange.set_body(b"other".to_vec()));
        Flow::Continue
    };
    let bench = Bench::new(Scripted { access, ..idle() }, HI);
    bench.send("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nown");
    assert!(bench.asked().ends_with("\r\n\r\nown"));
}

#[test]
fn a_client_that_asks_for_a_head_gets_no_body_whatever_the_upstream_is_asked() {
    let access = |exchange: &mut Exchange| {
        exchange.set_method("GET");
        Flow::Continue
    };
    let bench = Bench::new(Scripted { access, ..idle() }, HI);
    let response = bench.send("HEAD / HTTP/1.1\r\n\r\n");
    assert!(bench.asked().starts_with("GET / "));
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\n"), "{response}");
    let access = |exchange: &mut Exchange| {
        exchange.set_method("GET");
        Flow::Respond(LocalResponse::message(403, "no"))
    };
    let response = Bench::new(Scripted { access, ..idle() }, HI).send("HEAD / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 403") && response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn a_response_body_is_replaced_with_its_length() {
    const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                          2\r\nhi\r\n7\r\n there!\r\n0\r\n\r\n";
    let response = |exchange: &mut Exchange| exchange.buffer_response_body();
    let body = |exchange: &mut Exchange, body: Vec<u8>| {
        exchange.response.headers.set("X-Was", body.len().to_string().as_bytes());
        body.to_ascii_uppercase()
    };
    for (answer, length, text) in [(HI, 2, "HI"), (CHUNKS, 9, "HI THERE!")] {
        let bench = Bench::new(Scripted { response, body, ..idle() }, answer);
        let response = bench.send("GET / HTTP/1.1\r\n\r\n");
        let has = |line: String| response.contains(&line);
        assert!(
            has(format!("Content-Length: {length}\r\n")) && has(format!("X-Was: {length}\r\n")),
            "{response}"
        );
        assert!(!has("chunked".into()) && response.ends_with(&format!("\r\n\r\n{text}")), "{response}");
    }
    let access = |_: &mut Exchange| Flow::Respond(LocalResponse::raw(403, None, "gone"));
    let bench = Bench::new(Scripted { access, response, body, ..idle() }, HI);
    assert!(bench.send("GET / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nGONE"), "the gateway's own answers too");
}

#[test]
fn a_body_takes_the_place_of_one_that_is_too_long_to_be_buffered() {
    let response = |exchange: &mut Exchange| exchange.set_response_body(b"short".to_vec());
    let long = 9 * 1024 * 1024;
    let sized = format!("HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n{}", "x".repeat(long));
    let until_close = format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", "x".repeat(long));
    for answer in [HI.to_owned(), sized, until_close] {
        let bench = Bench::new(Scripted { response, ..idle() }, &*answer.leak());
        let response = bench.send("GET / HTTP/1.1\r\n\r\n");
        let is_whole = response.contains("Content-Length: 5\r\n") && response.ends_with("\r\n\r\nshort");
        assert!(is_whole, "{response:.500}");
    }
}

#[test]
fn a_response_that_breaks_off_while_it_is_held_is_answered_for() {
    let response = |exchange: &mut Exchange| exchange.buffer_response_body();
    let bench = Bench::new(Scripted { response, ..idle() }, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi");
    let response = bench.send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 502"), "{response}");
}

/// Refuses a body once it is longer than three bytes.
fn at_most_three(exchange: &mut Exchange) -> Flow {
    let mut seen = 0;
    exchange.observe_request(move |data| {
        seen += data.len();
        if seen > 3 { Err(LocalResponse::message(413, "too long")) } else { Ok(()) }
    });
    Flow::Continue
}

#[test]
fn a_request_body_is_refused_on_its_way() {
    let bench = Bench::new(Scripted { access: at_most_three, ..idle() }, HI);
    assert!(bench.send("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").ends_with("hi"));
    assert!(bench.asked().ends_with("\r\n\r\nabc"));
    for request in [
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd",
    ] {
        let response = bench.send(request);
        assert!(response.starts_with("HTTP/1.1 413") && response.contains("too long"), "{response}");
    }
}

/// Reports whether it saw the end, and what it saw.
struct Capture(Vec<u8>, bool, Sender<String>);

impl Observer for Capture {
    fn data(&mut self, data: &[u8]) {
        self.0.extend_from_slice(data);
    }
    fn end(mut self: Box<Self>) {
        self.1 = true;
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.2.send(format!("{} {}", self.1, String::from_utf8_lossy(&self.0)));
    }
}

static CAPTURED: Mutex<Option<Sender<String>>> = Mutex::new(None);

#[test]
fn a_response_is_seen_as_it_passes_and_its_end_if_it_is_whole() {
    let (sender, captured) = mpsc::channel();
    *CAPTURED.lock().unwrap() = Some(sender);
    let response = |exchange: &mut Exchange| {
        let reports = CAPTURED.lock().unwrap().clone().unwrap();
        exchange.observe_response(Capture(Vec::new(), false, reports));
    };
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhi";
    for (answer, expected) in [(HI, "true hi"), (cut, "false hi")] {
        Bench::new(Scripted { response, ..idle() }, answer).send("GET / HTTP/1.1\r\n\r\n");
        assert_eq!(captured.recv_timeout(TEST_TIMEOUT).unwrap(), expected);
    }
}

/// Reports the status and the bytes that it saw, whole or not.
struct Witness(u16, Capture);

impl Observer for Witness {
    fn head(&mut self, exchange: &Exchange) -> bool {
        self.0 = exchange.response.status;
        exchange.response.headers.get("X-Unseen").is_none()
    }
    fn data(&mut self, data: &[u8]) {
        self.1.data(data);
    }
    fn end(self: Box<Self>) {
        assert_eq!(self.0, 200, "the head came first, and as it was");
        Box::new(self.1).end();
    }
}

static WITNESSED: Mutex<Option<Sender<String>>> = Mutex::new(None);

#[test]
fn the_upstream_is_seen_as_it_answers_whatever_becomes_of_it() {
    let (sender, witnessed) = mpsc::channel();
    *WITNESSED.lock().unwrap() = Some(sender);
    let access = |exchange: &mut Exchange| {
        let reports = WITNESSED.lock().unwrap().clone().unwrap();
        exchange.observe_upstream(Witness(0, Capture(Vec::new(), false, reports)));
        if exchange.path() == "/own" {
            Flow::Respond(LocalResponse::message(403, "no"))
        } else {
            Flow::Continue
        }
    };
    let replace = |exchange: &mut Exchange| {
        exchange.response.status = 201;
        exchange.buffer_response_body();
    };
    let body = |_: &mut Exchange, _: Vec<u8>| b"another".to_vec();
    let unseen = "HTTP/1.1 200 OK\r\nX-Unseen: 1\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhi";
    let plain = Scripted { access, ..idle() };
    let replaced = Scripted { access, response: replace, body, ..idle() };
    let dropped = Scripted { access, response: |exchange| exchange.drop_response_body(), ..idle() };
    for (plugin, path, answer, expected) in [
        (plain, "/", HI, "true hi"),
        (replaced, "/", HI, "true hi"),
        (dropped, "/", HI, "true hi"),
        (Scripted { access, ..idle() }, "/", unseen, "false "),
        (Scripted { access, ..idle() }, "/", cut, "false hi"),
        (Scripted { access, ..idle() }, "/own", HI, "false "),
    ] {
        Bench::new(plugin, answer).send(&format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert_eq!(witnessed.recv_timeout(TEST_TIMEOUT).unwrap(), expected, "{path} {answer}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "x".repeat(300_000));
    let dropped = Scripted { access, response: |exchange| exchange.drop_response_body(), ..idle() };
    Bench::new(dropped, Box::leak(long.into())).send("GET / HTTP/1.1\r\n\r\n");
    let seen = witnessed.recv_timeout(TEST_TIMEOUT).unwrap();
    assert!(seen.starts_with("false "), "{} bytes are not all of it", seen.len());
}

#[test]
fn a_response_body_is_left_out_however_long_it_is() {
    let response = |exchange: &mut Exchange| {
        exchange.response.status = 429;
        exchange.drop_response_body();
    };
    let endless: &str =
        Box::leak(format!("HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n{}", "x".repeat(200_000)).into());
    for answer in [HI, endless] {
        let response = Bench::new(Scripted { response, ..idle() }, answer).send("GET / HTTP/1.1\r\n\r\n");
        assert!(response.starts_with("HTTP/1.1 429") && response.ends_with("\r\n\r\n"), "{}", response.len());
        assert!(response.contains("Content-Length: 0\r\n"), "{response}");
    }
}

#[test]
fn a_cached_response_is_answered_with_its_own_headers() {
    let access = |_: &mut Exchange| {
        let mut headers = Headers::new();
        headers.append("Date", b"Thu, 01 Jan 1970 00:00:00 GMT");
        headers.append("X-Cached", b"yes");
        let body = Bytes::from_static(b"cached");
        Flow::Respond(LocalResponse::cached(203, Arc::new(headers), body).header(String::from("Age"), "7"))
    };
    let response = Bench::new(Scripted { access, ..idle() }, HI).send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.starts_with("HTTP/1.1 203") && response.ends_with("\r\n\r\ncached"), "{response}");
    assert_eq!(response.matches("Date: ").count(), 1, "{response}");
    assert!(response.contains("X-Cached: yes\r\nAge: 7\r\n"), "{response}");
}

#[test]
fn the_log_hook_is_told_where_time_went_and_which_tries_failed() {
    let log = |exchange: &Exchange| {
        let latencies = exchange.latencies();
        assert!(latencies.request >= latencies.kong + latencies.proxy.unwrap_or_default());
        let (tries, status) = (exchange.failed_tries(), exchange.upstream_status());
        let addresses: Vec<_> = tries.iter().map(|failed| failed.address.is_some()).collect();
        format!("{addresses:?} {status:?} {}", exchange.upstream_address().is_some())
    };
    let bench = Bench::new(Scripted { log, ..idle() }, HI);
    bench.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(bench.logged(), "[] Some(200) true");
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = Bench::before(Scripted { log, ..idle() }, unused);
    assert!(bench.send("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 502"));
    assert_eq!(bench.logged(), "[true, true] None false", "one try and one more");
}

/// Panics in the hook that calls it.
fn fails() -> Flow {
    panic!("as it was asked to")
}

#[test]
fn a_panic_is_the_plugins_that_ran_whichever_hook_it_was() {
    let access = |exchange: &mut Exchange| match exchange.request.path() {
        "/hook" => fails(),
        "/wait" => Flow::Wait(Box::pin(async {
            let flow = fails();
            Box::new(|_: &mut Exchange| flow) as Resume
        })),
        "/resume" => Flow::Wait(Box::pin(async { Box::new(|_: &mut Exchange| fails()) as Resume })),
        _ => Flow::Continue,
    };
    let response = |exchange: &mut Exchange| assert_ne!(exchange.request.path(), "/response");
    let bench = Bench::new(Scripted { access, response, ..idle() }, HI);
    let mut gateway = Gateway::new();
    gateway.document.plugins = vec![entity(json!({ "id": id(1), "name": "cors", "config": {} }))];
    for (count, path) in (1..).zip(["/hook", "/wait", "/resume", "/response"]) {
        let answer = bench.send(&format!("GET {path} HTTP/1.1\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 500"), "{path}: {answer}");
        let costs = bench.proxy.costs().of(&gateway.document);
        assert_eq!(costs.iter().map(|cost| cost.errors).sum::<u64>(), count, "{path}");
    }
    assert!(bench.send("GET /fine HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
}
