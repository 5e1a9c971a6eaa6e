//! ai-proxy-multi with instances that hang, reset, answer rubbish, or break off.

use super::{Failure, KEY, chunk, fail, is_error, record, texts};
use crate::harness::{Gateway, Peer, Upstream, closed_port, eventually};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;

/// An instance that fails so each time it is asked, and how often it was.
fn failing((sends, then): Failure) -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_none() {
            return;
        }
        count.fetch_add(1, SeqCst);
        fail(peer, (sends, then));
    });
    (upstream, asked)
}

/// An instance that answers with a stream, or with a whole response, and how often it was asked.
fn answering() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            count.fetch_add(1, SeqCst);
            assert_eq!(request.header("authorization"), Some("Bearer second"), "it gets its own key");
            assert_eq!(request.header("x-api-key"), None, "it does not get the key of another");
            let (kind, body) = match String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
                true => (
                    "text/event-stream",
                    "data: {\"choices\":[{\"delta\":{\"content\":\"good\"}}]}\n\ndata: [DONE]\n\n",
                ),
                false => ("application/json", "{\"choices\":[{\"message\":{\"content\":\"good\"}}]}"),
            };
            let length = body.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    });
    (upstream, asked)
}

/// An instance at this address, with a key.
fn instance(name: &str, address: SocketAddr, priority: i32, key: (&str, &str)) -> Json {
    json!({
        "name": name, "provider": "openai-compatible", "priority": priority,
        "auth": { "header": { key.0: key.1 } },
        "options": { "model": name },
        "override": { "endpoint": format!("http://{address}") },
    })
}

/// The configuration of two instances: the first is asked before the second.
fn config(first: SocketAddr, second: SocketAddr) -> Json {
    json!({
        "fallback_strategy": ["http_429", "http_5xx"],
        "timeout": 400,
        "logging": { "summaries": true },
        "instances": [
            instance("first", first, 1, ("X-Api-Key", KEY)),
            instance("second", second, 0, ("Authorization", "Bearer second")),
        ],
    })
}

/// A gateway with a route for each configuration: `/0`, `/1` and so on.
fn gateway(configs: &[Json], log: Option<&Path>) -> Gateway {
    let route = |(number, config): (usize, &Json)| json!({ "name": format!("r{number}"), "paths": [format!("/{number}/")], "plugins": [{ "name": "ai-proxy-multi", "config": config }] });
    let routes: Vec<_> = configs.iter().enumerate().map(route).collect();
    let mut plugins = vec![json!({ "name": "prometheus", "config": { "ai_metrics": true } })];
    plugins.extend(log.map(|path| json!({ "name": "file-log", "config": { "path": path } })));
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "routes": routes }],
        "plugins": plugins,
    });
    Gateway::start(&document.to_string())
}

fn ask(gateway: &Gateway, route: usize, stream: bool) -> Peer {
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "stream": stream }).to_string();
    let mut client = gateway.connect();
    let length = body.len();
    client.send(format!("POST /{route}/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}"));
    client
}

#[test]
fn whatever_fails_before_the_first_byte_is_asked_of_the_next_instance() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let failures: [Failure; 10] = [
        ("", "silence"),
        ("", "reset"),
        ("", "close"),
        ("rubbish\r\n\r\n", "close"),
        ("HTTP/1.1 200 OK\r\nContent-Le", "close"),
        ("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow", "silence"),
        ("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 400\r\n\r\nhalf", "close"),
        (head, "silence"),
        (head, "reset"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "close"),
    ];
    let (second, asked) = answering();
    let first: Vec<_> =
        failures.into_iter().flat_map(|failure| [failing(failure), failing(failure)]).collect();
    let mut configs: Vec<_> = first.iter().map(|(first, _)| config(first.address, second.address)).collect();
    configs.push(config(closed_port(), second.address));
    let gateway = gateway(&configs, None);
    for route in 0..configs.len() {
        let stream = route % 2 == 1;
        let got = ask(&gateway, route, stream).response();
        assert_eq!(got.status, 200, "{route}: {}", got.text());
        assert!(got.text().contains("good"), "{route}: {}", got.text());
        assert_eq!(asked.load(SeqCst), route + 1, "{route}");
    }
    assert!(first.iter().all(|(_, asked)| asked.load(SeqCst) == 1), "each is asked once");
}

#[test]
fn what_is_no_stream_is_asked_of_the_next_instance() {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type:";
    let rubbish = [
        format!("{head} text/html\r\n\r\n<html>secret</html>"),
        format!("{head} application/json\r\n\r\n{{\"choices\":[]}}"),
        format!("{head} text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {{\n\n\r\n"),
        format!("{head} text/event-stream\r\nContent-Length: 7\r\n\r\nrubbish"),
        format!("{head} text/event-stream\r\nContent-Length: 0\r\n\r\n"),
        format!("{head} text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{head} text/event-stream\r\n\r\n"),
        format!("{head} text/event-stream\r\n\r\ndata: {{\"error\":{{\"message\":\"busy\"}}}}\n\n"),
    ];
    let (second, asked) = answering();
    let first: Vec<_> = rubbish.map(|sends| failing((sends.leak(), "close"))).into_iter().collect();
    let configs: Vec<_> = first.iter().map(|(first, _)| config(first.address, second.address)).collect();
    let gateway = gateway(&configs, None);
    for (route, (_, failed)) in first.iter().enumerate() {
        let got = ask(&gateway, route, true).response();
        assert_eq!((got.status, &*texts(got.text())), (200, "good"), "{route}: {}", got.text());
        assert_eq!((failed.load(SeqCst), asked.load(SeqCst)), (1, route + 1), "{route}");
    }
    let line = "ai-proxy-multi: an instance failed: it answered with what is no stream of events";
    eventually("each is logged", || gateway.log().matches(line).count() == configs.len());
    assert!(!gateway.log().contains("secret"));
}

#[test]
fn the_last_instance_may_answer_rubbish_too() {
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html></html>";
    let ((first, _), (second, asked)) = (failing((html, "close")), failing((html, "close")));
    let gateway = gateway(&[config(first.address, second.address)], None);
    let got = ask(&gateway, 0, true).response();
    is_error(&got, "the response of the AI provider is no stream of events");
    assert_eq!(asked.load(SeqCst), 1);
    eventually("the plugin logs it", || {
        gateway.log().contains("ai-proxy-multi: the response of the AI provider is no stream")
    });
}

#[test]
fn a_stream_that_has_begun_is_not_asked_of_another() {
    let begun = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2f\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\r\n";
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let first = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            peer.send(begun);
            wait.lock().unwrap().recv().unwrap();
            peer.reset();
        }
    });
    let half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"choi";
    let (halved, _) = failing((half, "close"));
    let (second, asked) = answering();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let configs = [config(first.address, second.address), config(halved.address, second.address)];
    let gateway = gateway(&configs, Some(&log));
    let mut client = ask(&gateway, 0, true);
    assert!(client.head().unwrap().start.contains(" 200 "));
    assert_eq!(texts(&chunk(&mut client)), "a");
    go.send(()).unwrap();
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(!rest.contains("[DONE]") && !rest.ends_with("0\r\n\r\n"), "there is no end: {rest}");
    assert_eq!(asked.load(SeqCst), 0);
    let usage = record(&log)["ai"]["proxy"]["usage"].clone();
    assert_eq!(usage["completion_tokens"], 1, "what has come is counted: {usage}");
    assert_eq!(ask(&gateway, 1, false).response().status, 502, "half a response counts as a failure");
    assert_eq!(asked.load(SeqCst), 0);
}

#[test]
fn an_instance_that_has_failed_is_left_out_for_a_while() {
    let failure = ("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", "close");
    let ((first, failed), (second, asked)) = (failing(failure), answering());
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let gateway = gateway(&[config(first.address, second.address)], Some(&log));
    assert_eq!(ask(&gateway, 0, false).response().status, 200);
    let record = record(&log);
    assert_eq!(record["ai"]["proxy"]["meta"]["request_model"], "second", "{record}");
    assert_eq!(record["tries"][0]["code"], 429, "{record}");
    assert_eq!(record["tries"].as_array().unwrap().len(), 2, "{record}");
    (0..3).for_each(|_| assert_eq!(ask(&gateway, 0, true).response().status, 200));
    assert_eq!((failed.load(SeqCst), asked.load(SeqCst)), (1, 4));
}

#[test]
fn the_next_instance_gets_what_later_plugins_have_made_of_the_headers() {
    let first = Upstream::answering("HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n");
    let (sees, seen) = mpsc::channel();
    let second = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            sees.send(request).unwrap();
            let body = r#"{"choices":[{"message":{"content":"good"}}]}"#;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let lua = "local request = kong.service.request request.clear_header('x-internal') request.clear_header('anthropic-version') \
               request.set_header('x-later', '1')";
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "routes": [{ "name": "r", "paths": ["/"], "plugins": [
            { "name": "ai-proxy-multi", "config": config(first.address, second.address) },
            { "name": "post-function", "config": { "access": [lua] } },
        ] }] }],
    });
    let gateway = Gateway::start(&document.to_string());
    let body = r#"{"messages":[{"role":"user","content":"Hi"}]}"#;
    let length = body.len();
    let sent = gateway.connect().send(format!(
        "POST / HTTP/1.1\r\nHost: a.test\r\nX-Internal: hush\r\nAnthropic-Version: hush\r\nCookie: a=b\r\nContent-Length: {length}\r\n\r\n{body}"
    )).response();
    let request = seen.recv().unwrap();
    assert_eq!(sent.status, 200);
    let headers = ["x-internal", "anthropic-version", "x-later", "cookie", "authorization"];
    let headers = headers.map(|name| request.header(name));
    assert_eq!(headers, [None, None, Some("1"), None, Some("Bearer second")]);
}

#[test]
fn if_all_fail_the_client_gets_the_last_response() {
    let (first, one) = failing(("", "reset"));
    let (second, other) = failing(("HTTP/1.1 500 Oh\r\nContent-Length: 4\r\n\r\nlast", "close"));
    let mut limited = config(first.address, second.address);
    limited["max_retries"] = 0.into();
    let gateway = gateway(&[config(first.address, second.address), limited], None);
    let got = ask(&gateway, 0, false).response();
    assert_eq!((got.status, got.text()), (500, "last"));
    assert_eq!((one.load(SeqCst), other.load(SeqCst)), (1, 1));
    assert_eq!(ask(&gateway, 1, false).response().status, 502, "no other may be asked");
    assert_eq!((one.load(SeqCst), other.load(SeqCst)), (2, 1));
}

#[test]
fn the_log_names_the_instance_that_failed_and_no_key() {
    let (first, _) = failing(("HTTP/1.1 503 Oh\r\nContent-Length: 0\r\n\r\n", "close"));
    let (second, _) = answering();
    let (denied, _) = failing(("HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "close"));
    let mut alone = config(denied.address, second.address);
    alone.as_object_mut().unwrap().remove("fallback_strategy");
    let mut closed = config(closed_port(), second.address);
    closed.as_object_mut().unwrap().remove("fallback_strategy");
    let gateway = gateway(&[config(first.address, second.address), alone, closed], None);
    for (route, status, said) in [
        (0, 200, "it answered with status 503"),
        (1, 401, "it answered with status 401"),
        (2, 502, "it gave no answer, or none in time"),
    ] {
        assert_eq!(ask(&gateway, route, false).response().status, status, "{route}");
        let line = format!("ai-proxy-multi: an instance failed: {said}");
        eventually("the log names it", || {
            let log = gateway.log();
            let mut lines = log.lines().filter(|it| it.contains(&line));
            lines.any(|it| it.contains("instance=first provider=openai-compatible"))
        });
        assert_eq!(gateway.log().matches("an instance failed").count(), route + 1, "each once");
    }
    assert!(!gateway.log().contains(KEY));
}

#[test]
fn a_client_that_leaves_is_not_asked_for_again() {
    let (asked, is_asked) = mpsc::channel();
    let (left, gone) = mpsc::channel();
    let first = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            asked.send(()).unwrap();
            left.send(peer.is_closed()).unwrap();
        }
    });
    let (second, asked) = answering();
    let mut config = config(first.address, second.address);
    config["timeout"] = 60_000.into();
    let gateway = gateway(&[config], None);
    let client = ask(&gateway, 0, true);
    is_asked.recv().unwrap();
    drop(client);
    assert!(gone.recv().unwrap(), "its connection is closed");
    assert_eq!(asked.load(SeqCst), 0);
}

#[test]
fn the_time_to_the_first_token_is_measured() {
    let (second, _) = answering();
    let (first, _) = failing(("", "reset"));
    let gateway = gateway(&[config(first.address, second.address)], None);
    assert_eq!(ask(&gateway, 0, true).response().status, 200);
    let labels = "ai_provider=\"openai-compatible\",ai_model=\"second\",cache_status=\"\",vector_db=\"\",embeddings_provider=\"\",embeddings_model=\"\",workspace=\"default\"";
    for name in ["kong_ai_llm_time_to_first_token_ms_count", "kong_ai_llm_provider_latency_ms_count"] {
        let line = format!("{name}{{{labels}}} 1\n");
        eventually("the stream is counted", || gateway.status("/metrics").text().contains(&line));
    }
}

/// An instance that fails for a poisoned request alone, and how often it was asked.
fn poisonable() -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            count.fetch_add(1, SeqCst);
            if String::from_utf8_lossy(&request.body).contains("poison") {
                peer.send("HTTP/1.1 500 Oh\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            let body = r#"{"choices":[{"message":{"content":"good"}}]}"#;
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    (upstream, asked)
}

#[test]
fn no_client_takes_instances_from_others() {
    let instances = [poisonable(), poisonable(), poisonable()];
    let asked = || instances.each_ref().map(|(_, asked)| asked.load(SeqCst));
    let of = |at: usize, priority| instance("i", instances[at].0.address, priority, ("X-Api-Key", KEY));
    let mut each = [of(0, 2), of(1, 1), of(2, 0)];
    (0..3).for_each(|at| each[at]["name"] = format!("i{at}").into());
    let config = json!({ "fallback_strategy": ["http_5xx"], "max_retries": 1, "instances": each });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "routes": [{ "name": "r", "paths": ["/"] }] }],
        "consumers": [
            { "username": "mallory", "keyauth_credentials": [{ "key": "mallory" }] },
            { "username": "alice", "keyauth_credentials": [{ "key": "alice" }] },
        ],
        "plugins": [{ "name": "key-auth" }, { "name": "ai-proxy-multi", "config": config }],
    });
    let gateway = Gateway::start(&document.to_string());
    let ask = |key: &str, text: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": text }] }).to_string();
        let length = body.len();
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a.test\r\napikey: {key}\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        gateway.connect().send(request).response().status
    };
    assert_eq!((ask("mallory", "poison"), asked()), (500, [1, 1, 0]));
    assert_eq!((ask("alice", "Hi"), asked()), (200, [2, 1, 0]), "the first is well for others");
    assert_eq!((ask("mallory", "Hi"), asked()), (200, [2, 1, 1]), "and left out for who made it fail");
}
