//! A client over HTTP/1.1 that sends a request behind another, even if the first is refused.
use super::{Answers, strict};
use crate::harness::Peer;
use std::net::SocketAddr;

/// The request that follows on the same connection; it is the last.
const PROBE: &str = "GET /probe HTTP/1.1\r\nHost: probe.test\r\nConnection: close\r\n\r\n";
const ANSWER: &[u8] = b"GET /probe HTTP/1.1";

/// Sends bytes and the request behind them, and reads to the end of the connection. A client that stops ends its half of
/// the connection behind the bytes instead.
pub(super) fn send(address: SocketAddr, bytes: &[u8], stops: bool) -> Result<Answers, String> {
    let mut client = Peer::connect(address);
    match client.send(bytes) {
        client if stops => client.finish_sending(),
        client => client.send(PROBE),
    };
    let received = client.rest();
    let method =
        String::from_utf8_lossy(bytes.split(|byte| *byte == b' ').next().unwrap_or_default()).into_owned();
    let mut answers =
        Answers { statuses: Vec::new(), next: false, bytes: received.escape_ascii().to_string() };
    let (mut rest, mut method) = (&received[..], method.trim_start().to_owned());
    while !rest.is_empty() {
        let read = strict::response(rest, &method, true);
        let Some((message, end)) = read.map_err(|error| format!("{error}: {}", answers.bytes))? else {
            return Err(format!("an answer without an end: {}", answers.bytes));
        };
        rest = &rest[end..];
        if message.status() < 200 {
            continue;
        }
        "GET".clone_into(&mut method);
        match message.body == ANSWER {
            true if answers.next => return Err(format!("two answers to one request: {}", answers.bytes)),
            true => answers.next = true,
            false if answers.next => return Err(format!("an answer behind the last: {}", answers.bytes)),
            false => answers.statuses.push(message.status()),
        }
    }
    Ok(answers)
}
