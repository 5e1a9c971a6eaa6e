//! Runs a file of cases: each on a gateway of its own, its requests one after another.
use super::subset::difference;
use crate::harness::{Builder, Gateway, Identity, Message, Peer};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    /// A declarative file; without one, the gateway starts empty and can be written to.
    declarative: Option<String>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// A request and what must come of it. `${name}` stands for what was saved before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    send: String,
    /// Header fields of the request.
    #[serde(default)]
    with: BTreeMap<String, String>,
    json: Option<Value>,
    form: Option<String>,
    parts: Option<BTreeMap<String, String>>,
    /// A body as it is.
    raw: Option<String>,
    /// A body of so many bytes.
    zeros: Option<usize>,
    status: u16,
    /// Header fields of the answer; null for those that must not be there.
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    /// What the answer's body has, at least.
    body: Option<Value>,
    /// JSON pointers to what the body has not.
    #[serde(default)]
    absent: Vec<String>,
    /// Names, and JSON pointers (or the names of header fields) to their values.
    #[serde(default)]
    save: BTreeMap<String, String>,
}

/// Runs the cases of a file.
#[track_caller]
pub(crate) fn run(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/admin/cases/{file}.json"));
    let cases: Vec<Case> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let gateway = start(&case).start();
        let mut client = Peer::connect(gateway.admin_addresses()[0]);
        let mut saved = identities();
        for (number, step) in case.steps.iter().enumerate() {
            let place = format!("{file}: {}: step {}: {}", case.case, number + 1, step.send);
            let answer = send(step, &saved, &mut client);
            check(step, &answer, &saved, &place);
            save(step, &answer, &mut saved, &place);
        }
    }
}

fn start(case: &Case) -> Builder {
    let builder = match &case.declarative {
        Some(text) => Gateway::builder(text),
        None => Gateway::empty(),
    };
    case.settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value))
}

fn identities() -> BTreeMap<String, String> {
    static IDENTITIES: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let make = || {
        let authority = Identity::new("authority.test");
        let server = Identity::signed("server.test", &authority);
        let old = Identity::self_signed_version_1("old.test");
        let weak = Identity::rsa("weak.test", 1024);
        let files = [
            ("ca", authority.cert()),
            ("ca_key", authority.key()),
            ("cert", server.cert()),
            ("key", server.key()),
            ("old_cert", old.cert()),
            ("old_key", old.key()),
            ("weak_cert", weak.cert()),
            ("weak_key", weak.key()),
        ];
        files
            .into_iter()
            .map(|(name, file)| (name.to_owned(), std::fs::read_to_string(file).unwrap()))
            .collect()
    };
    IDENTITIES.get_or_init(make).clone()
}

fn filled(text: &str, saved: &BTreeMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (name, value) in saved {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    assert!(!text.contains("${"), "nothing was saved for {text}");
    text
}

fn filled_json(value: &Value, saved: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => filled(text, saved).into(),
        Value::Array(items) => items.iter().map(|item| filled_json(item, saved)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (filled(name, saved), filled_json(value, saved))).collect()
        }
        other => other.clone(),
    }
}

fn send(step: &Step, saved: &BTreeMap<String, String>, client: &mut Peer) -> Message {
    let (method, path) = step.send.split_once(' ').unwrap();
    let (content_type, body) = match body(step, saved) {
        Some((_, body)) if step.with.contains_key("Content-Type") => (String::new(), body),
        Some((content_type, body)) => (format!("Content-Type: {content_type}\r\n"), body),
        None => (String::new(), Vec::new()),
    };
    let fields = step.with.iter().map(|(name, value)| format!("{name}: {}\r\n", filled(value, saved)));
    let mut request = format!(
        "{method} {} HTTP/1.1\r\nHost: localhost\r\n{content_type}Content-Length: {}\r\n{}\r\n",
        filled(path, saved),
        body.len(),
        fields.collect::<String>()
    )
    .into_bytes();
    request.extend(body);
    client.send(request).response_to(method)
}

fn body(step: &Step, saved: &BTreeMap<String, String>) -> Option<(&'static str, Vec<u8>)> {
    if let Some(json) = &step.json {
        return Some(("application/json", filled_json(json, saved).to_string().into_bytes()));
    }
    if let Some(form) = &step.form {
        return Some(("application/x-www-form-urlencoded", filled(form, saved).into_bytes()));
    }
    if let Some(parts) = &step.parts {
        let part = |(name, value): (&String, &String)| {
            let value = filled(value, saved);
            format!("--part\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        };
        let body = parts.iter().map(part).collect::<String>() + "--part--\r\n";
        return Some(("multipart/form-data; boundary=part", body.into_bytes()));
    }
    if let Some(count) = step.zeros {
        return Some(("application/json", vec![b'0'; count]));
    }
    let raw = step.raw.as_ref()?;
    Some(("application/json", raw.clone().into_bytes()))
}

#[track_caller]
fn check(step: &Step, answer: &Message, saved: &BTreeMap<String, String>, place: &str) {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, step.status, "{place}: {text}");
    for (name, expected) in &step.headers {
        let expected = expected.as_ref().map(|expected| filled(expected, saved));
        let found = answer.header(name);
        match expected.as_deref() {
            Some("<any>") => assert!(found.is_some(), "{place}: no {name}"),
            expected => assert_eq!(found, expected, "{place}: {name}"),
        }
    }
    if let Some(expected) = &step.body {
        let difference = difference(&filled_json(expected, saved), &answer.json(), "");
        assert_eq!(difference, None, "{place}: {text}");
    }
    for pointer in &step.absent {
        assert_eq!(answer.json().pointer(pointer), None, "{place}: {pointer}");
    }
    holds_always(step, answer, place);
}

/// What holds for every answer of the Admin API.
#[track_caller]
fn holds_always(step: &Step, answer: &Message, place: &str) {
    assert!(answer.header("server").is_some_and(|server| server.starts_with("weir/")), "{place}");
    assert_eq!(answer.header("access-control-allow-origin"), None, "{place}");
    let writes = ["POST", "PUT", "PATCH", "DELETE"].iter().any(|method| step.send.starts_with(method));
    assert_eq!(answer.header("x-weir-revision").is_some(), writes && answer.status < 300, "{place}");
    if answer.body.is_empty() {
        return;
    }
    assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"), "{place}");
    if let Some(wrong) = wrong_time(&answer.json()) {
        panic!("{place}: {wrong} is not a time as tools read it");
    }
}

/// A time that is not the number it must be: whole seconds, but for targets.
fn wrong_time(value: &Value) -> Option<String> {
    let whole_seconds = value.get("target").is_none();
    let is_time = |value: &Value| {
        value.is_null() || value.is_i64() || value.is_u64() || !whole_seconds && value.is_number()
    };
    match value {
        Value::Array(items) => items.iter().find_map(wrong_time),
        Value::Object(members) => members.iter().find_map(|(name, value)| match name.as_str() {
            "fields" => None,
            "created_at" | "updated_at" if !is_time(value) => Some(format!("{name}: {value}")),
            _ => wrong_time(value),
        }),
        _ => None,
    }
}

#[track_caller]
fn save(step: &Step, answer: &Message, saved: &mut BTreeMap<String, String>, place: &str) {
    for (name, from) in &step.save {
        let value = if from.starts_with('/') {
            match answer.json().pointer(from) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => panic!("{place}: nothing at {from}"),
            }
        } else {
            answer.header(from).unwrap_or_else(|| panic!("{place}: no {from}")).to_owned()
        };
        saved.insert(name.clone(), value);
    }
}
