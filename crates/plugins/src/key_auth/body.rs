//! Keys in bodies: urlencoded, multipart and JSON.

use super::{Found, holds, in_form};
use crate::shared::multipart::{self, Part};
use serde_json::Value;
use weir_plugin::form;
use weir_plugin::{Exchange, Known};

enum Body<'a> {
    Form(&'a str),
    Json(Value),
    Multipart(Vec<Part<'a>>),
}

impl<'a> Body<'a> {
    fn of(exchange: &'a Exchange) -> Option<Self> {
        let content_type = String::from_utf8_lossy(exchange.header(Known::ContentType)?);
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let body = exchange.body()?;
        match media_type.as_str() {
            "application/x-www-form-urlencoded" => std::str::from_utf8(body).ok().map(Body::Form),
            "application/json" => serde_json::from_slice(body).ok().map(Body::Json),
            "multipart/form-data" => {
                let boundary = multipart::boundary(&content_type)?;
                Some(Body::Multipart(
                    multipart::read(body, boundary).map_or_else(Vec::new, |form| form.parts),
                ))
            }
            _ => None,
        }
    }
}

/// The values of a name in the body.
pub(super) fn find<'a>(exchange: &'a Exchange, name: &'a str) -> Found<'a> {
    match Body::of(exchange) {
        None => Found::Nothing,
        Some(Body::Form(text)) => in_form(text, name),
        Some(Body::Multipart(parts)) => Found::of(
            parts.into_iter().filter(|part| is_field(part, name)).map(|part| Some(part.value.into())),
        ),
        Some(Body::Json(value)) => match value.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => Found::Nothing,
            Some(Value::String(key)) => Found::Key(key.clone().into_bytes().into()),
            Some(Value::Array(_) | Value::Object(_)) => Found::Several,
            Some(Value::Bool(true) | Value::Number(_)) => Found::Other,
        },
    }
}

/// The body without the values of a name; none if there are none.
pub(super) fn without(exchange: &Exchange, name: &str) -> Option<Vec<u8>> {
    match Body::of(exchange)? {
        Body::Form(text) => holds(text, name).then(|| form::without(text, name).into_bytes()),
        Body::Json(mut value) => {
            value.as_object_mut()?.remove(name)?;
            serde_json::to_vec(&value).ok()
        }
        Body::Multipart(parts) => {
            let body = exchange.body()?;
            let (mut kept, mut end) = (Vec::with_capacity(body.len()), 0);
            for part in parts.iter().filter(|part| is_field(part, name)) {
                kept.extend_from_slice(&body[end..part.range.start]);
                end = part.range.end;
            }
            kept.extend_from_slice(&body[end..]);
            (end > 0).then_some(kept)
        }
    }
}

/// An uploaded file is not a field.
fn is_field(part: &Part<'_>, name: &str) -> bool {
    part.name.as_deref() == Some(name) && !part.is_file
}
