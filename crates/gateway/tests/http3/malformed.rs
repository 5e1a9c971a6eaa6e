//! Requests and connections that break the rules of HTTP/3, each with the code that the rule names.
use super::client::Client;
use super::{OK, gateway};
use crate::harness::{Upstream, one_route};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const MESSAGE_ERROR: u64 = 0x10e;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;
const DECODER_STREAM_ERROR: u64 = 0x202;

/// The head of a GET, with fields behind it.
fn head(more: &[(&str, &str)]) -> Value {
    let get = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];
    json!(get.iter().chain(more).map(|(name, value)| [name, value]).collect::<Vec<_>>())
}

/// An upstream that counts what it is asked.
fn counting() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
            peer.send(OK);
        }
    });
    (upstream, asked)
}

#[test]
fn malformed_requests_are_refused_and_not_passed_on() {
    let heads: [&[(&str, &str)]; 12] = [
        &[(":method", "GET")],
        &[(":method", "POST")],
        &[(":path", "/")],
        &[(":path", "/other")],
        &[(":authority", "localhost")],
        &[(":scheme", "https")],
        &[(":status", "200")],
        &[("x", "1"), (":path", "/")],
        &[("x", "1"), (":protocol", "websocket")],
        &[("X-Upper", "1")],
        &[("a b", "1")],
        &[("x", "a\0b")],
    ];
    let trailers: [(&str, &str); 12] = [
        (":path", "/"),
        (":status", "200"),
        (":nonsense", "1"),
        ("connection", "close"),
        ("te", "gzip"),
        ("keep-alive", "timeout=5"),
        ("upgrade", "websocket"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("X-Upper", "1"),
        ("x", "a\0b"),
        ("x", "a\nb"),
    ];
    let (upstream, asked) = counting();
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for more in heads {
        let said = client.ask_with("a", head(more), &json!({})).response("a");
        assert_eq!(said.reset(), Some(MESSAGE_ERROR), "{more:?} {said:?}");
    }
    for (name, value) in trailers {
        let with_trailers = json!({"body": 10, "trailers": [[name, value]]});
        let said = client.ask("a", ("POST", "/"), &with_trailers).response("a");
        assert_eq!(said.reset(), Some(MESSAGE_ERROR), "{name}: {value} {said:?}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let fine = json!({"body": 10, "trailers": [["x-check", "1"]]});
    assert_eq!(client.ask("a", ("POST", "/"), &fine).response("a").text(), "hi");
}

#[test]
fn a_fragment_is_answered_400() {
    let (upstream, asked) = counting();
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for path in ["/a#b", "/#", "/?a#"] {
        assert_eq!(client.ask("a", ("GET", path), &json!({})).response("a").status(), 400, "{path}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn what_breaks_the_rules_of_a_connection_ends_it_with_the_code_of_the_rule() {
    let on = |stream: &str, raw: &str| json!({"do": stream, "raw": raw});
    let end = |stream: &str| json!({"do": stream, "raw": "", "end": true});
    let request = |raw: &str| json!({"do": "ask", "name": "raw", "raw": raw});
    let cases = [
        ("a block that refers to insertions", request("01080200d1d7c1500161"), DECOMPRESSION_FAILED),
        ("a field of the dynamic table", request("0103000080"), DECOMPRESSION_FAILED),
        ("GOAWAY on a request", request("070100"), FRAME_UNEXPECTED),
        ("a push stream", on("one_way", "0100"), STREAM_CREATION_ERROR),
        ("a second control stream", on("one_way", "00"), STREAM_CREATION_ERROR),
        ("a second encoder stream", on("one_way", "02"), STREAM_CREATION_ERROR),
        ("a second decoder stream", on("one_way", "03"), STREAM_CREATION_ERROR),
        // The client said 8 before.
        ("MAX_PUSH_ID that shrinks", on("control", "0d0107"), ID_ERROR),
        ("MAX_PUSH_ID without a number", on("control", "0d00"), FRAME_ERROR),
        ("MAX_PUSH_ID with more", on("control", "0d020909"), FRAME_ERROR),
        ("CANCEL_PUSH beyond what was promised", on("control", "030100"), ID_ERROR),
        ("CANCEL_PUSH without a number", on("control", "0300"), FRAME_ERROR),
        ("GOAWAY without a number", on("control", "0700"), FRAME_ERROR),
        ("GOAWAY that is too long", on("control", "07020000"), FRAME_ERROR),
        ("GOAWAY that grows", on("control", "070100070101"), ID_ERROR),
        ("SETTINGS twice", on("control", "0400"), FRAME_UNEXPECTED),
        ("DATA that controls", on("control", "0000"), FRAME_UNEXPECTED),
        ("the end of the control stream", end("control"), CLOSED_CRITICAL_STREAM),
        ("Duplicate", on("encoder", "00"), ENCODER_STREAM_ERROR),
        ("a capacity beyond what is allowed", on("encoder", "3fe11f"), ENCODER_STREAM_ERROR),
        ("an insertion", on("encoder", "c00161"), ENCODER_STREAM_ERROR),
        ("the end of the encoder stream", end("encoder"), CLOSED_CRITICAL_STREAM),
        ("an increment of 0", on("decoder", "00"), DECODER_STREAM_ERROR),
        ("an increment beyond what was inserted", on("decoder", "05"), DECODER_STREAM_ERROR),
        ("an acknowledgement of nothing", on("decoder", "84"), DECODER_STREAM_ERROR),
        ("the end of the decoder stream", end("decoder"), CLOSED_CRITICAL_STREAM),
    ];
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut other = Client::connect(gateway.proxy_quic());
    for (what, command, code) in cases {
        let mut client = Client::connect(gateway.proxy_quic());
        assert_eq!(client.get("/").text(), "hi", "{what}");
        client.send(&command);
        assert_eq!(client.closed(), code, "{what}");
    }
    assert_eq!(other.get("/").text(), "hi");
}

#[test]
fn settings_have_the_values_that_they_may_have() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    // ENABLE_CONNECT_PROTOCOL, H3_DATAGRAM, and one of HTTP/2.
    for (identifier, value) in [("8", 2), ("51", 2), ("4", 1)] {
        let settings = json!({"settings": {identifier: value}});
        let (mut client, _) = Client::with(gateway.proxy_quic(), &settings);
        assert_eq!(client.closed(), SETTINGS_ERROR, "{settings}");
    }
    let fine = json!({"settings": {"8": 1, "51": 0, "33": 7}});
    assert_eq!(Client::with(gateway.proxy_quic(), &fine).0.get("/").text(), "hi");
}

#[test]
fn streams_may_be_cancelled_and_tables_be_empty() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    let mut client = Client::connect(gateway.proxy_quic());
    for (stream, raw) in [("encoder", "20"), ("decoder", "447f8100"), ("control", "0d0109")] {
        client.send(&json!({"do": stream, "raw": raw}));
    }
    assert_eq!(client.get("/").text(), "hi");
}

#[test]
fn settings_come_first() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&one_route(upstream.address)).start();
    for raw in ["0d0109", "2100"] {
        let (mut client, _) = Client::with(gateway.proxy_quic(), &json!({"control": raw}));
        assert_eq!(client.closed(), MISSING_SETTINGS, "{raw}");
    }
}
