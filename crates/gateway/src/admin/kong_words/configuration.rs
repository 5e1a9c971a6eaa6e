//! Kong's words for rules across the fields of a plugin's configuration.
use super::{Violation, WrittenEntity};
use crate::admin::violations::REQUIRED;
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldError, Json};

/// Rules of request-termination: how our message begins, and what Kong says of the whole configuration.
const OF_REQUEST_TERMINATION: [(&str, &str); 3] = [
    ("cannot be used with `content_type` or `body`", "message cannot be used with content_type or body"),
    ("cannot be used with `content_type` and `body`", "echo cannot be used with content_type and body"),
    ("requires a `body`", "content_type requires a body"),
];

/// Rules for one field here that Kong has for the record with that field, or for the entity: what our message says, and the
/// end of the field's path.
const OF_RECORDS: [(&str, &str); 2] = [
    (" does not support statistics when route_type is ", ".logging.log_statistics"),
    ("proxy_url scheme must be http", "config.proxy_url"),
];

/// What Kong says of such a rule; none if there is no such rule, or no words for it.
pub(super) fn violations(written: &WrittenEntity<'_>, error: &FieldError) -> Option<Vec<Violation>> {
    if written.kind != EntityKind::Plugins {
        return None;
    }
    let FieldError { path, message } = error;
    let violation = |path: &str, words: String, is_entity: bool| Violation {
        path: path.to_owned(),
        message: words,
        hint: Some(message.clone()),
        is_entity,
    };
    if let Some(decider) = decider(message) {
        let words = format!("failed conditional validation given value of field 'config.{decider}'");
        let entity = Violation { hint: None, ..violation("", words, true) };
        return Some(vec![entity, violation(path, REQUIRED.to_owned(), false)]);
    }
    if let Some(record) = record(path, message) {
        return Some(vec![Violation { hint: None, ..violation(record, message.clone(), true) }]);
    }
    let (field, words) = of_whole_configuration(message).or_else(|| order_of_limits(written, message))?;
    Some(vec![violation(field, words, false)])
}

fn of_whole_configuration(message: &str) -> Option<(&'static str, String)> {
    let rule = OF_REQUEST_TERMINATION.iter().find(|(beginning, _)| message.starts_with(beginning));
    rule.map(|(_, words)| ("config", (*words).to_owned()))
}

/// The record that Kong says it of.
fn record<'p>(path: &'p str, message: &str) -> Option<&'p str> {
    let (_, field) = OF_RECORDS.iter().find(|(words, _)| message.contains(words))?;
    path.strip_suffix(field)
}

/// The field for whose value another one must be set.
fn decider(message: &str) -> Option<&str> {
    message.strip_prefix("required with `")?.split_once(':').map(|(field, _)| field)
}

/// A longer period has a lower limit than a shorter one: of which field Kong says it, and how.
fn order_of_limits(written: &WrittenEntity<'_>, message: &str) -> Option<(&'static str, String)> {
    let limits = message.strip_prefix("the limit per ")?;
    let (long, short) = limits.split_once(" cannot be lower than the limit per ")?;
    let (long, short) = (limit(long)?, limit(short)?);
    let (field, the) = match written.members.get("name").and_then(Json::as_str)? {
        "response-ratelimiting" => ("config.limits", "the"),
        _ => ("config", "The"),
    };
    Some((field, format!("{the} limit for {long} cannot be lower than the limit for {short}")))
}

/// A period and its limit, `minute (5)`, as Kong writes them: `minute(5.0)`.
fn limit(text: &str) -> Option<String> {
    let (period, value) = text.split_once(" (")?;
    let value: f64 = value.split(')').next()?.parse().ok()?;
    Some(format!("{period}({value:.1})"))
}
