//! Whether a message is as a case expects it.
use super::case::{Message, Request, Response};
use regex::Regex;
use serde_json::Value;

/// What differs in a response.
pub(crate) fn response(expected: &Response, found: &crate::harness::Message) -> Option<String> {
    match expected.status {
        Some(status) if status != found.status => {
            Some(format!("status {}, expected {status}: {}", found.status, shown(found)))
        }
        _ => message(&expected.message, found),
    }
}

/// What differs in a request.
pub(crate) fn request(expected: &Request, found: &crate::harness::Message) -> Option<String> {
    let mut line = found.head.start.split(' ');
    let (method, target) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
    text("the method", expected.method.as_deref(), method)
        .or_else(|| text("the target", expected.target.as_deref(), target))
        .or_else(|| message(&expected.message, found))
}

fn message(expected: &Message, found: &crate::harness::Message) -> Option<String> {
    let header = |(name, expected): (&String, &Value)| header(name, expected, &found.head.all(name));
    let differing = expected.headers.iter().find_map(header);
    let differing = differing.or_else(|| text("the body", expected.body.as_deref(), &shown(found)));
    differing.or_else(|| {
        let json = || serde_json::from_slice(&found.body).unwrap_or(Value::Null);
        expected.json.as_ref().and_then(|expected| difference(expected, &json(), "the body's JSON"))
    })
}

fn shown(message: &crate::harness::Message) -> String {
    String::from_utf8_lossy(&message.body).into_owned()
}

fn header(name: &str, expected: &Value, found: &[&str]) -> Option<String> {
    let is_so = match expected {
        Value::Bool(present) => *present != found.is_empty(),
        Value::String(expected) => found.len() == 1 && is_like(expected, found[0]),
        Value::Array(all) => {
            all.len() == found.len()
                && all.iter().zip(found).all(|(expected, found)| is_like(expected.as_str().unwrap(), found))
        }
        other => panic!("{name}: {other} is nothing that a header can be expected to be"),
    };
    (!is_so).then(|| format!("header {name} is {found:?}, expected {expected}"))
}

fn text(what: &str, expected: Option<&str>, found: &str) -> Option<String> {
    let expected = expected.filter(|expected| !is_like(expected, found))?;
    Some(format!("{what} is {found:?}, expected {expected:?}"))
}

/// Whether a text is the expected one, or what a regex behind `~` finds.
fn is_like(expected: &str, found: &str) -> bool {
    match expected.strip_prefix('~') {
        Some(pattern) => Regex::new(pattern).expect("a regex").is_match(found),
        None => expected == found,
    }
}

/// What differs in JSON: members that are not expected may be there, but for lists, which are compared as a whole.
/// `false` for a member that must be missing is written `"<absent>"`.
fn difference(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(members)) => expected.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match members.get(name) {
                None if value == "<absent>" => None,
                None => Some(format!("{path} is missing")),
                Some(found) => difference(value, found, &path),
            }
        }),
        (Value::Array(expected), Value::Array(items)) if expected.len() == items.len() => {
            let mut pairs = expected.iter().zip(items).enumerate();
            pairs.find_map(|(at, (expected, found))| difference(expected, found, &format!("{path}[{at}]")))
        }
        (Value::String(expected), found) if is_kind(expected, found) => None,
        (Value::String(expected), Value::String(found)) if is_like(expected, found) => None,
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        (expected, found) if expected == found => None,
        (expected, found) => Some(format!("{path} is {found}, expected {expected}")),
    }
}

fn is_kind(expected: &str, found: &Value) -> bool {
    match expected {
        "<number>" => found.is_number(),
        "<text>" => found.as_str().is_some_and(|text| !text.is_empty()),
        "<object>" => found.is_object(),
        _ => false,
    }
}
