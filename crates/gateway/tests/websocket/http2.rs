//! WebSocket over HTTP/2 (RFC 8441).
use super::{CONSUMERS, KEY, echo, request, says};
use crate::harness::http2::{ask, block_on, connect, get, read, start};
use crate::harness::{Gateway, Haproxy, Identity, Upstream, document, service};
use bytes::{Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use std::io::Write;

const BOTH: &str = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2";

/// Asks for a protocol at a path, with a key for the API.
async fn open(
    requests: &SendRequest<Bytes>,
    path: &str,
    protocol: &'static str,
) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::connect(format!("http://localhost{path}"))
        .extension(Protocol::from_static(protocol))
        .header("sec-websocket-version", "13")
        .header("apikey", "ann-s");
    start(requests, request.body(()).unwrap(), false).await.unwrap()
}

/// A frame of a client, masked by zeros.
fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[0x80 | opcode, 0x80 | 126], &length[..], &[0; 4], payload].concat().into()
}

async fn receive(body: &mut RecvStream, length: usize) -> BytesMut {
    let mut received = BytesMut::new();
    while received.len() < length {
        let data = body.data().await.unwrap().unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        received.extend_from_slice(&data);
    }
    received
}

#[test]
fn messages_pass_beside_requests_of_the_same_connection() {
    let upstream = echo();
    let hello = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let services = [service("/chat", upstream.address, "", KEY), service("/hello", hello.address, "", "")];
    let gateway = Gateway::builder(&document(&services, CONSUMERS)).set("proxy_listen", BOTH).start();
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        assert_eq!(ask(&requests, get("/hello")).await.unwrap().body(), "hi");
        assert!(requests.is_extended_connect_protocol_enabled());
        let (response, mut up) = open(&requests, "/chat", "websocket").await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-ratelimit-remaining-hour"], "1");
        assert!(
            ["upgrade", "connection", "sec-websocket-accept"]
                .iter()
                .all(|name| !response.headers().contains_key(*name))
        );
        let mut down = response.into_body();
        for size in [200, 60_000] {
            up.send_data(frame(2, &vec![7; size]), false).unwrap();
            let got = receive(&mut down, size + 4).await;
            assert!(got[..2] == [0x82, 126] && got[4..] == vec![7; size]);
            assert_eq!(ask(&requests, get("/hello")).await.unwrap().body(), "hi");
        }
        up.send_data(frame(8, &[0x03, 0xe8]), true).unwrap();
        assert_eq!(receive(&mut down, 4).await, [0x88, 2, 0x03, 0xe8][..]);
        // The upstream's end is the stream's.
        while let Some(data) = down.data().await {
            assert!(data.unwrap().is_empty());
        }
    });
}

#[test]
fn a_refusal_is_a_response_and_never_one_that_looks_like_agreement() {
    let answers = ["426 Upgrade Required", "200 OK"]
        .map(|status| format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno"));
    let upstreams = answers.each_ref().map(|answer| Upstream::answering(answer));
    let services = [service("/a", upstreams[0].address, "", ""), service("/b", upstreams[1].address, "", "")];
    let gateway = Gateway::builder(&document(&services, "")).set("proxy_listen", BOTH).start();
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        ask(&requests, get("/none")).await.unwrap();
        for (path, protocol, status) in [
            ("/a", "websocket", 426),
            ("/b", "websocket", 502),
            ("/b", "h2c", 502),
            ("/none", "websocket", 404),
        ] {
            let (response, _up) = open(&requests, path, protocol).await;
            let response = read(response.await.unwrap()).await.unwrap().0;
            assert_eq!(response.status(), status, "{path} {protocol}");
        }
    });
}

#[test]
fn a_client_that_takes_its_stream_back_ends_the_upstream_s_connection() {
    let (ended, has_ended) = std::sync::mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        peer.rest();
        ended.send(()).unwrap();
    });
    let services = [service("/a", upstream.address, "", "")];
    let gateway = Gateway::builder(&document(&services, "")).set("proxy_listen", BOTH).start();
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        ask(&requests, get("/none")).await.unwrap();
        let (response, mut up) = open(&requests, "/a", "websocket").await;
        assert_eq!(response.await.unwrap().status(), 200);
        up.send_reset(Reason::CANCEL);
        let ended = tokio::task::spawn_blocking(move || has_ended.recv_timeout(crate::harness::PATIENCE));
        assert!(ended.await.unwrap().is_ok());
    });
}

/// HAProxy in front of the upstream chooses HTTP/2 where it is offered.
#[test]
fn what_may_choose_http2_is_asked_for_a_tunnel_over_http1() {
    let (upstream, identity) = (echo(), Identity::new("up.test"));
    let mut pem = tempfile::NamedTempFile::new().unwrap();
    for file in [identity.cert(), identity.key()] {
        pem.write_all(&std::fs::read(file).unwrap()).unwrap();
    }
    let haproxy = Haproxy::listening(
        &format!("ssl crt {} alpn h2,http/1.1", pem.path().display()),
        &format!(
            "mode http\n  http-request return status 200 content-type text/plain lf-string %[ssl_fc_alpn] if {{ path /version }}\n  \
             http-response set-header x-chosen %[ssl_fc_alpn]\n  server s {}",
            upstream.address
        ),
    );
    let services =
        service("/", haproxy.address, "tags: [weir-upstream-http2]", "").replace("http://", "https://");
    let gateway = Gateway::builder(&document(&[services], "")).set("proxy_listen", BOTH).start();
    assert_eq!(gateway.get("/version").text(), "h2");
    let socket = gateway.connect().into_socket();
    let (mut socket, response) = tungstenite::client(request("/chat"), socket).unwrap();
    assert_eq!(response.headers()["x-chosen"], "http/1.1");
    says(&mut socket, "hello");
    block_on(async {
        let (requests, _connection) = connect(gateway.proxy()).await;
        let (response, mut up) = open(&requests, "/chat", "websocket").await;
        let response = response.await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["x-chosen"]),
            (200, &"http/1.1".parse().unwrap())
        );
        up.send_data(frame(1, b"hello"), false).unwrap();
        assert!(receive(&mut response.into_body(), 7).await.ends_with(b"hello"));
    });
    assert_eq!(gateway.get("/version").text(), "h2", "tunnels do not spoil the choice");
}
