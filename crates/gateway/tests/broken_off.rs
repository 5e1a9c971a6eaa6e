//! Responses that break off: the client has all of them that arrived and an end that cannot be taken for the message's,
//! or an answer in their place; and logs say which.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::http2::{block_on, connect, start};
use crate::harness::{Gateway, Peer, Upstream, document, eventually, service, unescape};
use http::Request;
use serde::Deserialize;
use serde_json::Value;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Mutex;
use std::thread;

/// How often each case is tried: whether the end arrives together with the head differs from time to time.
const TRIES: usize = 20;

#[derive(Deserialize)]
struct Table {
    broken: Vec<Sent>,
}

/// What an upstream sends, what then becomes of its connection, and what of a body has arrived.
#[derive(Deserialize)]
struct Sent {
    name: String,
    bytes: String,
    then: Then,
    #[serde(default)]
    arrived: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Then {
    Stay,
    Close,
    Reset,
}

impl Sent {
    fn tries(&self) -> usize {
        if self.error() == "upstream_timeout" { 3 } else { TRIES }
    }

    /// What logs call it.
    fn error(&self) -> &'static str {
        match &*self.name {
            name if name.contains("pause") => "upstream_timeout",
            name if name.contains("bad chunk") => "upstream_invalid_response",
            _ => "upstream_closed",
        }
    }
}

fn table() -> Vec<Sent> {
    toml::from_str::<Table>(include_str!("cases/upstreams.toml")).unwrap().broken
}

/// An upstream that answers with the bytes of the case that the field `Case` names.
fn scripted(cases: &[Sent]) -> Upstream {
    let cases: Vec<_> = cases.iter().map(|case| (unescape(&case.bytes), case.then)).collect();
    Upstream::start(move |mut peer, _| {
        let Some(request) = peer.request() else { return };
        let (bytes, then) = &cases[request.head.field("case").unwrap().parse::<usize>().unwrap()];
        peer.send(bytes);
        match then {
            Then::Stay => _ = peer.rest(),
            Then::Close => {}
            Then::Reset => peer.reset(),
        }
    })
}

fn gateway(upstream: &Upstream, log: &Path) -> Gateway {
    let plugins = format!("plugins: [{{name: file-log, config: {{path: {}}}}}]", log.display());
    let services = [service("/", upstream.address, "read_timeout: 2000", &plugins)];
    Gateway::builder(&document(&services, ""))
        .set("proxy_listen", "127.0.0.1:0 http2")
        .set("proxy_access_log", &log.with_extension("access").display().to_string())
        .set("proxy_access_log_format", "json")
        .start()
}

/// What a client has got: the status, all bytes where they are known, and those of the body.
#[derive(Debug)]
struct Got {
    status: u16,
    bytes: Option<u64>,
    body: Vec<u8>,
}

/// Reads a response to its end, which is no proper one if it is the upstream's.
fn read_raw(client: &mut Peer, case: &str) -> Got {
    let mut bytes = Vec::new();
    let ended = client.reader().read_to_end(&mut bytes);
    if let Err(error) = &ended {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{case}: the gateway neither speaks nor closes");
    }
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) =
        text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{case}: no whole head: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if status != 200 {
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(format!("{head}\r\n").contains(&length), "{case}: the answer is not whole: {text}");
        return Got { status, bytes: Some(text.len() as u64), body: body.into() };
    }
    let chunked = head.contains("chunked");
    let whole = match () {
        () if chunked => body.contains("\r\n0\r\n"),
        () if head.contains("Content-Length: 10") => body.len() >= 10,
        () => ended.is_ok(),
    };
    assert!(!whole, "{case} looks whole: {text}");
    let data = if chunked { chunks(body) } else { body.to_owned() };
    Got { status, bytes: Some((head.len() + 4 + data.len()) as u64), body: data.into() }
}

/// The data of chunks, of which the last may be cut.
fn chunks(mut body: &str) -> String {
    let mut data = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        data.push_str(&rest[..size.min(rest.len())]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    data
}

/// What the records of a log say: case, try, status, size, error and source.
fn records(path: &Path, count: usize) -> Vec<Value> {
    eventually("all lines are there", || {
        fs::read_to_string(path).is_ok_and(|text| text.lines().count() == count)
    });
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Has every case tried by a client, and compares what it got with what the upstream sent and what logs say.
fn try_all(ask: impl Fn(&Gateway, usize, &str) -> Got + Sync) {
    let cases = table();
    let upstream = scripted(&cases);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let gateway = gateway(&upstream, &log);
    let got = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (index, case) in cases.iter().enumerate() {
            let (ask, gateway, got) = (&ask, &gateway, &got);
            scope.spawn(move || {
                for number in 0..case.tries() {
                    let had = ask(gateway, index, &format!("/{index}/{number}"));
                    let status = if case.error() == "upstream_timeout" { 504 } else { 502 };
                    if had.status == 200 {
                        assert_eq!(had.body, case.arrived.as_bytes(), "{}, try {number}", case.name);
                    } else {
                        assert_eq!(had.status, status, "{}, try {number}", case.name);
                    }
                    got.lock().unwrap().push((format!("/{index}/{number}"), index, had));
                }
            });
        }
    });
    let got = got.into_inner().unwrap();
    for path in [log.clone(), log.with_extension("access")] {
        let records = records(&path, got.len());
        for (uri, index, had) in &got {
            let record = records.iter().find(|record| record["request"]["uri"] == *uri).unwrap();
            let name = &cases[*index].name;
            assert_eq!(record["error"], cases[*index].error(), "{name}: {record}");
            assert_eq!(record["response"]["status"], had.status, "{name}: {record}");
            if let Some(bytes) = had.bytes {
                assert_eq!(record["response"]["size"], bytes, "{name}: {record}");
            }
            let source = if had.status == 200 { "upstream" } else { "error" };
            assert_eq!(record["source"], source, "{name}: {record}");
        }
    }
}

fn try_all_over(version: &str) {
    try_all(|gateway, case, uri| {
        let mut client = gateway.connect();
        client.send(format!(
            "GET {uri} HTTP/{version}\r\nHost: a\r\nConnection: close\r\nCase: {case}\r\n\r\n"
        ));
        read_raw(&mut client, &format!("case {case}, {uri}"))
    });
}

#[test]
fn what_arrived_is_passed_on_over_http_1_1() {
    try_all_over("1.1");
}

/// The end of the connection is that of the body: only a reset tells that it is none.
#[test]
fn what_arrived_is_passed_on_over_http_1_0() {
    try_all_over("1.0");
}

#[test]
fn what_arrived_is_passed_on_over_http_2() {
    try_all(|gateway, case, uri| {
        block_on(async {
            let (requests, _) = connect(gateway.proxy()).await;
            let request = Request::get(format!("http://localhost{uri}")).header("case", case);
            let (response, _) = start(&requests, request.body(()).unwrap(), true).await.unwrap();
            let response = response.await.unwrap_or_else(|error| panic!("case {case}: no head: {error}"));
            let status = response.status().as_u16();
            let mut stream = response.into_body();
            let mut body = Vec::new();
            let end = loop {
                match stream.data().await {
                    Some(Ok(data)) => body.extend_from_slice(&data),
                    end => break end,
                }
            };
            let reset = end.map(|end| end.unwrap_err().reason());
            let expected = (status == 200).then_some(Some(h2::Reason::INTERNAL_ERROR));
            assert_eq!(reset, expected, "case {case}, {status}: {body:?}");
            Got { status, bytes: None, body }
        })
    });
}

/// A client that is answered in place of a response goes on; one that has the beginning of a response does not.
#[test]
fn an_answer_in_place_of_a_response_leaves_the_connection_in_step() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
            if request.head.start.starts_with("GET /broken") {
                return;
            }
            peer.send("hi");
        }
    });
    let gateway = Gateway::start(&document(&[service("/", upstream.address, "", "")], ""));
    for _ in 0..TRIES {
        let mut client = gateway.connect();
        client.send("GET /broken HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\n\r\n");
        let head = client.head().unwrap();
        if head.start != "HTTP/1.1 502 Bad Gateway" {
            assert_eq!(head.start, "HTTP/1.1 200 OK");
            assert!(client.is_closed());
            continue;
        }
        let length: u64 = head.field("content-length").unwrap().parse().unwrap();
        let mut body = Vec::new();
        client.reader().take(length).read_to_end(&mut body).unwrap();
        assert!(serde_json::from_slice::<Value>(&body).unwrap()["message"].is_string());
        assert_eq!(head.field("connection"), None);
        assert_eq!(client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().text(), "hi");
    }
}

/// What waits for a client that does not read is given up in time.
#[test]
fn a_client_that_reads_nothing_holds_a_broken_response_for_no_longer_than_send_timeout() {
    let upstream = Upstream::start(|mut peer, _| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n").send(vec![b'x'; 50_000_000]);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let plugins = format!("plugins: [{{name: file-log, config: {{path: {}}}}}]", log.display());
    let services = [service("/", upstream.address, "", &plugins)];
    let gateway = Gateway::builder(&document(&services, "")).set("send_timeout", "500ms").start();
    let mut client = gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let record = &records(&log, 1)[0];
    assert_eq!((&record["response"]["status"], &record["error"]), (&200.into(), &"client_timeout".into()));
    assert!(client.rest().len() < 50_000_000);
    let said = "the client took nothing of it for as long as the setting `send_timeout` allows";
    assert!(gateway.log().contains(said), "{}", gateway.log());
}
