//! The sessions of Kong's guide to getting started, over the real binary: what is typed, and what comes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Message, Peer, Upstream};
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    step: Vec<Step>,
}

/// One `curl`: to the Admin API with a form, or to the proxy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    admin: Option<String>,
    #[serde(default)]
    form: Vec<String>,
    proxy: Option<String>,
    #[serde(default)]
    sends: BTreeMap<String, String>,
    #[serde(default = "once")]
    times: usize,
    status: u16,
    /// Members of the answer, null where a text is empty.
    has: Option<Json>,
    /// Headers of the answer.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Which upstreams answer, over all times.
    answers: Option<BTreeSet<String>>,
    /// Remembers the answer's id under this name.
    keep: Option<String>,
}

fn once() -> usize {
    1
}

struct Run {
    gateway: Gateway,
    names: BTreeMap<String, String>,
}

impl Run {
    fn fill(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }

    fn ask(&self, step: &Step) -> Message {
        if let Some(path) = &step.proxy {
            let headers: String =
                step.sends.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
            return self.gateway.get_with(path, &headers);
        }
        let (line, body) = (self.fill(step.admin.as_ref().unwrap()), self.fill(&step.form.join("&")));
        // The next step is to see what this one wrote.
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nPrefer: wait\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Peer::connect(self.gateway.admin_addresses()[0]).send(request).response()
    }

    fn take(&mut self, step: &Step) {
        let context = step.admin.as_ref().or(step.proxy.as_ref()).unwrap();
        let mut answered = BTreeSet::new();
        for _ in 0..step.times {
            let answer = self.ask(step);
            assert_eq!(answer.status, step.status, "{context}: {}", answer.text());
            for (name, value) in &step.headers {
                assert_eq!(answer.header(name), Some(value.as_str()), "{context}: {name}");
            }
            if let Some(expected) = &step.has {
                self.check(expected, &answer.json(), context);
            }
            if let Some(name) = &step.keep {
                self.names.insert(name.clone(), answer.json()["id"].as_str().unwrap().to_owned());
            }
            answered.insert(answer.text().to_owned());
        }
        if let Some(expected) = &step.answers {
            assert_eq!(&answered, expected, "{context}");
        }
    }

    fn check(&self, expected: &Json, got: &Json, context: &str) {
        match (expected, got) {
            (Json::Object(expected), Json::Object(got)) => expected.iter().for_each(|(name, value)| {
                let got = got.get(name).unwrap_or_else(|| panic!("{context}: no {name}"));
                self.check(value, got, &format!("{context}: {name}"));
            }),
            (Json::Array(expected), Json::Array(got)) if expected.len() == got.len() => {
                expected.iter().zip(got).for_each(|(expected, got)| self.check(expected, got, context));
            }
            (Json::String(text), Json::Null) if text.is_empty() => {}
            (Json::String(text), got) => assert_eq!(got, &self.fill(text), "{context}"),
            _ => assert_eq!(got, expected, "{context}"),
        }
    }
}

fn named(name: &str) -> Upstream {
    Upstream::answering(&format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()))
}

fn run(session: &str) {
    let (one, two) = (named("one"), named("two"));
    let names = [("one", one.address), ("two", two.address)];
    let names = names.iter().map(|(name, address)| ((*name).to_owned(), address.to_string())).collect();
    let mut run = Run { gateway: Gateway::empty().start(), names };
    let session: Session = toml::from_str(session).expect("a session is TOML");
    session.step.iter().for_each(|step| run.take(step));
}

#[test]
fn services_and_routes() {
    run(include_str!("services-and-routes.toml"));
}

#[test]
fn rate_limiting() {
    run(include_str!("rate-limiting.toml"));
}

#[test]
fn key_authentication() {
    run(include_str!("key-authentication.toml"));
}

#[test]
fn load_balancing() {
    run(include_str!("load-balancing.toml"));
}
