//! The parameters of a request: those of its query, and those of its body in their place.

use crate::shared::members::Members;
use crate::shared::multipart;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use weir_plugin::form::{self, Pair};
use weir_plugin::{Exchange, Known, Method};

/// Parameters by name. One that is no text, or is there more than once, has no value.
pub(super) struct Parameters(HashMap<String, Option<String>>);

impl Parameters {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let mut all = of_pairs(form::pairs(exchange.query().unwrap_or_default()));
        if matches!(exchange.request.method, Method::Post | Method::Put | Method::Patch) {
            all.extend(of_body(exchange));
        }
        Self(all)
    }

    /// Its text, if it is one.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_deref()
    }

    /// Whether it is there, as a text or not.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

type Values = HashMap<String, Option<String>>;

fn of_pairs<'a>(pairs: impl Iterator<Item = Pair<'a>>) -> Values {
    collect(pairs.map(|pair| {
        let value = pair.value.map(|value| String::from_utf8_lossy(&value).into_owned());
        (String::from_utf8_lossy(&pair.name).into_owned(), value)
    }))
}

fn collect(pairs: impl Iterator<Item = (String, Option<String>)>) -> Values {
    let mut values = Values::new();
    for (name, value) in pairs {
        values.entry(name).and_modify(|value| *value = None).or_insert(value);
    }
    values
}

fn content_type(exchange: &Exchange) -> Cow<'_, str> {
    String::from_utf8_lossy(exchange.header(Known::ContentType).unwrap_or_default())
}

fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn of_body(exchange: &Exchange) -> Values {
    let (content_type, body) = (content_type(exchange), exchange.body().unwrap_or_default());
    match &*media_type(&content_type) {
        "application/x-www-form-urlencoded" => of_pairs(form::pairs(&form::text(body))),
        "application/json" => match serde_json::from_slice(body) {
            Ok(Value::Object(members)) => {
                collect(members.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
                    let text = value.as_str().map(str::to_owned);
                    (name, text)
                }))
            }
            _ => Values::new(),
        },
        "multipart/form-data" => {
            let form = multipart::boundary(&content_type).and_then(|it| multipart::read(body, it));
            let parts = form.map_or_else(Vec::new, |form| form.parts);
            let fields = parts.into_iter().filter(|part| !part.is_file);
            collect(fields.filter_map(|part| {
                Some((part.name?, Some(String::from_utf8_lossy(part.value).into_owned())))
            }))
        }
        _ => Values::new(),
    }
}

/// Removes a parameter from the query, and from a body that is a form or JSON.
pub(super) fn hide(exchange: &mut Exchange, name: &str) {
    let holds = |text: &str| form::pairs(text).any(|pair| *pair.name == *name.as_bytes());
    let query = exchange.query().filter(|query| holds(query)).map(|query| form::without(query, name));
    if let Some(query) = query {
        exchange.set_query(query);
    }
    let body = exchange.body().unwrap_or_default();
    let shorter = match &*media_type(&content_type(exchange)) {
        "application/x-www-form-urlencoded" => {
            let text = form::text(body);
            holds(&text).then(|| form::without(&text, name).into_bytes())
        }
        "application/json" => Members::read(body).filter(|it| it.get(name).is_some()).map(|mut members| {
            members.remove(name);
            members.written()
        }),
        _ => None,
    };
    if let Some(body) = shorter {
        exchange.set_body(body);
    }
}
