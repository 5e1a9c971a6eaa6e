//! Filters at the ends of a body: they hold the head until they know what it is, or need nothing more.

use super::*;

/// Holds the head until it knows whether there is a body that begins with these bytes: otherwise the response is another.
struct Holds(&'static [u8], Vec<u8>, bool);

impl Holds {
    fn release(&mut self, exchange: &mut Exchange) -> Vec<u8> {
        self.2 = false;
        if self.1.starts_with(self.0) {
            return std::mem::take(&mut self.1);
        }
        exchange.response.status = 503;
        exchange.response.headers.set("X-Why", b"rubbish");
        b"no".into()
    }
}

impl BodyFilter for Holds {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        if !self.2 {
            return chunk;
        }
        self.1.extend(chunk);
        if self.1.len() < self.0.len() { Vec::new() } else { self.release(exchange) }
    }
    fn holds_head(&self) -> bool {
        self.2
    }
    fn end(mut self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        if self.2 { self.release(exchange) } else { Vec::new() }
    }
}

fn holds_head(exchange: &mut Exchange) {
    exchange.filter_response_body(Holds(b"hi th", Vec::new(), true));
}

#[test]
fn a_filter_that_holds_the_head_may_still_change_it() {
    let last: ResponseHook = |exchange| {
        upper(exchange);
        holds_head(exchange);
    };
    for answer in [CHUNKS, UNTIL_CLOSE] {
        let sent = Bench::new(responding(holds_head), answer).send("GET / HTTP/1.1\r\n\r\n");
        let (head, body) = dechunked(&sent);
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "hi there!", "{sent}");
    }
    let hooks: [(ResponseHook, &'static str); 4] =
        [(holds_head, HI), (holds_head, EMPTY), (last, UNTIL_CLOSE), (last, HI)];
    for (response, answer) in hooks {
        let sent = Bench::new(responding(response), answer).send("GET / HTTP/1.1\r\n\r\n");
        let (head, body) = dechunked(&sent);
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("X-Why: rubbish"), "{sent}");
        assert_eq!(body, "no", "{sent}");
    }
    block_on(async {
        let bench = Bench::new(responding(holds_head), HI);
        let (head, body, _) = over_http2(bench.address(), get(), |_| {}).await.unwrap();
        assert_eq!((head.status.as_u16(), &*body), (503, "no"));
    });
}

#[test]
fn a_held_head_is_not_sent_if_the_upstream_breaks_off_or_a_plugin_refuses() {
    const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhi";
    let sent = Bench::new(responding(holds_head), CUT).send("GET / HTTP/1.1\r\n\r\n");
    assert!(sent.starts_with("HTTP/1.1 502 "), "{sent}");
    // What another plugin has buffered is filtered behind the head.
    let replaced = |_: &mut Exchange, _: Vec<u8>| b"hi".to_vec();
    let before = Scripted { response: hold, body: replaced, ..idle() };
    let bench =
        Bench::of(vec![before, responding(holds_head)], json!({ "port": answer_with(CHUNKS).port() }));
    let sent = bench.send("GET / HTTP/1.1\r\n\r\n");
    let (head, body) = dechunked(&sent);
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "no", "{sent}");
}

/// Passes a chunk, which the head waits for, and needs no more.
struct Once(bool);

impl BodyFilter for Once {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        assert!(!std::mem::replace(&mut self.0, true), "it needs no more");
        chunk
    }
    fn holds_head(&self) -> bool {
        !self.0
    }
    fn is_done(&self) -> bool {
        self.0
    }
    fn end(self: Box<Self>, _: &mut Exchange) -> Vec<u8> {
        b".".into()
    }
}

fn once(exchange: &mut Exchange) {
    exchange.filter_response_body(Once(false));
}

#[test]
fn a_filter_that_needs_no_more_ends_the_response_and_leaves_the_upstream() {
    let (leaves, left) = mpsc::channel();
    let address = upstream(move |stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nhi");
        let is_left = match stream.read(&mut [0; 1]) {
            Ok(length) => length == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        leaves.send(is_left).unwrap();
    });
    let bench = Bench::before(responding(once), address);
    let sent = bench.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(dechunked(&sent).1, "hi.");
    assert!(left.recv_timeout(TEST_TIMEOUT).unwrap(), "its connection is closed");
    let over_http2 = block_on(over_http2(bench.address(), get(), |_| {}));
    assert_eq!(&*over_http2.unwrap().1, "hi.");
    assert!(left.recv_timeout(TEST_TIMEOUT).unwrap());
}

#[test]
fn a_filter_may_need_no_more_of_a_body_in_memory() {
    const LEN: usize = 100_000;
    let replaced = |_: &mut Exchange, _: Vec<u8>| vec![b'x'; LEN];
    let before = Scripted { response: hold, body: replaced, ..idle() };
    let own = Scripted {
        access: |_| Flow::Respond(LocalResponse::raw(403, None, "x".repeat(LEN))),
        ..responding(once)
    };
    for plugins in [vec![before, responding(once)], vec![own]] {
        let bench = Bench::of(plugins, json!({ "port": answer_with(CHUNKS).port() }));
        let body = dechunked(&bench.send("GET / HTTP/1.1\r\n\r\n")).1;
        assert!(body.len() < LEN && body.ends_with("x."), "{} bytes", body.len());
    }
}
