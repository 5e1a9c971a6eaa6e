//! ai-rate-limiting: nodes that count together in Redis, and streams that break off.

use super::{ask, chunk};
use crate::harness::{Gateway, Message, PATIENCE, RedisServer, Upstream, eventually};
use serde_json::{Value as Json, json};
use std::sync::mpsc;

/// A model whose whole responses use four tokens and as many as said, and whose streams break off behind twelve bytes.
fn model(completion: u64) -> Upstream {
    Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            if String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
                let event = "data: {\"choices\":[{\"delta\":{\"content\":\"twelve bytes\"}}]}\n\n";
                let length = event.len();
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{event}\r\n"
                ));
                peer.is_closed();
                return;
            }
            let usage = json!({ "prompt_tokens": 4, "completion_tokens": completion });
            let body = json!({ "choices": [], "usage": usage }).to_string();
            let length = body.len();
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"));
        }
    })
}

fn gateway(model: &Upstream, limits: &Json) -> Gateway {
    let url = format!("http://{}/", model.address);
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": "openai", "name": "m", "options": { "upstream_url": url } },
    });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "routes": [{ "name": "chat", "paths": ["/"] }] }],
        "plugins": [{ "name": "ai-proxy", "config": llm }, { "name": "ai-rate-limiting", "config": limits }],
    });
    Gateway::start(&document.to_string())
}

fn remaining(response: &Message) -> Option<&str> {
    response.header("x-ai-ratelimit-remaining-ai-proxy-openai")
}

#[test]
fn nodes_count_tokens_together_in_redis() {
    let (mut server, model) = (RedisServer::start(), model(3));
    let limits = |degrades: bool| {
        json!({
            "limit": 10, "time_window": 86_400, "rejected_code": 429, "allow_degradation": degrades,
            "policy": "redis", "redis_host": "127.0.0.1", "redis_port": server.port, "redis_timeout": 15_000,
        })
    };
    let [one, other] = [false, true].map(|degrades| gateway(&model, &limits(degrades)));
    assert_eq!(remaining(&ask(&one, false).response()), Some("3"));
    // What was used is added behind the response.
    eventually("the tokens are in Redis", || server.keys().len() == 1);
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    assert!(key.starts_with("ai-rate-limiting:") && key.contains(":others:10:86400:"), "{key}");
    eventually("they are counted", || server.number(key) == 7);
    let left: u64 = server.ask(&["ttl", key]).parse().unwrap();
    assert!((1..=86_400).contains(&left), "{left}");
    assert_eq!(remaining(&ask(&other, false).response()), Some("0"), "the second takes what is left");
    eventually("they are counted", || server.number(key) == 14);
    assert_eq!([&one, &other].map(|node| ask(node, false).response().status), [429, 429]);
    server.kill();
    let refused = ask(&one, false).response();
    assert_eq!((refused.status, refused.text()), (500, "{\"error_msg\":\"failed to limit count\"}"));
    assert_eq!(remaining(&ask(&other, false).response()), Some("3"), "it counts by itself");
}

#[test]
fn a_stream_is_counted_as_far_as_it_has_come() {
    let model = model(0);
    let limits = json!({ "limit": 3, "time_window": 86_400, "limit_strategy": "completion_tokens", "rejected_code": 429 });
    let gateway = gateway(&model, &limits);
    let mut client = ask(&gateway, true);
    assert!(client.head().unwrap().start.contains(" 200 "));
    assert!(chunk(&mut client).contains("twelve bytes"));
    drop(client);
    eventually("three tokens are counted", || ask(&gateway, false).response().status == 429);
}

#[test]
fn the_prompt_of_a_client_that_leaves_before_the_response_is_counted() {
    let (asked, is_asked) = mpsc::channel();
    // It does not answer the first request, and no other counts.
    let model = Upstream::start(move |mut peer, number| {
        if peer.request().is_some() && number == 0 {
            asked.send(()).unwrap();
            peer.is_closed();
        } else {
            peer.send("HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n").is_closed();
        }
    });
    let limits = json!({ "limit": 3, "time_window": 86_400, "rejected_code": 429 });
    let gateway = gateway(&model, &limits);
    let client = ask(&gateway, false);
    is_asked.recv_timeout(PATIENCE).unwrap();
    drop(client);
    eventually("its three words are counted", || ask(&gateway, false).response().status == 429);
}

#[test]
fn a_consumer_over_a_limit_is_refused_before_the_body_is_read() {
    let model = model(3);
    let rules =
        json!([{ "key": "$remote_addr", "count": 5, "time_window": 86_400, "header_prefix": "Mine" }]);
    let gateway = gateway(&model, &json!({ "rules": rules, "rejected_code": 429 }));
    assert_eq!(ask(&gateway, false).response().header("x-ai-mine-ratelimit-remaining"), Some("0"));
    let mut client = gateway.connect();
    let refused =
        client.send("POST /chat HTTP/1.1\r\nHost: a.test\r\nContent-Length: 100\r\n\r\n").response();
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header("x-ai-mine-ratelimit-remaining"), Some("0"));
}
