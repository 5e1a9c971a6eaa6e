//! The request that was received, as JSON.

use crate::shared::multipart;
use serde_json::{Map, json};
use std::borrow::Cow;
use weir_plugin::form;
use weir_plugin::{BuildContext, Exchange, Json, Known, without_port};

/// What a node reports about itself.
pub(super) struct Node {
    id: String,
    hostname: String,
}

impl Node {
    pub(super) fn new(build: &BuildContext<'_>) -> Self {
        Self { id: build.node_id().to_string(), hostname: build.hostname() }
    }

    fn to_json(&self) -> Json {
        json!({ "node_id": self.id, "worker_pid": std::process::id(), "hostname": self.hostname })
    }
}

/// The response body. As in Kong, members without a value are left out.
pub(super) fn body(exchange: &Exchange, message: Option<&str>, node: &Node) -> String {
    let route = exchange.route();
    let service = route.and_then(|route| route.service.as_ref());
    let entity = |text: &str| serde_json::from_str::<Json>(text).ok();
    let echo = json!({
        "message": message,
        "kong": node.to_json(),
        "request": present(request(exchange)),
        "matched_route": route.and_then(|route| entity(route.json())),
        "matched_service": service.and_then(|service| entity(service.json())),
    });
    present(echo).to_string()
}

fn request(exchange: &Exchange) -> Json {
    let headers = exchange
        .request
        .headers
        .iter()
        .map(|field| (lossy(field.name).to_ascii_lowercase(), Some(Cow::Borrowed(field.value))));
    json!({
        "scheme": exchange.scheme(),
        "host": exchange.header(Known::Host).map(host),
        "port": exchange.local().port(),
        "method": exchange.request.method_str(),
        "path": exchange.path(),
        "query": arguments(exchange.query().unwrap_or_default()),
        "headers": gathered(headers),
        "body": parsed(exchange),
        "raw_body": exchange.body().map(lossy),
        "uri_captures": uri_captures(exchange),
    })
}

/// What the groups of the route's path captured: those with a name by their name, and all of them in order.
fn uri_captures(exchange: &Exchange) -> Json {
    let captures = exchange.uri_captures();
    // The whole match comes first.
    let groups = || captures.into_iter().flat_map(|captures| captures.iter().skip(1));
    let named: Map<_, _> =
        groups().filter_map(|(name, text)| Some((name?.to_owned(), text?.into()))).collect();
    let unnamed: Vec<_> = groups().map(|(_, text)| text).collect();
    json!({ "named": named, "unnamed": unnamed })
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The same without members that are null.
fn present(mut json: Json) -> Json {
    if let Json::Object(members) = &mut json {
        members.retain(|_, value| !value.is_null());
    }
    json
}

/// The host of a Host header, without its port.
fn host(value: &[u8]) -> String {
    without_port(&lossy(value)).to_ascii_lowercase()
}

/// The body, parsed by its type: a form's fields by name, or JSON.
fn parsed(exchange: &Exchange) -> Option<Json> {
    let (body, content_type) = (exchange.body()?, lossy(exchange.header(Known::ContentType)?));
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match &*media_type {
        "application/x-www-form-urlencoded" => Some(arguments(&form::text(body))),
        "application/json" => serde_json::from_slice(body).ok(),
        "multipart/form-data" => {
            let parts = multipart::read(body, multipart::boundary(&content_type)?)?.parts;
            Some(gathered(parts.into_iter().filter_map(|part| Some((part.name?, Some(part.value.into()))))))
        }
        _ => None,
    }
}

fn arguments(text: &str) -> Json {
    gathered(form::pairs(text).map(|pair| (lossy(&pair.name).into_owned(), pair.value)))
}

/// Values by name in Kong's form: true for no value, a list for several.
fn gathered<'v>(fields: impl Iterator<Item = (String, Option<Cow<'v, [u8]>>)>) -> Json {
    let mut gathered = Map::new();
    for (name, value) in fields {
        let value = value.map_or(Json::Bool(true), |value| Json::String(lossy(&value).into_owned()));
        match gathered.get_mut(&name) {
            None => drop(gathered.insert(name, value)),
            Some(Json::Array(values)) => values.push(value),
            Some(one) => *one = Json::Array(vec![one.take(), value]),
        }
    }
    Json::Object(gathered)
}
