//! How two responses differ.
use super::exchange::{Response, Responses};
use super::rules::{Compare, Rules};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most differences of one request that are shown.
const MAX_DIFFERENCES: usize = 50;

/// The most characters of a value that are shown.
const MAX_VALUE_LEN: usize = 300;

/// What of a response is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Aspect {
    Status,
    /// A header, by its name.
    Header(String),
    /// A member of a JSON body, by the names and indices that lead to it.
    Json(Vec<String>),
    /// A body that is not JSON.
    Body,
}

impl fmt::Display for Aspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Json(path) if path.is_empty() => f.write_str("JSON body"),
            Self::Json(path) => write!(f, "JSON body, {}", path.join(".")),
            Self::Body => f.write_str("body"),
        }
    }
}

/// What differs, and what each gateway sent; none if it did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) aspect: Aspect,
    pub(super) a: Option<String>,
    pub(super) b: Option<String>,
}

impl Difference {
    /// What differences with the same cause have in common.
    pub(super) fn cause(&self) -> String {
        let aspect = match &self.aspect {
            Aspect::Json(path) => Aspect::Json(path.iter().map(|part| without_index(part)).collect()),
            other => other.clone(),
        };
        match (&self.a, &self.b) {
            (Some(a), Some(b)) if aspect == Aspect::Status => format!("status {} → {}", code(a), code(b)),
            (Some(_), None) => format!("{aspect}: only from a"),
            (None, Some(_)) => format!("{aspect}: only from b"),
            _ => format!("{aspect}: another value"),
        }
    }
}

fn without_index(part: &str) -> String {
    let is_index = part.bytes().all(|byte| byte.is_ascii_digit());
    if is_index { "*".to_owned() } else { part.to_owned() }
}

fn code(status: &str) -> &str {
    status.split(' ').next().unwrap_or_default()
}

/// How the responses of both gateways differ, apart from what varies at `a` itself.
pub(super) fn differences(responses: &Responses, rules: &Rules) -> Vec<Difference> {
    let varying: BTreeSet<_> = match &responses.again {
        Some(again) => between(&responses.a, again, rules).into_iter().map(|it| it.aspect).collect(),
        None => BTreeSet::new(),
    };
    let mut all = between(&responses.a, &responses.b, rules);
    all.retain(|difference| !varying.contains(&difference.aspect));
    all.truncate(MAX_DIFFERENCES);
    all
}

/// Where the status differs, the rest follows from it and is left out.
fn between(a: &Response, b: &Response, rules: &Rules) -> Vec<Difference> {
    if a.status != b.status {
        let summary = |response: &Response| {
            Some(shortened(&format!("{} {}", response.status.as_u16(), shown(&response.body))))
        };
        return vec![Difference { aspect: Aspect::Status, a: summary(a), b: summary(b) }];
    }
    let (a_headers, b_headers) = (headers(a, rules), headers(b, rules));
    let (a_body, b_body) = bodies(a, b, rules);
    let mut all = unequal(a_headers, b_headers);
    all.extend(unequal(a_body, b_body));
    all
}

type Aspects = BTreeMap<Aspect, String>;

fn unequal(mut a: Aspects, mut b: Aspects) -> Vec<Difference> {
    let aspects: BTreeSet<_> = a.keys().chain(b.keys()).cloned().collect();
    let compared = aspects.into_iter().map(|aspect| (a.remove(&aspect), b.remove(&aspect), aspect));
    let differing = compared.filter(|(a, b, _)| a != b);
    differing
        .map(|(a, b, aspect)| Difference {
            aspect,
            a: a.map(|it| shortened(&it)),
            b: b.map(|it| shortened(&it)),
        })
        .collect()
}

fn headers(response: &Response, rules: &Rules) -> Aspects {
    let mut aspects = Aspects::new();
    for name in response.headers.keys() {
        let values = response.headers.get_all(name).iter();
        let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        if let Some(value) = compared(rules.of_header(name.as_str()), || values.join(", ")) {
            aspects.insert(Aspect::Header(name.as_str().to_owned()), value);
        }
    }
    aspects
}

/// What is compared of a value; none if nothing.
fn compared(how: Compare, value: impl FnOnce() -> String) -> Option<String> {
    match how {
        Compare::Value => Some(value()),
        Compare::Presence => Some("(present)".to_owned()),
        Compare::Ignore => None,
    }
}

/// Bodies are compared member by member if both are JSON, else as a whole.
fn bodies(a: &Response, b: &Response, rules: &Rules) -> (Aspects, Aspects) {
    if a.body == b.body {
        return (Aspects::new(), Aspects::new());
    }
    let json = |response: &Response| serde_json::from_slice::<Value>(&response.body).ok();
    if let (Some(a), Some(b)) = (json(a), json(b)) {
        let members = |value: &Value| {
            let mut aspects = Aspects::new();
            flatten(value, &mut Vec::new(), rules, &mut aspects);
            aspects
        };
        return (members(&a), members(&b));
    }
    let whole = |response: &Response| Aspects::from([(Aspect::Body, text(&response.body, rules))]);
    (whole(a), whole(b))
}

fn flatten(value: &Value, path: &mut Vec<String>, rules: &Rules, into: &mut Aspects) {
    let how = if path.is_empty() { Compare::Value } else { rules.of_json(path) };
    let mut below = |name: String, value: &Value, path: &mut Vec<String>| {
        path.push(name);
        flatten(value, path, rules, into);
        path.pop();
    };
    match value {
        Value::Object(members) if how == Compare::Value && !members.is_empty() => {
            members.iter().for_each(|(name, value)| below(name.clone(), value, path));
        }
        Value::Array(items) if how == Compare::Value && !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, value)| below(index.to_string(), value, path));
        }
        leaf => {
            if let Some(value) = compared(how, || leaf.to_string()) {
                into.insert(Aspect::Json(path.clone()), value);
            }
        }
    }
}

/// A body as text; of one that is not UTF-8, its length and its SHA-256.
fn text(body: &[u8], rules: &Rules) -> String {
    match std::str::from_utf8(body) {
        Ok(text) => rules.normalised(text),
        Err(_) => {
            let digest: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{} bytes, SHA-256 {digest}", body.len())
        }
    }
}

fn shown(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(4 * MAX_VALUE_LEN)]).into_owned()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_VALUE_LEN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, StatusCode};

    fn response(status: u16, headers: &[(&'static str, &str)], body: &str) -> Response {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value")))
            .collect();
        let status = StatusCode::from_u16(status).expect("a status");
        Response { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    }

    fn causes(a: Response, b: Response, again: Option<Response>) -> Vec<String> {
        let rules = Rules::read(None).expect("the built-in rules");
        differences(&Responses { a, b, again }, &rules).iter().map(Difference::cause).collect()
    }

    #[test]
    fn a_status_says_all() {
        let a = response(200, &[("x-a", "1")], "yes");
        assert_eq!(causes(a, response(404, &[], "no"), None), ["status 200 → 404"]);
    }

    #[test]
    fn headers_are_compared_by_their_rules() {
        let a = response(200, &[("date", "now"), ("via", "1.1 kong"), ("x-a", "1"), ("x-b", "1")], "");
        let b = response(200, &[("date", "then"), ("x-a", "2"), ("x-c", "1")], "");
        let expected = [
            "header via: only from a",
            "header x-a: another value",
            "header x-b: only from a",
            "header x-c: only from b",
        ];
        assert_eq!(causes(a, b, None), expected);
    }

    #[test]
    fn members_of_json_are_compared_one_by_one() {
        let a =
            response(200, &[], r#"{"request_id": "1", "items": [{"n": 1}, {"n": 2}], "same": {"x": []}}"#);
        let b =
            response(200, &[], r#"{"same": {"x": []}, "request_id": "2", "items": [{"n": 3}, {"n": 4}]}"#);
        let expected = "JSON body, items.*.n: another value";
        assert_eq!(causes(a, b, None), [expected, expected]);
    }

    #[test]
    fn what_varies_by_itself_is_not_compared() {
        let of =
            |time: &str, word: &str| response(200, &[], &format!(r#"{{"time": {time}, "word": "{word}"}}"#));
        let again = Some(of("2", "a"));
        assert_eq!(causes(of("1", "a"), of("3", "b"), again), ["JSON body, word: another value"]);
    }

    #[test]
    fn other_bodies_are_compared_as_a_whole() {
        let a = response(404, &[], "none\nrequest_id: 0a");
        assert!(causes(a.clone(), response(404, &[], "none\nrequest_id: 0b"), None).is_empty());
        assert_eq!(causes(a, response(404, &[], "{}"), None), ["body: another value"]);
    }
}
