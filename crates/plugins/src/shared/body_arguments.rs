//! The arguments of a request's query and body as JSON, as Kong's `kong.request.get_query` and `get_body` give them.

use super::multipart;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use weir_plugin::form::{self, Pair};
use weir_plugin::{Exchange, Headers};

/// How many arguments or headers are read, as in Kong.
const MAX_ARGUMENTS: usize = 100;

/// Why a body has no arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoArguments {
    /// Its type has no arguments.
    Type,
    /// It is not what its type says, or not buffered.
    Body,
}

/// The arguments of the query.
pub(crate) fn query(exchange: &Exchange) -> Map<String, Json> {
    collect(exchange.query_args(MAX_ARGUMENTS))
}

/// The arguments of a form.
pub(crate) fn form(body: &[u8]) -> Map<String, Json> {
    let text = form::text(body);
    collect(form::pairs(&text).take(MAX_ARGUMENTS))
}

/// The arguments of the body, by its type: of a form, or a JSON object or array.
pub(crate) fn body(exchange: &Exchange) -> Result<Json, NoArguments> {
    let content_type = exchange.request.headers.get("Content-Type").ok_or(NoArguments::Type)?;
    let content_type = String::from_utf8_lossy(content_type);
    let lower = content_type.to_ascii_lowercase();
    let body = || match exchange.body() {
        Some(body) => Ok(body),
        None if exchange.has_body() => Err(NoArguments::Body),
        None => Ok(&[][..]),
    };
    if lower.starts_with("application/x-www-form-urlencoded") {
        return Ok(form(body()?).into());
    }
    if lower.starts_with("application/json") {
        let parsed: Json = serde_json::from_slice(body()?).map_err(|_| NoArguments::Body)?;
        let has_members = parsed.is_object() || parsed.is_array();
        return has_members.then_some(parsed).ok_or(NoArguments::Body);
    }
    if lower.starts_with("multipart/form-data") {
        let boundary = multipart::boundary(&content_type).ok_or(NoArguments::Body)?;
        let form = multipart::read(body()?, boundary).ok_or(NoArguments::Body)?;
        let named = form.parts.into_iter().filter_map(|part| Some((part.name?, text(part.value))));
        return Ok(Json::Object(named.collect()));
    }
    Err(NoArguments::Type)
}

/// The headers by their names in small letters: several values of a name are a list.
pub(crate) fn headers(headers: &Headers) -> Map<String, Json> {
    let mut collected = Map::new();
    for field in headers.iter().take(MAX_ARGUMENTS) {
        let name = String::from_utf8_lossy(field.name).to_ascii_lowercase();
        add(&mut collected, name, text(field.value));
    }
    collected
}

fn collect<'a>(pairs: impl Iterator<Item = Pair<'a>>) -> Map<String, Json> {
    let mut collected = Map::new();
    for Pair { name, value, .. } in pairs {
        let value = value.map_or(Json::Bool(true), |value| text(&value));
        add(&mut collected, String::from_utf8_lossy(&name).into_owned(), value);
    }
    collected
}

fn add(collected: &mut Map<String, Json>, name: String, value: Json) {
    match collected.get_mut(&name) {
        None => drop(collected.insert(name, value)),
        Some(Json::Array(values)) => values.push(value),
        Some(known) => *known = Json::Array(vec![known.take(), value]),
    }
}

fn text(bytes: &[u8]) -> Json {
    Json::String(match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => text.to_owned(),
        Cow::Owned(text) => text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    fn body_of(request: &str) -> Result<Json, NoArguments> {
        body(&Gateway::new(&[]).exchange(request))
    }

    #[test]
    fn arguments_of_queries_and_bodies() {
        let exchange = Gateway::new(&[]).exchange("GET /?a=1&b&a=%20&a=&c=\nX-A: 1\nX-B: 2\nx-a: 3");
        assert_eq!(Json::Object(query(&exchange)), json!({ "a": ["1", " ", ""], "b": true, "c": "" }));
        let headers = headers(&exchange.request.headers);
        assert_eq!((&headers["x-a"], &headers["x-b"]), (&json!(["1", "3"]), &json!("2")));
        let form = "POST /\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\n\na=1&a=2&b";
        assert_eq!(body_of(form), Ok(json!({ "a": ["1", "2"], "b": true })));
        let json_of = |text: &str| body_of(&format!("POST /\nContent-Type: Application/JSON\n\n{text}"));
        assert_eq!(json_of("{\"a\":[1.5,null]}"), Ok(json!({ "a": [1.5, null] })));
        assert_eq!(json_of("[1]"), Ok(json!([1])));
        assert_eq!((json_of("1"), json_of("{")), (Err(NoArguments::Body), Err(NoArguments::Body)));
        let parts = "POST /\nContent-Type: multipart/form-data; boundary=x\n\n\
                     --x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x--\r\n";
        assert_eq!(body_of(parts), Ok(json!({ "a": "1" })));
        assert_eq!(body_of("POST /\nContent-Type: text/plain\n\na"), Err(NoArguments::Type));
        assert_eq!(body_of("POST /\n\na"), Err(NoArguments::Type));
    }
}
