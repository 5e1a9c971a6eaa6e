//! The code that a client's stream is reset with where a response breaks off: an upstream that cancels must not look like a failure
//! of the gateway.
use crate::grpc_web::frame;
use crate::harness::http2::{Frames, block_on, connect, start};
use crate::harness::http2_upstream::Http2Upstream;
use crate::harness::{Gateway, Upstream, document, service};
use crate::http3::client::Client;
use h2::Reason;
use h2::server::Builder;
use http::{Request, Response};
use std::io::Read;
use std::net::SocketAddr;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;

const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// What upstreams reset with, and what clients get.
const CODES: [(u32, u32); 6] = [
    (CANCEL, CANCEL),
    (INTERNAL_ERROR, INTERNAL_ERROR),
    // REFUSED_STREAM, when the response has begun.
    (7, INTERNAL_ERROR),
    // NO_ERROR, PROTOCOL_ERROR, ENHANCE_YOUR_CALM.
    (0, INTERNAL_ERROR),
    (1, INTERNAL_ERROR),
    (11, INTERNAL_ERROR),
];

/// An upstream that begins a response on each connection, and resets it with the next code once it is let.
fn breaking_off(wait: impl Fn() + Send + Sync + 'static) -> Upstream {
    Upstream::start(move |mut peer, number| {
        peer.reader().read_exact(&mut [0; 24]).unwrap();
        peer.send(Frames::frame(SETTINGS, 0, 0, b""));
        let stream = loop {
            let Some((kind, _, stream)) = Frames::skip(peer.reader()) else { return };
            if kind == HEADERS {
                break stream;
            }
        };
        // 200, from the static table.
        peer.send(Frames::frame(HEADERS, 0x4, stream, b"\x88"));
        peer.send(Frames::frame(DATA, 0, stream, b"begun"));
        wait();
        let (code, _) = CODES[number % CODES.len()];
        peer.send(Frames::frame(RST_STREAM, 0, stream, &code.to_be_bytes()));
    })
}

fn gateway(upstream: SocketAddr, listen: &str) -> Gateway {
    let services = [service("/", upstream, "tags: [weir-upstream-http2]", "")];
    Gateway::builder(&document(&services, "")).set("proxy_listen", listen).start()
}

#[test]
fn a_reset_upstream_shows_over_http2_by_cancel_alone() {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let upstream = breaking_off(move || wait.lock().unwrap().recv().unwrap());
    let gateway = gateway(upstream.address, "127.0.0.1:0 http2");
    for (sent, expected) in CODES {
        let mut client = Frames::connect(gateway.proxy());
        client.send(&Frames::get(1));
        while client.next().expect("a response").0 != DATA {}
        go.send(()).unwrap();
        assert_eq!(client.reset(1), Some(expected), "{sent}");
    }
}

#[test]
fn a_reset_upstream_shows_over_http3_by_request_cancelled_alone() {
    // Long enough for most responses to have left.
    let upstream = breaking_off(|| std::thread::park_timeout(Duration::from_millis(200)));
    let gateway = gateway(upstream.address, "127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic");
    let mut client = Client::connect(gateway.proxy_quic());
    let mut seen = 0;
    for (sent, expected) in CODES.iter().cycle().take(3 * CODES.len()) {
        let said = client.get("/");
        let expected = if *expected == CANCEL { 0x10c } else { 0x102 };
        if said.status() == 200 {
            assert_eq!(said.reset(), Some(expected), "{sent} {said:?}");
            seen += 1;
        }
    }
    assert!(seen >= CODES.len(), "most responses have begun when they break off");
}

/// Its client looks at its own clock, and would take INTERNAL_ERROR for another failure.
#[test]
fn a_call_of_grpc_web_whose_time_is_over_is_cancelled() {
    let upstream = Http2Upstream::start(Builder::new(), usize::MAX, async |(_, mut respond), _| {
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        body.send_data(frame(0, b"one").into(), false).unwrap();
        std::future::pending::<()>().await;
    });
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  protocol: grpc\n  host: 127.0.0.1\n  port: {}\n  \
         routes: [{{name: r, protocols: [http], paths: [/]}}]\n  plugins: [{{name: grpc-web}}]\n",
        upstream.address.port()
    );
    let gateway = Gateway::builder(&document).set("proxy_listen", "127.0.0.1:0 http2").start();
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        let request = Request::post("http://localhost/weir.Echo/Server")
            .header("content-type", "application/grpc-web+proto")
            .header("grpc-timeout", "2S");
        let (response, mut up) = start(&requests, request.body(()).unwrap(), false).await.unwrap();
        up.send_data(frame(0, b"").into(), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), frame(0, b"one"));
        let broken = body.data().await.unwrap().unwrap_err();
        assert_eq!(broken.reason(), Some(Reason::CANCEL));
    });
}
