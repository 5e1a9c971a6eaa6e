//! What decK's client does with each answer.
use crate::harness::Peer;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// An Admin API.
#[derive(Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// The types of fields, by collection and dotted path.
pub(crate) type Types = BTreeMap<String, BTreeMap<String, String>>;

impl Client {
    /// Sends one request; the status, and the body if there is one.
    #[track_caller]
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Json>) -> (u16, Json) {
        let body = body.map(Json::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = Peer::connect(self.0).send(request).response();
        let json = if response.body.is_empty() { Json::Null } else { response.json() };
        (response.status, json)
    }

    /// Gets what must be there.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Json {
        let (status, body) = self.call("GET", path, None);
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    /// A whole collection, page by page.
    #[track_caller]
    pub(crate) fn list(&self, path: &str, size: usize) -> Vec<Json> {
        let (mut all, mut offset) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("{path}?size={size}{offset}"));
            let data = page["data"].as_array().unwrap_or_else(|| panic!("{path}: data is a list: {page}"));
            assert!(data.len() <= size, "{path}: a page of {}", data.len());
            all.extend(data.iter().cloned());
            match page.get("offset") {
                None | Some(Json::Null) => return all,
                Some(Json::String(next)) => offset = format!("&offset={}", encoded(next)),
                Some(other) => panic!("{path}: an offset is a string, not {other}"),
            }
        }
    }
}

fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The first field that a client in Go could not decode.
pub(crate) fn undecodable(types: &BTreeMap<String, String>, entity: &Json) -> Option<String> {
    types.iter().find_map(|(path, kind)| {
        let value = path.split('.').try_fold(entity, |value, name| value.get(name))?;
        (!decodes(value, kind)).then(|| format!("{path} is no {kind}: {value}"))
    })
}

fn decodes(value: &Json, kind: &str) -> bool {
    let each =
        |kind: &str| value.as_array().is_some_and(|items| items.iter().all(|item| decodes(item, kind)));
    if value.is_null() {
        return true;
    }
    match kind {
        "string" => value.is_string(),
        "bool" => value.is_boolean(),
        "int" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "strings" => each("string"),
        "ints" => each("int"),
        "ref" => value.get("id").is_some_and(Json::is_string),
        "addresses" => value.as_array().is_some_and(|items| {
            items.iter().all(|item| decodes(&item["ip"], "string") && decodes(&item["port"], "int"))
        }),
        "map of strings" => {
            value.as_object().is_some_and(|map| map.values().all(|item| decodes(item, "strings")))
        }
        other => panic!("no such type: {other}"),
    }
}
