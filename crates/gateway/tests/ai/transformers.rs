//! ai-request-transformer and ai-response-transformer with models that hang, behind proxies, and clients that leave.

use super::analytics::rows;
use super::ask;
use crate::harness::{Gateway, Identity, TlsUpstream, Upstream, eventually};
use serde_json::{Value as Json, json};
use std::fs;
use std::sync::mpsc;

/// The body of a model's response.
fn completion(text: &str) -> String {
    json!({ "choices": [{ "message": { "content": text } }] }).to_string()
}

#[test]
fn a_model_is_asked_through_a_proxy_and_may_hang() {
    let (asked, targets) = mpsc::channel();
    let proxy = Upstream::start(move |mut peer, number| {
        let Some(request) = peer.request() else { return };
        asked.send(request.head.start).unwrap();
        if number == 0 {
            let body = completion("new");
            let length = body.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        } else {
            peer.is_closed();
        }
    });
    let upstream = Upstream::echoing();
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": "openai", "name": "m", "options": { "upstream_url": "http://model.test/v1" } },
    });
    let (host, port) = ("127.0.0.1", proxy.address.port());
    let config = json!({
        "prompt": "x", "llm": llm, "http_timeout": 300,
        "http_proxy_host": host, "http_proxy_port": port, "https_proxy_host": host, "https_proxy_port": port,
    });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "url": format!("http://{}", upstream.address), "routes": [{ "paths": ["/"] }] }],
        "plugins": [{ "name": "ai-request-transformer", "config": config }],
    });
    let gateway = Gateway::start(&document.to_string());
    let rewritten = ask(&gateway, false).response();
    assert!(rewritten.text().ends_with("\n\nnew"), "{}", rewritten.text());
    assert_eq!(targets.recv().unwrap(), "POST http://model.test/v1 HTTP/1.1");
    let hung = ask(&gateway, false).response();
    let message = "failed to introspect request with AI service: request to ai service failed: the server took too long";
    assert_eq!((hung.status, hung.json()), (400, json!({ "error": { "message": message } })));
}

#[test]
fn what_a_model_has_cost_is_reported_although_its_answer_is_of_no_use() {
    let model = Upstream::start(|mut peer, number| {
        if peer.request().is_none() {
            return;
        }
        let (status, body) = match number {
            0 => ("200 OK", completion("twelve bytes")),
            1 => ("429 Too Many Requests", "{}".to_owned()),
            _ => ("200 OK", "rubbish".to_owned()),
        };
        let length = body.len();
        peer.send(format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
    });
    let upstream = Upstream::echoing();
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": "openai", "name": "m", "options": { "upstream_url": format!("http://{}/", model.address) } },
        "logging": { "log_statistics": true },
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let config = json!({ "prompt": "x", "llm": llm, "transformation_extract_pattern": "[{]" });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "url": format!("http://{}", upstream.address), "routes": [{ "paths": ["/"] }] }],
        "plugins": [
            { "name": "ai-request-transformer", "config": config },
            { "name": "file-log", "config": { "path": log } },
        ],
    });
    let gateway = Gateway::start(&document.to_string());
    for _ in 0..3 {
        assert_eq!(ask(&gateway, false).response().status, 400);
    }
    let row = || rows(&gateway).into_iter().next().unwrap_or_default();
    eventually("all calls are counted", || row()["requests"] == 3);
    let row = row();
    assert_eq!(
        (&row["name"], &row["errors"], &row["completion_tokens"]),
        (&json!("openai/m"), &json!(2), &json!(3))
    );
    let series = gateway.admin("/analytics/series?by=status&model=openai/m").json();
    let columns = series["columns"].as_array().unwrap();
    let mut statuses: Vec<_> = columns.iter().map(|column| column["label"].as_str().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["200", "429", "502"], "{series}");
    let read = || fs::read_to_string(&log).unwrap_or_default();
    eventually("all are logged", || read().lines().count() == 3);
    let first: Json = serde_json::from_str(read().lines().next().unwrap()).unwrap();
    assert_eq!(first["ai"]["ai-request-transformer"]["usage"]["completion_tokens"], 3, "{first}");
}

#[test]
fn a_client_that_leaves_ends_the_wait_for_a_model() {
    let (left, gone) = mpsc::channel();
    let (asked, is_asked) = mpsc::channel();
    let model = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            asked.send(()).unwrap();
            left.send(peer.is_closed()).unwrap();
        }
    });
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": "openai", "name": "m", "options": { "upstream_url": format!("http://{}/", model.address) } },
    });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "url": format!("http://{}", upstream.address), "routes": [{ "paths": ["/"] }] }],
        "plugins": [{ "name": "ai-response-transformer", "config": { "prompt": "x", "llm": llm } }],
    });
    let gateway = Gateway::start(&document.to_string());
    let client = ask(&gateway, false);
    is_asked.recv().unwrap();
    drop(client);
    assert!(gone.recv().unwrap(), "the model's connection is closed");
}

/// A proxy that connects to one server, whichever it is asked for, and tells which that was.
fn tunnelling(server: std::net::SocketAddr) -> (Upstream, mpsc::Receiver<String>) {
    let (asked, targets) = mpsc::channel();
    let proxy = Upstream::start(move |mut peer, _| {
        let Some(head) = peer.head() else { return };
        asked.send(head.start).unwrap();
        peer.send("HTTP/1.1 200 Connection established\r\n\r\n");
        let (mut client, mut server) = (peer.into_socket(), std::net::TcpStream::connect(server).unwrap());
        let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let _ = std::io::copy(&mut client, &mut server);
    });
    (proxy, targets)
}

#[test]
fn a_model_behind_a_proxy_is_known_by_its_certificate() {
    let identity = Identity::new("model.test");
    let model = TlsUpstream::start(&identity, &[]);
    let (proxy, targets) = tunnelling(model.address);
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": "openai", "name": "m", "options": { "upstream_url": "https://model.test/v1" } },
    });
    let config = json!({
        "prompt": "x", "llm": llm, "http_timeout": 10000,
        "https_proxy_host": "127.0.0.1", "https_proxy_port": proxy.address.port(),
    });
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "url": "http://127.0.0.1:1", "routes": [{ "paths": ["/"] }] }],
        "plugins": [{ "name": "ai-request-transformer", "config": config }],
    });
    let other = Identity::new("other.test");
    let trusted = other.cert().display().to_string();
    let gateway =
        Gateway::builder(&document.to_string()).set("lua_ssl_trusted_certificate", &trusted).start();
    let refused = ask(&gateway, false).response();
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("certificate"), "{}", refused.text());
    assert_eq!(targets.recv().unwrap(), "CONNECT model.test:443 HTTP/1.1");
}
