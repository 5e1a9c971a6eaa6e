//! Filters of a response's body, between a real client and a real upstream.

mod ends;

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Changes each chunk, and sends these bytes after the last.
struct Each(fn(Vec<u8>) -> Vec<u8>, &'static str);

impl BodyFilter for Each {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        assert!(!chunk.is_empty());
        (self.0)(chunk)
    }
    fn end(self: Box<Self>, _: &mut Exchange) -> Vec<u8> {
        self.1.into()
    }
}

/// Sends nothing before the end, and then what it got between brackets, with the status that it finds in the exchange.
#[derive(Default)]
struct AtTheEnd(Vec<u8>);

impl BodyFilter for AtTheEnd {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        self.0.extend(chunk);
        Vec::new()
    }
    fn end(self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        [b"[", &*self.0, b"]", exchange.response.status.to_string().as_bytes()].concat()
    }
}

type AccessHook = fn(&mut Exchange) -> Flow;
type ResponseHook = fn(&mut Exchange);

fn upper(exchange: &mut Exchange) {
    exchange.filter_response_body(Each(|chunk| chunk.to_ascii_uppercase(), ""));
}

fn at_the_end(exchange: &mut Exchange) {
    exchange.filter_response_body(AtTheEnd::default());
}

fn hold(exchange: &mut Exchange) {
    exchange.buffer_response_body();
}

fn responding(response: fn(&mut Exchange)) -> Scripted {
    Scripted { response, ..idle() }
}

/// One that answers in the place of the upstream.
fn answering(response: fn(&mut Exchange)) -> Scripted {
    Scripted { access: |_| Flow::Respond(LocalResponse::raw(403, None, "gone")), response, ..idle() }
}

const CHUNKS: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                      2\r\nhi\r\n7\r\n there!\r\n0\r\n\r\n";
const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi there!";
const EMPTY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// The head and the body of a response in chunks that came to its end.
fn dechunked(response: &str) -> (&str, String) {
    let (head, mut rest) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Transfer-Encoding: chunked") && !head.contains("Content-Length"), "{head}");
    let mut body = String::new();
    loop {
        let (size, data) = rest.split_once("\r\n").expect(response);
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&data[..size]);
        rest = data[size..].strip_prefix("\r\n").unwrap();
        if size == 0 {
            assert_eq!(rest, "");
            return (head, body);
        }
    }
}

fn body(plugin: Scripted, answer: &'static str) -> String {
    dechunked(&Bench::new(plugin, answer).send("GET / HTTP/1.1\r\n\r\n")).1
}

#[test]
fn a_filter_may_return_less_more_or_nothing() {
    let as_it_is = |exchange: &mut Exchange| exchange.filter_response_body(Each(|chunk| chunk, ""));
    let swallows = |exchange: &mut Exchange| exchange.filter_response_body(Each(|_| Vec::new(), ""));
    let doubles = |exchange: &mut Exchange| exchange.filter_response_body(Each(|chunk| chunk.repeat(2), "."));
    for (answer, sent) in [(HI, "hi"), (CHUNKS, "hi there!"), (UNTIL_CLOSE, "hi there!"), (EMPTY, "")] {
        assert_eq!(body(responding(as_it_is), answer), sent);
        assert_eq!(body(responding(upper), answer), sent.to_uppercase());
        assert_eq!(body(responding(swallows), answer), "");
        assert_eq!(body(responding(at_the_end), answer), format!("[{sent}]200"));
        let doubled = body(responding(doubles), answer);
        assert_eq!(doubled.len(), 2 * sent.len() + 1, "{doubled}");
    }
}

#[test]
fn filters_run_in_the_order_of_their_plugins() {
    for (plugins, expected) in [
        (
            vec![responding(upper), responding(|x| x.filter_response_body(Each(|chunk| chunk, "end")))],
            "HIend",
        ),
        (
            vec![responding(|x| x.filter_response_body(Each(|chunk| chunk, "end"))), responding(upper)],
            "HIEND",
        ),
        (vec![responding(at_the_end), responding(at_the_end)], "[[hi]200]200"),
    ] {
        let upstream = answer_with(HI);
        let bench = Bench::of(plugins, json!({ "port": upstream.port() }));
        assert_eq!(dechunked(&bench.send("GET / HTTP/1.1\r\n\r\n")).1, expected);
    }
}

/// An upstream that answers every request so, and closes.
fn answer_with(answer: &'static str) -> SocketAddr {
    upstream(move |stream| {
        let _ = stream.write_all(answer.as_bytes());
    })
}

/// An upstream that does this once a request is read.
fn upstream(answer: impl Fn(&mut TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            request(&mut stream);
            answer(&mut stream);
        }
    });
    address
}

#[test]
fn a_body_that_is_held_is_filtered_once_it_is_replaced() {
    let replaced = |_: &mut Exchange, body: Vec<u8>| [&*body, b" held"].concat();
    let before = || Scripted { response: hold, body: replaced, ..idle() };
    let both = Scripted {
        response: |exchange| {
            upper(exchange);
            hold(exchange);
        },
        body: replaced,
        ..idle()
    };
    let orders = [vec![before(), responding(upper)], vec![responding(upper), before()], vec![both]];
    for plugins in orders {
        let bench = Bench::of(plugins, json!({ "port": answer_with(CHUNKS).port() }));
        assert_eq!(dechunked(&bench.send("GET / HTTP/1.1\r\n\r\n")).1, "HI THERE! HELD");
    }
    let own = vec![answering(hold), before(), responding(upper)];
    let bench = Bench::of(own, json!({ "port": answer_with(HI).port() }));
    assert_eq!(dechunked(&bench.send("GET / HTTP/1.1\r\n\r\n")).1, "GONE HELD");
}

#[test]
fn a_body_that_is_too_long_to_be_held_is_filtered_all_the_same() {
    const LEN: usize = 9 << 20;
    let replaced = |_: &mut Exchange, _: Vec<u8>| unreachable!("it is longer than what is held");
    for head in ["Content-Length: 9437184", "X-Until: close"] {
        let address = upstream(move |stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
            let _ = stream.write_all(&vec![b'x'; LEN]);
        });
        let holds = Scripted { response: hold, body: replaced, ..idle() };
        let bench = Bench::of(vec![holds, responding(upper)], json!({ "port": address.port() }));
        let response = bench.send("GET / HTTP/1.1\r\n\r\n");
        let (_, body) = dechunked(&response);
        assert!(body.len() == LEN && body.bytes().all(|byte| byte == b'X'), "{} bytes", body.len());
    }
}

#[test]
fn a_body_that_is_left_out_is_not_filtered() {
    let drops = |exchange: &mut Exchange| {
        at_the_end(exchange);
        exchange.drop_response_body();
    };
    let response = Bench::new(responding(drops), HI).send("GET / HTTP/1.1\r\n\r\n");
    assert!(response.contains("Content-Length: 0\r\n") && response.ends_with("\r\n\r\n"), "{response}");
}

#[test]
fn responses_without_a_body_stay_so() {
    const NOT_MODIFIED: &str = "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nConnection: close\r\n\r\n";
    const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n";
    let asks_with_get = |exchange: &mut Exchange| {
        exchange.set_method("GET");
        Flow::Continue
    };
    for (plugin, answer, method) in [
        (responding(at_the_end), NOT_MODIFIED, "GET"),
        (responding(at_the_end), NO_CONTENT, "GET"),
        (responding(at_the_end), HEAD, "HEAD"),
        (Scripted { access: asks_with_get, ..responding(at_the_end) }, HI, "HEAD"),
        (answering(at_the_end), HI, "HEAD"),
    ] {
        let response = Bench::new(plugin, answer).send(&format!("{method} / HTTP/1.1\r\n\r\n"));
        let has = |name| response.to_ascii_lowercase().contains(name);
        assert!(response.ends_with("\r\n\r\n"), "{method} {answer}: {response}");
        assert!(!has("content-length") && !has("transfer-encoding"), "{method} {answer}: {response}");
    }
}

#[test]
fn a_client_of_http_1_0_gets_it_to_the_end_of_the_connection() {
    for plugin in [responding(at_the_end), answering(at_the_end)] {
        let response = Bench::new(plugin, CHUNKS).send("GET / HTTP/1.0\r\n\r\n");
        assert!(response.ends_with("[hi there!]200") || response.ends_with("[gone]403"), "{response}");
        assert!(
            !response.contains("Transfer-Encoding") && !response.contains("Content-Length"),
            "{response}"
        );
    }
}

#[test]
fn the_gateways_own_responses_are_filtered_also_cached_ones() {
    assert_eq!(body(answering(at_the_end), HI), "[gone]403");
    let cached = |_: &mut Exchange| {
        let mut headers = Headers::new();
        headers.append("Content-Length", b"100000");
        let body = Bytes::from(vec![b'x'; 100_000]);
        Flow::Respond(LocalResponse::cached(200, Arc::new(headers), body))
    };
    let body = body(Scripted { access: cached, ..responding(upper) }, HI);
    assert!(body.len() == 100_000 && body.bytes().all(|byte| byte == b'X'), "{} bytes", body.len());
    let response = Bench::new(Scripted { access: cached, ..responding(upper) }, HI);
    let head = response.send("HEAD / HTTP/1.1\r\n\r\n");
    assert!(!head.contains("Content-Length") && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn a_connection_goes_on_after_a_body_that_was_filtered() {
    let bench = Bench::new(responding(at_the_end), HI);
    let mut stream = TcpStream::connect(bench.address()).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert!(until(&mut stream, "0\r\n\r\n").contains("[hi]200"));
    }
}

/// What arrives, to this text.
fn until(stream: &mut TcpStream, end: &str) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.ends_with(end) {
        match stream.read(&mut buffer).unwrap() {
            0 => panic!("it ended after {text}"),
            n => text.push_str(std::str::from_utf8(&buffer[..n]).unwrap()),
        }
    }
    text
}

#[test]
fn each_chunk_leaves_before_the_next_comes() {
    let (arrived, next) = mpsc::channel();
    let address = upstream(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
        for event in ["data: one\n\n", "data: two\n\n"] {
            let _ = stream.write_all(event.as_bytes());
            next.recv_timeout(TEST_TIMEOUT).unwrap();
        }
    });
    let bench = Bench::before(responding(upper), address);
    let mut stream = bench.connect("GET / HTTP/1.1\r\n\r\n");
    for event in ["DATA: ONE\n\n\r\n", "DATA: TWO\n\n\r\n", "0\r\n\r\n"] {
        until(&mut stream, event);
        let _ = arrived.send(());
    }
}

/// Says which bytes it got, and whether that is all.
struct Reports(Vec<u8>, bool);

static REPORTS: Mutex<Option<Sender<String>>> = Mutex::new(None);

impl BodyFilter for Reports {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        self.0.extend_from_slice(&chunk);
        chunk.to_ascii_uppercase()
    }
    fn end(mut self: Box<Self>, _: &mut Exchange) -> Vec<u8> {
        self.1 = true;
        Vec::new()
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let reports = REPORTS.lock().unwrap();
        let _ = reports.as_ref().unwrap().send(format!("{} {}", self.1, String::from_utf8_lossy(&self.0)));
    }
}

#[test]
fn a_body_that_breaks_off_is_passed_on_as_broken() {
    let (sender, reports) = mpsc::channel();
    *REPORTS.lock().unwrap() = Some(sender);
    let (arrived, next) = mpsc::channel();
    let address = upstream(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi");
        next.recv_timeout(TEST_TIMEOUT).unwrap();
    });
    let plugin = || responding(|exchange| exchange.filter_response_body(Reports(Vec::new(), false)));
    let bench = Bench::before(plugin(), address);
    let mut stream = bench.connect("GET / HTTP/1.1\r\n\r\n");
    until(&mut stream, "HI\r\n");
    arrived.send(()).unwrap();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert_eq!(rest, "", "no last chunk");
    assert_eq!(reports.recv_timeout(TEST_TIMEOUT).unwrap(), "false hi");
    let over_http2 = block_on(over_http2(bench.address(), get(), |_| arrived.send(()).unwrap()));
    assert_eq!(over_http2.unwrap_err().reason(), Some(h2::Reason::INTERNAL_ERROR));
    assert_eq!(reports.recv_timeout(TEST_TIMEOUT).unwrap(), "false hi");
    // Nothing of it has left while it is held: the answer in its place goes through a filter of its own.
    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhi";
    let bench = Bench::of(vec![plugin(), responding(hold)], json!({ "port": answer_with(CUT).port() }));
    let response = bench.send("GET / HTTP/1.1\r\n\r\n");
    let (head, body) = dechunked(&response);
    assert!(head.starts_with("HTTP/1.1 502") && body.contains("UPSTREAM"), "{response}");
    assert_eq!(reports.recv_timeout(TEST_TIMEOUT).unwrap(), "false ");
    assert!(reports.recv_timeout(TEST_TIMEOUT).unwrap().starts_with("true An invalid response"));
}

static SEEN: Mutex<Option<Sender<String>>> = Mutex::new(None);

#[test]
fn observers_see_what_the_upstream_sent_and_what_the_client_gets() {
    let (sender, seen) = mpsc::channel();
    *SEEN.lock().unwrap() = Some(sender);
    fn capture() -> Capture {
        Capture(Vec::new(), false, SEEN.lock().unwrap().clone().unwrap())
    }
    let access = |exchange: &mut Exchange| {
        exchange.observe_upstream(capture());
        Flow::Continue
    };
    let response = |exchange: &mut Exchange| {
        exchange.observe_response(capture());
        at_the_end(exchange);
    };
    assert_eq!(body(Scripted { access, response, ..idle() }, CHUNKS), "[hi there!]200");
    let mut both = [seen.recv_timeout(TEST_TIMEOUT).unwrap(), seen.recv_timeout(TEST_TIMEOUT).unwrap()];
    both.sort();
    assert_eq!(both, ["true [hi there!]200", "true hi there!"]);
}

/// Bytes that filters have taken of a body without an end.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

#[test]
fn a_slow_client_stops_the_upstream() {
    const LEN: usize = 10 << 20;
    let address = upstream(|stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 65_536]).is_ok() {}
    });
    let counts = |exchange: &mut Exchange| {
        exchange.filter_response_body(Each(
            |chunk| {
                TAKEN.fetch_add(chunk.len(), Relaxed);
                chunk.to_ascii_uppercase()
            },
            "",
        ));
    };
    let bench = Bench::before(responding(counts), address);
    let mut stream = bench.connect("GET / HTTP/1.1\r\n\r\n");
    let mut before = 0;
    while before == 0 || TAKEN.load(Relaxed) > before {
        before = TAKEN.load(Relaxed);
        assert!(before < 256 << 20, "the upstream is read however little the client takes");
        thread::sleep(Duration::from_millis(200));
    }
    let mut response = vec![0; LEN];
    stream.read_exact(&mut response).unwrap();
    let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    assert!(!response[head..].contains(&b'x'));
}

fn get() -> http::Request<()> {
    http::Request::get("http://localhost/").body(()).unwrap()
}

/// A response over HTTP/2: its head, its body, and what it ends with. Calls the closure with what comes.
async fn over_http2(
    address: SocketAddr,
    request: http::Request<()>,
    comes: impl Fn(&[u8]),
) -> Result<(http::response::Parts, String, Option<http::HeaderMap>), h2::Error> {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    let (requests, connection) = h2::client::handshake(tcp).await?;
    tokio::task::spawn_local(connection);
    let (response, _) = requests.ready().await?.send_request(request, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut text = String::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        comes(&data);
        text.push_str(std::str::from_utf8(&data).unwrap());
    }
    Ok((head, text, body.trailers().await?))
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::LocalRuntime::new().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, task).await.unwrap() })
}

#[test]
fn over_http2_a_filtered_body_has_no_length() {
    let head = || http::Request::head("http://localhost/").body(()).unwrap();
    block_on(async {
        for (plugin, expected) in [(responding(at_the_end), "[hi]200"), (answering(at_the_end), "[gone]403")]
        {
            let bench = Bench::new(plugin, HI);
            let (response, body, _) = over_http2(bench.address(), get(), |_| {}).await.unwrap();
            assert_eq!((response.headers.get("content-length"), &*body), (None, expected));
            let (response, body, _) = over_http2(bench.address(), head(), |_| {}).await.unwrap();
            assert_eq!((response.headers.get("content-length"), &*body), (None, ""));
        }
    });
}

/// An upstream that answers calls with two messages and a status.
async fn grpc_upstream(listener: tokio::net::TcpListener) {
    let (tcp, _) = listener.accept().await.unwrap();
    let mut connection = h2::server::handshake(tcp).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let head = http::Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        stream.send_data(Bytes::from_static(b"one"), false).unwrap();
        stream.send_data(Bytes::from_static(b"two"), false).unwrap();
        let status = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("grpc-status"),
            http::HeaderValue::from_static("0"),
        )]);
        stream.send_trailers(status).unwrap();
    }
}

#[test]
fn a_grpc_call_is_filtered_and_keeps_its_trailers() {
    block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let service = json!({ "port": listener.local_addr().unwrap().port(), "protocol": "grpc" });
        tokio::task::spawn_local(grpc_upstream(listener));
        let ends = |exchange: &mut Exchange| {
            exchange.filter_response_body(Each(|chunk| chunk.to_ascii_uppercase(), "!"));
        };
        let bench = Bench::of(vec![responding(ends)], service);
        let call = http::Request::post("http://localhost/a/b").header("content-type", "application/grpc");
        let (_, body, trailers) = over_http2(bench.address(), call.body(()).unwrap(), |_| {}).await.unwrap();
        assert_eq!(body, "ONETWO!");
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    });
}

/// The client expects no body where the status, or its own method, says that there is none. Its connection goes on.
#[test]
fn a_body_that_no_client_expects_is_left_out() {
    let filtered = |exchange: &mut Exchange| {
        exchange.response.status = 204;
        upper(exchange);
    };
    let by_get = |exchange: &mut Exchange| {
        exchange.set_method("GET");
        Flow::Continue
    };
    let same: AccessHook = |_| Flow::Continue;
    let hooks: [(AccessHook, ResponseHook, &str, u16); 4] = [
        (same, |exchange| exchange.response.status = 204, "GET", 204),
        (same, |exchange| exchange.response.status = 304, "GET", 304),
        (same, filtered, "GET", 204),
        (by_get, |_| {}, "HEAD", 200),
    ];
    for (access, response, method, status) in hooks {
        for answer in [HI, CHUNKS, UNTIL_CLOSE] {
            let upstream = answer_with(answer);
            let bench =
                Bench::of(vec![Scripted { access, response, ..idle() }], json!({ "port": upstream.port() }));
            let mut stream = TcpStream::connect(bench.address()).unwrap();
            stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n");
            stream.write_all(format!("{request}\r\n{request}Connection: close\r\n\r\n").as_bytes()).unwrap();
            let mut responses = String::new();
            stream.read_to_string(&mut responses).unwrap();
            assert_eq!(responses.matches(&format!("HTTP/1.1 {status} ")).count(), 2, "{responses}");
            assert!(!responses.to_lowercase().contains("\r\n\r\nhi"), "{responses}");
        }
    }
}

#[test]
fn a_body_that_is_too_long_to_be_held_may_be_refused() {
    const LEN: usize = 9 << 20;
    let or_refuse = |exchange: &mut Exchange| {
        exchange.buffer_response_body_or(|exchange| {
            exchange.response.status = 502;
            b"too long".into()
        });
    };
    let replaced = |_: &mut Exchange, body: Vec<u8>| [&*body, b"!"].concat();
    for head in ["Content-Length: 9437184", "X-Until: close"] {
        let address = upstream(move |stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n");
            let _ = stream.write_all(&vec![b'x'; LEN]);
        });
        let refuses = Scripted { response: or_refuse, body: replaced, ..idle() };
        let sent = Bench::before(refuses, address).send("GET / HTTP/1.1\r\n\r\n");
        assert!(sent.starts_with("HTTP/1.1 502 ") && sent.ends_with("\r\n\r\ntoo long!"), "{sent}");
    }
    let refuses = Scripted { response: or_refuse, body: replaced, ..idle() };
    let sent = Bench::new(refuses, HI).send("GET / HTTP/1.1\r\n\r\n");
    assert!(sent.starts_with("HTTP/1.1 200 ") && sent.ends_with("\r\n\r\nhi!"), "{sent}");
}
