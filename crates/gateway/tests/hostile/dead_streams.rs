//! Class 20: what a client took back costs no more work. No plugin goes on with it, and the upstream hears nothing of it.
use crate::harness::http2::Frames;
use crate::harness::{Gateway, PATIENCE, Upstream, document, service};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const HEADERS: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 0x5;
const RST_STREAM: u8 = 3;
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();
/// How `:status` of 200 stands in the static table.
const STATUS_200: Option<u8> = Some(0x88);

/// An upstream, and how many requests it got.
fn counted() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            peer.send(OK);
        }
    });
    (upstream, asked)
}

/// A route whose plugin asks the verifier whether a request may pass, and one without a plugin.
fn gateway(upstream: &Upstream, verifier: &Upstream) -> Gateway {
    let config = format!("{{url: \"http://{}/\", timeout: 60000}}", verifier.address);
    let auth = format!("plugins: [{{name: forward-auth, config: {config}}}]");
    let services = [service("/waits", upstream.address, "", &auth), service("/", upstream.address, "", "")];
    Gateway::builder(&document(&services, "")).set("proxy_listen", "127.0.0.1:0 http2").start()
}

/// A GET of /waits from a.
fn waiting(stream: u32) -> Vec<u8> {
    let block = [&b"\x82\x86\x41\x01a\x04\x06"[..], b"/waits"].concat();
    Frames::frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)
}

/// A verifier that never answers. It says when it is asked, and when the gateway closes the connection.
fn silent() -> (Upstream, Receiver<()>, Receiver<()>) {
    let ((asked, all), (ended, ends)) = (mpsc::channel(), mpsc::channel());
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            let _ = asked.send(());
            if peer.is_closed() {
                let _ = ended.send(());
            }
        }
    });
    (upstream, all, ends)
}

#[test]
fn a_plugin_that_waits_gives_up_with_its_stream() {
    let ((upstream, asked), (verifier, verifications, ends)) = (counted(), silent());
    let gateway = gateway(&upstream, &verifier);
    let mut client = Frames::connect(gateway.proxy());
    for stream in [1, 3, 5] {
        client.send(&waiting(stream));
        verifications.recv_timeout(PATIENCE).expect("the plugin asks");
        client.send(&Frames::frame(RST_STREAM, 0, stream, &CANCEL));
        ends.recv_timeout(PATIENCE).expect("the plugin gives up");
    }
    client.send(&Frames::get(7));
    assert_eq!(client.answer(7), STATUS_200, "the connection serves on");
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the upstream was asked for a stream that was reset");
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[test]
fn a_plugin_that_waits_gives_up_with_its_client() {
    let ((upstream, asked), (verifier, verifications, ends)) = (counted(), silent());
    let gateway = gateway(&upstream, &verifier);
    for _ in 0..3 {
        let mut client = gateway.connect();
        client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
        verifications.recv_timeout(PATIENCE).expect("the plugin asks");
        client.reset();
        ends.recv_timeout(PATIENCE).expect("the plugin gives up");
    }
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the upstream was asked for a client that has left");
}

/// The verdict and the reset come at the same time, as with a call that once crashed the limiter of Envoy.
#[test]
fn a_verdict_that_comes_with_a_reset_does_no_harm() {
    let ((upstream, _), verifier) = (counted(), Upstream::answering(OK));
    let gateway = gateway(&upstream, &verifier);
    let mut patient = Frames::connect(gateway.proxy());
    for round in 0..50 {
        let mut client = Frames::connect(gateway.proxy());
        client.send(&waiting(1));
        client.send(&Frames::frame(RST_STREAM, 0, 1, &CANCEL));
        client.send(&waiting(3));
        assert_eq!(client.answer(3), STATUS_200, "round {round}");
    }
    patient.send(&waiting(1));
    assert_eq!(patient.answer(1), STATUS_200);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}
