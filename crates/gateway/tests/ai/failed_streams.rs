//! Streams that have failed: the client gets their end at once, and the provider is left, whatever it would still send.

use super::{ask, config, gateway, is_error, record};
use crate::harness::{Message, PATIENCE, Peer, Upstream, eventually};
use serde_json::json;
use std::sync::mpsc;

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"twelve bytes\"}}]}\n\n";
const ERROR: &str = "data: {\"error\":{\"message\":\"busy\"}}\n\n";
const CORRUPT: &str = "the response of the AI provider cannot be read";

fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// A line that is longer than events may be.
fn endless() -> String {
    format!("data: {}", "x".repeat(2 << 20))
}

/// What a client gets of an openai provider that sends this and then falls silent, or goes on for ever; the provider must
/// have been left. The request's id is in the log beside the second text.
fn answered(sends: &[&str], goes_on: bool, logged: &str) -> Message {
    let (leaves, left) = mpsc::channel();
    let sends: String = sends.iter().map(|data| chunk(data)).collect();
    let upstream = Upstream::start(move |mut peer: Peer, _| {
        if peer.request().is_none() {
            return;
        }
        let _ = peer.try_send([HEAD, &sends].concat().as_bytes());
        let more = chunk(EVENT).repeat(100);
        while goes_on && peer.try_send(more.as_bytes()).is_ok() {}
        let _ = leaves.send(goes_on || peer.is_closed());
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let mut config = config("openai", &format!("http://{}/", upstream.address), &json!({}));
    config["logging"]["log_payloads"] = json!(false);
    let gateway = gateway(&config, &log);
    let response = ask(&gateway, true).response();
    assert!(left.recv_timeout(PATIENCE).unwrap(), "the provider is left");
    let id = response.header("x-kong-request-id").unwrap().to_owned();
    eventually("it is logged with the request's id", || {
        gateway.log().lines().any(|line| line.contains(logged) && line.contains(&id))
    });
    assert_eq!(record(&log)["response"]["status"], response.status);
    response
}

#[test]
fn a_stream_that_fails_before_its_first_event_ends_at_once() {
    let unread = "ai-proxy: the stream of the AI provider cannot be read: an event is longer";
    let error = "ai-proxy: the AI provider ended its stream with an error: busy";
    for goes_on in [false, true] {
        is_error(&answered(&[&endless()], goes_on, unread), CORRUPT);
        is_error(&answered(&[ERROR], goes_on, error), "busy");
    }
}

#[test]
fn a_stream_that_fails_later_ends_at_once_too() {
    let unread = "ai-proxy: the stream of the AI provider cannot be read: an event is longer";
    for goes_on in [false, true] {
        let response = answered(&[EVENT, &endless()], goes_on, unread);
        let end = format!("{EVENT}data: {}\n\n", json!({ "error": { "message": CORRUPT } }));
        assert_eq!((response.status, response.text()), (200, &*end));
        let response = answered(&[EVENT, ERROR], goes_on, "ended its stream with an error: busy");
        let end = [EVENT, ERROR].concat();
        assert_eq!((response.status, response.text()), (200, &*end));
    }
}
