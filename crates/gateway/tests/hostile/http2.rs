//! A client over HTTP/2 that sends any fields, and another request behind them.
use super::Answers;
use crate::harness::http2::{Frames, Outcome};
use std::net::SocketAddr;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

/// Sends a request with these fields, and one behind it.
pub(super) fn send(
    address: SocketAddr,
    fields: &[(String, String)],
    body: Option<&str>,
) -> Result<Answers, String> {
    let mut client = Frames::connect(address);
    let end = if body.is_some() { 0 } else { END_STREAM };
    client.send(&Frames::frame(HEADERS, END_HEADERS | end, 1, &block(fields)));
    if let Some(body) = body {
        client.send(&Frames::frame(DATA, END_STREAM, 1, body.as_bytes()));
    }
    let outcome = client.outcome(1);
    let probe = [(":method", "GET"), (":scheme", "http"), (":path", "/probe"), (":authority", "probe.test")];
    let probe = probe.map(|(name, value)| (name.to_owned(), value.to_owned()));
    client.send(&Frames::frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&probe)));
    let next = client.body(3).is_some_and(|body| body == b"GET /probe HTTP/1.1");
    let statuses = match outcome {
        Outcome::Status(status) => vec![status],
        Outcome::Reset(_) | Outcome::Gone => Vec::new(),
    };
    Ok(Answers { statuses, next, bytes: format!("{outcome:?}") })
}

/// Fields as literals that no table keeps, without a Huffman code.
fn block(fields: &[(String, String)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [crate::harness::unescape(name), crate::harness::unescape(value)] {
            block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
            block.extend(text);
        }
    }
    block
}
