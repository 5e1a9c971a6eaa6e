//! Cases kept as data, in `tests/cases/explain.toml`.
use super::{Asked, explain};
use crate::Network;
use crate::snapshot::Snapshot;
use crate::testing::Gateway;
use crate::worker::Options;
use serde::Deserialize;
use serde_json::Value as Json;
use std::sync::Arc;
use weir_model::{Document, Format};
use weir_plugins::PLUGINS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    config: String,
    ask: Vec<QuestionCase>,
}

/// A question, and members of the answer, or a part of the refusal.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionCase {
    question: Json,
    expects: Option<Json>,
    refused: Option<String>,
}

fn gateway(config: &str) -> Gateway {
    let schemas: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
    let read = Document::read(config, Format::Yaml, &schemas, &|_| None);
    let mut gateway = Gateway::new();
    gateway.document = read.unwrap_or_else(|problems| panic!("{problems:?}")).document;
    gateway
}

/// Where the answer is other than expected.
fn difference(expected: &Json, got: &Json, path: &str) -> Option<String> {
    match (expected, got) {
        (Json::Object(expected), Json::Object(got)) => expected.iter().find_map(|(name, value)| {
            difference(value, got.get(name).unwrap_or(&Json::Null), &format!("{path}.{name}"))
        }),
        (Json::Array(expected), Json::Array(got)) if expected.len() == got.len() => {
            (0..).zip(expected.iter().zip(got)).find_map(|(at, (expected, got)): (usize, _)| {
                difference(expected, got, &format!("{path}[{at}]"))
            })
        }
        (Json::String(expected), Json::Null) if expected == "null" => None,
        _ if expected == got => None,
        _ => Some(format!("{path}: expected {expected}, got {got}")),
    }
}

impl QuestionCase {
    /// What is wrong with the answer.
    fn fault(&self, gateway: &Gateway, snapshot: &Arc<Snapshot>) -> Option<String> {
        let asked = Asked::read(&self.question);
        let answer =
            asked.and_then(|asked| explain(snapshot, &gateway.document, &asked, &Options::default()));
        match (answer, &self.expects, &self.refused) {
            (Ok(explained), Some(expected), None) => {
                difference(expected, &serde_json::to_value(explained).unwrap(), "")
            }
            (Err(refusal), None, Some(part)) if refusal.to_string().contains(part) => None,
            (answer, ..) => Some(format!("{answer:?}")),
        }
    }
}

#[test]
fn cases() {
    let text = include_str!("../../tests/cases/explain.toml");
    let mut faults = Vec::new();
    for case in toml::from_str::<Cases>(text).unwrap().case {
        let gateway = gateway(&case.config);
        let snapshot = Arc::new(gateway.snapshot());
        let faulty = case.ask.iter().filter_map(|ask| Some((ask, ask.fault(&gateway, &snapshot)?)));
        faults.extend(faulty.map(|(ask, fault)| format!("{}: {}: {fault}", case.name, ask.question)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn near_misses_are_capped() {
    let routes: String =
        (0..30).map(|n| format!("- {{name: r{n}, paths: [/a], methods: [PUT]}}\n")).collect();
    let gateway = gateway(&format!("_format_version: \"3.0\"\nroutes:\n{routes}"));
    let asked = Asked::read(&serde_json::json!({ "host": "a", "path": "/a" })).unwrap();
    let explained =
        explain(&Arc::new(gateway.snapshot()), &gateway.document, &asked, &Options::default()).unwrap();
    assert_eq!((explained.others.len(), explained.more_others), (20, 10));
}

#[test]
fn no_header_is_shown() {
    let question = serde_json::json!({ "host": "a", "headers": { "apikey": "hidden" } });
    let asked = Asked::read(&question).unwrap();
    assert!(!format!("{asked:?}").contains("hidden"));
    let refused =
        Asked::read(&serde_json::json!({ "host": "a", "headers": { "apikey": 7654 } })).unwrap_err();
    assert!(!refused.to_string().contains("7654"), "{refused}");
}

#[test]
fn a_trusted_peer_names_the_client() {
    let gateway = gateway("_format_version: \"3.0\"\n");
    let options = Options {
        trusted_ips: vec![Network { address: [10, 0, 0, 0].into(), prefix: 8 }],
        ..Options::default()
    };
    let seen = |peer: &str| {
        let headers = serde_json::json!({ "X-Real-IP": "203.0.113.9" });
        let question = serde_json::json!({ "host": "a", "client_ip": peer, "headers": headers });
        let asked = Asked::read(&question).unwrap();
        let request =
            explain(&Arc::new(gateway.snapshot()), &gateway.document, &asked, &options).unwrap().request;
        (request.client_ip, request.real_ip_header)
    };
    assert_eq!(seen("10.0.0.1"), ("203.0.113.9".to_owned(), Some("X-Real-IP".to_owned())));
    assert_eq!(seen("192.0.2.1"), ("192.0.2.1".to_owned(), None));
}
