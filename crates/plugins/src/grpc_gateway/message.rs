//! The message for a request, of its path, its query and its body.

use super::rules::{Body, Endpoint};
use crate::shared::grpc::schema;
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Value as Json};
use weir_plugin::Exchange;

/// How many arguments of a query are read.
const MAX_ARGUMENTS: usize = 1000;

/// How many messages the name of an argument may lead through.
const MAX_DEPTH: usize = 50;

/// The message's bytes, or why there is none.
pub(super) fn message(
    endpoint: &Endpoint,
    variables: Vec<(&str, String)>,
    exchange: &Exchange,
) -> Result<Vec<u8>, String> {
    let input = endpoint.method.input();
    let mut payload = Map::new();
    for (field, text) in variables {
        set(&mut payload, &input, field, &text);
    }
    if endpoint.body != Body::Whole {
        for pair in exchange.query_args(MAX_ARGUMENTS) {
            if pair.name.iter().filter(|byte| **byte == b'.').count() > MAX_DEPTH {
                return Err(
                    "an argument names a field that is too deep: at most 50 messages within each other"
                        .to_owned(),
                );
            }
            let value = pair.value.as_deref().unwrap_or(b"true");
            let (name, value) = (String::from_utf8_lossy(&pair.name), String::from_utf8_lossy(value));
            set(&mut payload, &input, &name, &value);
        }
    }
    add_body(&mut payload, endpoint, exchange.body().unwrap_or_default())?;
    let json = Json::Object(payload).to_string();
    schema::from_json(input, json.as_bytes()).map_err(|error| format!("the message is not valid: {error}"))
}

fn add_body(payload: &mut Map<String, Json>, endpoint: &Endpoint, body: &[u8]) -> Result<(), String> {
    if endpoint.body == Body::Nothing || body.is_empty() {
        return Ok(());
    }
    let body: Json =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    match (&endpoint.body, body) {
        (Body::Field(field), body) => drop(payload.insert(field.clone(), body)),
        (_, Json::Object(members)) => {
            let input = endpoint.method.input();
            // A field may be written in two ways, of which a message may have one.
            let own = |name: String| field(&input, &name).map_or(name, |field| field.name().to_owned());
            payload.extend(members.into_iter().map(|(name, value)| (own(name), value)));
        }
        _ => return Err("body must be a table".to_owned()),
    }
    Ok(())
}

/// A field by its name in the file, or by its name in JSON.
fn field(message: &MessageDescriptor, name: &str) -> Option<FieldDescriptor> {
    message.get_field_by_name(name).or_else(|| message.get_field_by_json_name(name))
}

/// Whether a message has a field, whose name may lead into other messages: `a.b`.
pub(super) fn has_field(message: &MessageDescriptor, path: &str) -> bool {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (field(message, first).map(|field| field.kind()), rest) {
        (Some(_), None) => true,
        (Some(Kind::Message(inner)), Some(rest)) => has_field(&inner, rest),
        _ => false,
    }
}

/// Sets a field to what a text means there. One that the message does not have is left out.
fn set(payload: &mut Map<String, Json>, message: &MessageDescriptor, path: &str, text: &str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Some(field) = field(message, first) else { return };
    let member = payload.entry(field.name()).or_insert(Json::Null);
    match (field.kind(), rest) {
        (Kind::Message(inner), Some(rest)) if !field.is_list() && !field.is_map() => {
            if !member.is_object() {
                *member = Json::Object(Map::new());
            }
            if let Json::Object(members) = member {
                set(members, &inner, rest, text);
            }
        }
        (kind, None) if field.is_list() => match member {
            Json::Array(items) => items.push(value(&kind, text)),
            other => *other = Json::Array(vec![value(&kind, text)]),
        },
        (kind, None) => *member = value(&kind, text),
        (_, Some(_)) => {}
    }
}

/// What a text means as a value of a kind. What it cannot mean stays a text, which is refused later.
fn value(kind: &Kind, text: &str) -> Json {
    let as_text = || Json::from(text);
    match kind {
        Kind::Bool => Json::Bool(!matches!(text, "0" | "false")),
        Kind::Double | Kind::Float => text.parse::<f64>().map_or_else(|_| as_text(), Json::from),
        Kind::String | Kind::Bytes => as_text(),
        // A wrapper, such as google.protobuf.Int32Value, is written as what it wraps.
        Kind::Message(message) if message.full_name().starts_with("google.protobuf.") => {
            let wrapped = message.get_field_by_name("value").filter(|_| message.fields().len() == 1);
            wrapped.map_or_else(as_text, |field| value(&field.kind(), text))
        }
        Kind::Message(_) => as_text(),
        _ => text
            .parse::<i64>()
            .map(Json::from)
            .or_else(|_| text.parse::<u64>().map(Json::from))
            .unwrap_or_else(|_| as_text()),
    }
}
