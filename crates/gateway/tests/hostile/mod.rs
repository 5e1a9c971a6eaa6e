//! What has broken other gateways, as cases: `cases` has a file for each class of attack or a group of them, `docs/testing.md`
//! the table of the classes.
//!
//! Each case sends bytes over HTTP/1.1 (`send`) or header fields over HTTP/2 (`fields`), and another request behind them on
//! the same connection. It says what is answered, and what reaches the upstream: that reads with [`strict`], which is not
//! the gateway's reader, and answers each request with its first line, so that an answer that belongs to another request
//! shows.
mod admin;
mod client;
mod dead_streams;
mod http2;
mod resolver;
mod strict;
mod tls;
mod to_http2;
mod upstream;

use crate::harness::{Gateway, unescape};
use serde::Deserialize;
use std::collections::BTreeMap;
use upstream::Recorder;

/// What every configuration has beside that of the table: where the request goes that follows each case.
const PROBES: &str = "- {name: probes, url: \"http://UPSTREAM\", routes: [{name: probes, paths: [/probe], strip_path: false}]}\n";

/// Cases that share a gateway.
#[derive(Deserialize)]
struct Table {
    /// Items of `services`, in YAML.
    #[serde(default)]
    services: String,
    /// Further entities, in YAML.
    #[serde(default)]
    more: String,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    /// What the client sends over HTTP/1.1.
    send: Option<String>,
    /// What it sends over HTTP/2, with a body.
    fields: Option<Vec<(String, String)>>,
    body: Option<String>,
    /// Whether the client then sends no more, not even another request.
    #[serde(default)]
    stops: bool,
    /// What the upstream answers, in place of its usual response.
    respond: Option<String>,
    /// The statuses of the answers, without interim ones. None: the stream is reset.
    answers: Vec<u16>,
    /// Whether the connection ends behind the answers. Otherwise the next request on it is answered.
    #[serde(default)]
    closes: bool,
    /// What reaches the upstream: `METHOD target`, with `: body` if there is one.
    #[serde(default)]
    upstream: Vec<String>,
    /// Header lines of what reaches the upstream, names in lower case.
    #[serde(default)]
    has: Vec<String>,
    /// What the upstream must not see, in any case.
    #[serde(default)]
    lacks: Vec<String>,
    /// What the client must see, and what it must not.
    #[serde(default)]
    shows: Vec<String>,
    #[serde(default)]
    hides: Vec<String>,
}

/// The outcome of a case: the statuses, and whether the next request on the connection was answered.
struct Answers {
    statuses: Vec<u16>,
    next: bool,
    bytes: String,
}

/// Runs the cases of a file; what is wrong with any of them is said at the end.
fn run(file: &str) {
    let table: Table = toml::from_str(file).unwrap_or_else(|error| panic!("{error}"));
    let recorder = Recorder::start();
    let address = recorder.address().to_string();
    let document = format!("_format_version: \"3.0\"\nservices:\n{PROBES}{}\n{}", table.services, table.more);
    let mut builder = Gateway::builder(&document.replace("UPSTREAM", &address))
        .set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl");
    for (key, value) in &table.settings {
        builder = builder.set(key, value);
    }
    let gateway = builder.start();
    let faults: Vec<String> = table.case.iter().filter_map(|case| fault(case, &gateway, &recorder)).collect();
    assert!(faults.is_empty(), "{} of {} cases:\n{}", faults.len(), table.case.len(), faults.join("\n"));
}

/// What is wrong with the outcome of a case, if anything.
fn fault(case: &Case, gateway: &Gateway, recorder: &Recorder) -> Option<String> {
    recorder.respond(case.respond.as_deref().map(unescape));
    let answers = match (&case.send, &case.fields) {
        (Some(send), None) => client::send(gateway.proxy(), &unescape(send), case.stops),
        (None, Some(fields)) => http2::send(gateway.proxy(), fields, case.body.as_deref()),
        _ => panic!("{}: give either `send` or `fields`", case.name),
    };
    recorder.respond(None);
    let behind = gateway.get("/probe/behind");
    let seen = recorder.take();
    let wrong = match answers {
        Err(error) => Some(error),
        Ok(answers) => wrong_answers(case, &answers).or_else(|| wrong_requests(case, &seen)),
    };
    let wrong = wrong.or_else(|| {
        let is_right = behind.text() == "GET /probe/behind HTTP/1.1";
        (!is_right).then(|| format!("another client got {} {}", behind.status, behind.text()))
    });
    wrong.map(|wrong| format!("- {}: {wrong}", case.name))
}

fn wrong_answers(case: &Case, answers: &Answers) -> Option<String> {
    if answers.statuses != case.answers {
        return Some(format!("answered {:?}, not {:?}: {}", answers.statuses, case.answers, answers.bytes));
    }
    if answers.next == case.closes {
        let what = if case.closes { "the connection goes on" } else { "the connection ends" };
        return Some(format!("{what}: {}", answers.bytes));
    }
    let missing = case.shows.iter().find(|text| !answers.bytes.contains(text.as_str()));
    let shown = case.hides.iter().find(|text| answers.bytes.contains(text.as_str()));
    missing
        .map(|text| format!("{text:?} is not shown: {}", answers.bytes))
        .or_else(|| shown.map(|text| format!("{text:?} is shown: {}", answers.bytes)))
}

fn wrong_requests(case: &Case, seen: &upstream::Seen) -> Option<String> {
    if let Some(error) = seen.errors.first() {
        return Some(format!("the upstream got what can be read in two ways: {error}"));
    }
    let expected = case.upstream.iter().map(|text| String::from_utf8(unescape(text)).expect("text"));
    let requests: Vec<String> = seen.requests.iter().map(upstream::Request::summary).collect();
    if !expected.eq(requests.iter().cloned()) {
        return Some(format!("the upstream got {requests:?}, not {:?}", case.upstream));
    }
    let lines: Vec<String> = seen.requests.iter().flat_map(upstream::Request::lines).collect();
    if let Some(line) = case.has.iter().find(|line| !lines.contains(line)) {
        return Some(format!("the upstream lacks {line:?}: {lines:?}"));
    }
    let has = |text: &&String| lines.iter().any(|line| line.to_lowercase().contains(&text.to_lowercase()));
    case.lacks.iter().find(has).map(|text| format!("the upstream got {text:?}: {lines:?}"))
}

macro_rules! cases {
    ($($name:ident,)*) => {
        $(#[test]
        fn $name() {
            run(include_str!(concat!("cases/", stringify!($name), ".toml")));
        })*
    };
}

cases! {
    cache_keys,
    chunks,
    credentials,
    desync,
    downgrade,
    framing,
    heads,
    identity,
    multiple_values,
    paths,
    responses,
    rewrites,
    undrained,
    upgrades,
}
