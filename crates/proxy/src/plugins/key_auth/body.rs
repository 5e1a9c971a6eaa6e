//! Keys in bodies: urlencoded, multipart and JSON.

use super::super::form;
use super::{Found, holds, in_form};
use crate::plugin::{Exchange, Known};
use serde_json::Value;

enum Body<'a> {
    Form(&'a str),
    Json(Value),
    Multipart(Vec<Part<'a>>),
}

impl<'a> Body<'a> {
    fn of(exchange: &'a Exchange) -> Option<Self> {
        let content_type = std::str::from_utf8(exchange.header(Known::ContentType)?).ok()?;
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let body = exchange.body()?;
        match media_type.as_str() {
            "application/x-www-form-urlencoded" => std::str::from_utf8(body).ok().map(Body::Form),
            "application/json" => serde_json::from_slice(body).ok().map(Body::Json),
            "multipart/form-data" => Some(Body::Multipart(parts(body, boundary(content_type)?))),
            _ => None,
        }
    }
}

/// What the body has under a name.
pub(super) fn find<'a>(exchange: &'a Exchange, name: &'a str) -> Found<'a> {
    match Body::of(exchange) {
        None => Found::Nothing,
        Some(Body::Form(text)) => in_form(text, name),
        Some(Body::Multipart(parts)) => Found::of(
            parts.into_iter().filter(|part| part.name == Some(name)).map(|part| Some(part.value.into())),
        ),
        Some(Body::Json(value)) => match value.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => Found::Nothing,
            Some(Value::String(key)) => Found::Key(key.clone().into_bytes().into()),
            Some(Value::Array(_) | Value::Object(_)) => Found::Several,
            Some(Value::Bool(true) | Value::Number(_)) => Found::Other,
        },
    }
}

/// The body without what it has under a name; none if there is nothing.
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
            for part in parts.iter().filter(|part| part.name == Some(name)) {
                kept.extend_from_slice(&body[end..part.range.start]);
                end = part.range.end;
            }
            kept.extend_from_slice(&body[end..]);
            (end > 0).then_some(kept)
        }
    }
}

/// One part of a multipart body.
struct Part<'a> {
    name: Option<&'a str>,
    value: &'a [u8],
    /// The part with the delimiter before it.
    range: std::ops::Range<usize>,
}

fn boundary(content_type: &str) -> Option<&str> {
    let parameter = |part: &str| {
        part.trim().split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case("boundary"))
    };
    let (_, value) = content_type.split(';').find(|part| parameter(part))?.split_once('=')?;
    Some(value.trim().trim_matches('"')).filter(|boundary| !boundary.is_empty())
}

/// Parts as RFC 2046 delimits them; what does not end in a delimiter is no part.
fn parts<'a>(body: &'a [u8], boundary: &str) -> Vec<Part<'a>> {
    let delimiter = [b"--", boundary.as_bytes()].concat();
    let starts: Vec<_> = (0..body.len().saturating_sub(delimiter.len() - 1))
        .filter(|at| body[*at..].starts_with(&delimiter) && (*at == 0 || body[..*at].ends_with(b"\r\n")))
        .collect();
    let part = |pair: &[usize]| {
        let range = pair[0]..pair[1];
        let text =
            body.get(pair[0] + delimiter.len()..pair[1])?.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")?;
        let end = text.windows(4).position(|window| window == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&text[..end]).ok()?;
        Some(Part { name: field_name(head), value: &text[end + 4..], range })
    };
    starts.windows(2).filter_map(part).collect()
}

/// The name in `Content-Disposition: form-data; name="…"`. A file is no field.
fn field_name(head: &str) -> Option<&str> {
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let parameter = |name: &str| {
        let mut pairs = disposition.split(';').skip(1).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim_matches('"'))
    };
    if parameter("filename").is_some() { None } else { parameter("name") }
}
