//! A malformed request over HTTP/2 is that request's end, and no other's (RFC 9113, 8.1.1).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::Frames;
use crate::harness::{Gateway, Upstream, one_route};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const PROTOCOL_ERROR: Option<u32> = Some(1);
const COMPRESSION_ERROR: Option<u32> = Some(9);
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// How `:status` of 200 and of 400 stand in the static table.
const STATUS_200: Option<u8> = Some(0x88);
const STATUS_400: Option<u8> = Some(0x8c);

/// What begins each block: GET, `/`, http, and an authority that is not kept.
const GET: &[u8] = b"\x82\x84\x86\x01\x01a";

fn gateway(upstream: &Upstream) -> Gateway {
    Gateway::builder(&one_route(upstream.address)).set("proxy_listen", "127.0.0.1:0 http2").start()
}

/// An upstream that counts what it is asked, and answers the first request when it is let go.
fn upstream() -> (Upstream, mpsc::Sender<()>, Arc<AtomicUsize>) {
    let (go, wait) = mpsc::channel();
    let (wait, asked) = (Mutex::new(wait), Arc::new(AtomicUsize::new(0)));
    let counted = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                let () = wait.lock().unwrap().recv().unwrap();
            }
            peer.send(OK);
        }
    });
    (upstream, go, asked)
}

fn head(stream: u32, block: &[u8]) -> Vec<u8> {
    Frames::frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
}

#[test]
fn a_malformed_head_is_the_end_of_its_stream_alone() {
    let cases: [(&str, &[u8], &[u8]); 22] = [
        ("an uppercase name", GET, b"\x00\x01X\x011"),
        ("the same, Huffman-coded", GET, b"\x00\x81\xfc\x011"),
        ("a name with a space", GET, b"\x00\x03a b\x011"),
        ("no name", GET, b"\x00\x00\x011"),
        ("no name and no value", GET, b"\x00\x00\x00"),
        ("LF in a value", GET, b"\x00\x01x\x03a\nb"),
        ("CR in a value", GET, b"\x00\x01x\x03a\rb"),
        ("NUL in a value", GET, b"\x00\x01x\x03a\0b"),
        ("LF in the value of a name of the static table", GET, b"\x0f\x2b\x03a\nb"),
        ("an unknown pseudo-header field", b"\x82\x84\x86\x01\x01a\x00\x05:nons\x011", b""),
        ("`:status`", b"\x82\x84\x86\x01\x01a\x88", b""),
        ("a pseudo-header field twice", b"\x82\x84\x84\x86\x01\x01a", b""),
        ("a pseudo-header field behind a field", GET, b"\x00\x01x\x011\x84"),
        ("a method with a space", b"\x02\x03G T\x84\x86\x01\x01a", b""),
        ("no method", b"", b""),
        ("an authority that is no text", b"\x82\x84\x86\x01\x01\xff", b""),
        ("`connection`", GET, b"\x00\x0aconnection\x05close"),
        ("`transfer-encoding`", GET, b"\x0f\x2a\x07chunked"),
        ("`te`", GET, b"\x00\x02te\x04gzip"),
        ("a bad name that is kept", GET, b"\x40\x01X\x011"),
        ("the same by its number", GET, b"\xbe"),
        ("a bad value under a bad name", GET, b"\x7e\x011"),
    ];
    let (upstream, go, asked) = upstream();
    let gateway = gateway(&upstream);
    let mut client = Frames::connect(gateway.proxy());
    assert!(client.send(&head(1, &[GET, b"\x40\x03x-y\x01z"].concat())));
    let mut stream = 1;
    for (what, block, more) in cases {
        let block = [block, more].concat();
        // In one frame, and in two of which the first ends with the first half.
        let (first, second) = block.split_at(block.len() / 2);
        let whole = head(stream + 2, &block);
        let halves = [
            Frames::frame(HEADERS, END_STREAM, stream + 4, first),
            Frames::frame(CONTINUATION, END_HEADERS, stream + 4, second),
        ];
        for (frames, of) in [(whole, stream + 2), (halves.concat(), stream + 4)] {
            assert!(client.send(&frames));
            assert_eq!(client.reset(of), PROTOCOL_ERROR, "{what}, stream {of}");
        }
        stream += 4;
    }
    // The table is as the client has it: what was kept first stands behind what was kept since.
    assert!(client.send(&head(stream + 2, &[GET, b"\xc2"].concat())));
    assert_eq!(client.answer(stream + 2), STATUS_200);
    go.send(()).unwrap();
    assert_eq!(client.answer(1), STATUS_200);
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn malformed_trailers_are_the_end_of_their_stream_alone() {
    let cases: [(&str, &[u8]); 5] = [
        ("a pseudo-header field", b"\x84"),
        ("an uppercase name", b"\x00\x01X\x011"),
        ("NUL in a value", b"\x00\x01x\x01\0"),
        ("`connection`", b"\x00\x0aconnection\x05close"),
        ("`te`", b"\x00\x02te\x04gzip"),
    ];
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream);
    let mut client = Frames::connect(gateway.proxy());
    for (stream, (what, trailers)) in (1..).step_by(2).zip(cases) {
        let post = Frames::frame(HEADERS, END_HEADERS, stream, b"\x83\x84\x86\x01\x01a");
        let body = Frames::frame(0, 0, stream, b"body");
        assert!(client.send(&[post, body, head(stream, trailers)].concat()));
        assert_eq!(client.reset(stream), PROTOCOL_ERROR, "{what}");
    }
    assert!(client.send(&Frames::get(101)));
    assert_eq!(client.answer(101), STATUS_200);
}

#[test]
fn a_fragment_is_answered_400() {
    let (upstream, _go, asked) = upstream();
    let gateway = gateway(&upstream);
    let mut client = Frames::connect(gateway.proxy());
    for (stream, path) in (1..).step_by(2).zip(["/a#b", "/#", "/?a#"]) {
        let length = u8::try_from(path.len()).unwrap();
        let block = [&b"\x82\x86\x01\x01a\x04"[..], &[length], path.as_bytes()].concat();
        assert!(client.send(&head(stream, &block)));
        assert_eq!(client.answer(stream), STATUS_400, "{path}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn what_cannot_be_decoded_is_the_end_of_the_connection() {
    let upstream = Upstream::answering(OK);
    let gateway = gateway(&upstream);
    // No entry of the table; a table larger than it may be; a text that is cut off; padding of zeros.
    for block in [&b"\x82\xff\x20"[..], b"\x3f\xe2\x1f\x82", b"\x82\x40\x05ab", b"\x82\x40\x81\x18\x011"] {
        let mut client = Frames::connect(gateway.proxy());
        assert!(client.send(&head(1, block)));
        assert_eq!(client.going_away(), COMPRESSION_ERROR, "{block:?}");
    }
}
