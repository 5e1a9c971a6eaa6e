//! Filters that need nothing more of a body.

use super::*;

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
