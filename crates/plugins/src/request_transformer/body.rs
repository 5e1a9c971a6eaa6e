//! Bodies: JSON objects, urlencoded and multipart forms.

use super::arguments::Arguments;
use super::operations::{Fields, Operations, Rendered, apply};
use crate::shared::members::{Members, quoted};
use crate::shared::multipart;
use std::borrow::Cow;
use weir_plugin::form;
use weir_plugin::{Exchange, Known};

/// The kind of a body, by its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Multipart,
    Urlencoded,
}

impl Form {
    /// As in Kong: by what the header contains anywhere.
    pub(super) fn of(content_type: &[u8]) -> Option<Self> {
        let lower = content_type.to_ascii_lowercase();
        let has = |name: &str| memchr::memmem::find(&lower, name.as_bytes()).is_some();
        if has("application/json") {
            Some(Form::Json)
        } else if has("multipart/form-data") {
            Some(Form::Multipart)
        } else {
            has("application/x-www-form-urlencoded").then_some(Form::Urlencoded)
        }
    }
}

/// The kind of a request's body, where it is one that can be changed.
pub(super) fn form(exchange: &Exchange) -> Option<Form> {
    Form::of(exchange.header(Known::ContentType)?)
}

/// Changes the body, if it is complete and can be parsed.
pub(super) fn transform(exchange: &mut Exchange, operations: &Operations, values: &Rendered) {
    if let Some(body) = transformed(exchange, operations, values) {
        exchange.set_body(body);
    }
}

fn transformed(exchange: &Exchange, operations: &Operations, values: &Rendered) -> Option<Vec<u8>> {
    let content_type = exchange.header(Known::ContentType)?;
    let form = Form::of(content_type)?;
    let body = exchange.body()?;
    let any = !body.is_empty();
    match form {
        Form::Json => {
            let mut members = if any { Members::read(body)? } else { Members::default() };
            apply(operations, &mut members, values, any);
            Some(members.written()).filter(|_| any || !members.is_empty())
        }
        Form::Urlencoded => {
            let text = form::text(body);
            let mut fields = Arguments::of(&text);
            apply(operations, &mut fields, values, any);
            Some(fields.written().into_bytes())
        }
        Form::Multipart => {
            let content_type = String::from_utf8_lossy(content_type);
            let mut parts = Parts::of(body, multipart::boundary(&content_type)?)?;
            apply(operations, &mut parts, values, any);
            Some(parts.written())
        }
    }
}

impl Fields for Members<'_> {
    fn holds(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != b"false")
    }

    fn remove(&mut self, name: &str) {
        Members::remove(self, name);
    }

    fn rename(&mut self, old: &str, new: &str) {
        Members::rename(self, old, new);
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        Members::set(self, name, quoted(value));
    }

    fn append(&mut self, name: &str, value: &[u8]) {
        Members::append(self, name, &quoted(value));
    }
}

/// The name of a part, its value, and all of it with the delimiter before it.
type Part<'b> = (Cow<'b, str>, Cow<'b, [u8]>, Cow<'b, [u8]>);

/// A multipart form, in pieces.
struct Parts<'b> {
    boundary: &'b str,
    preamble: &'b [u8],
    parts: Vec<Part<'b>>,
    /// The closing delimiter and what follows it.
    rest: Cow<'b, [u8]>,
}

impl<'b> Parts<'b> {
    fn of(body: &'b [u8], boundary: &'b str) -> Option<Self> {
        if body.is_empty() {
            let rest = format!("--{boundary}--\r\n").into_bytes().into();
            return Some(Self { boundary, preamble: body, parts: Vec::new(), rest });
        }
        let form = multipart::read(body, boundary)?;
        let part = |part: multipart::Part<'b>| {
            (part.name.unwrap_or_default().into(), part.value.into(), body[part.range].into())
        };
        let mut parts: Vec<Part<'b>> = form.parts.into_iter().map(part).collect();
        let rest = match form.end {
            Some(end) => body[end..].into(),
            // Close the form, so that more parts can follow.
            None => {
                parts.iter_mut().last().into_iter().for_each(|(_, _, last)| last.to_mut().extend(b"\r\n"));
                format!("--{boundary}--\r\n").into_bytes().into()
            }
        };
        Some(Self { boundary, preamble: &body[..form.start], parts, rest })
    }

    fn written(&self) -> Vec<u8> {
        let mut body = self.preamble.to_vec();
        self.parts.iter().for_each(|(_, _, whole)| body.extend_from_slice(whole));
        body.extend_from_slice(&self.rest);
        body
    }

    /// A new part. Neither its name nor its value can end it.
    fn part(&self, name: &str, value: &[u8]) -> Vec<u8> {
        let delimiter = format!("--{}", self.boundary);
        let value = memchr::memmem::find(value, delimiter.as_bytes()).map_or(value, |at| &value[..at]);
        let name = name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A");
        let head = format!("{delimiter}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        [head.as_bytes(), value, b"\r\n"].concat()
    }
}

impl Fields for Parts<'_> {
    const RENAMES_FIRST: bool = true;

    fn holds(&self, name: &str) -> bool {
        self.parts.iter().any(|(found, ..)| found == name)
    }

    fn remove(&mut self, name: &str) {
        self.parts.retain(|(found, ..)| found != name);
    }

    fn rename(&mut self, old: &str, new: &str) {
        let found = self.parts.iter().rev().find(|(name, ..)| name == old);
        let value = found.map(|(_, value, _)| value.to_vec());
        self.remove(old);
        if let Some(value) = value {
            self.set(new, &value);
        }
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        self.remove(name);
        let part = self.part(name, value);
        self.parts.push((name.to_owned().into(), value.to_vec().into(), part.into()));
    }

    /// As in Kong, nothing is appended to multipart forms.
    fn append(&mut self, _: &str, _: &[u8]) {}
}
