//! What to write in the place of a value that is of another type.
use super::reader::shown;
use super::{FieldSchema, RecordContext, RecordSchema, did_you_mean, quoted};
use crate::node::{Node, Origin, Value};
use crate::secret_reference::{NOT_RESOLVED, is_reference};

/// The text that stands there, if messages may repeat it.
fn text<'n>(node: &'n Node<'_>, field: &FieldSchema) -> Option<&'n str> {
    match &node.value {
        Value::Str(text, Origin::Plain | Origin::Quoted) if !field.is_confidential() => Some(text),
        _ => None,
    }
}

/// What is said of a reference to a secret where no text is expected.
fn of_reference(text: &str) -> Option<String> {
    is_reference(text).then(|| format!("; {NOT_RESOLVED}"))
}

/// Where a number is expected.
pub(super) fn number(node: &Node<'_>, field: &FieldSchema) -> String {
    let Some(text) = text(node, field) else { return String::new() };
    if let Some(hint) = of_reference(text) {
        return hint;
    }
    if let Some(hint) = field.hint.and_then(|hint| hint(text)) {
        return format!("; {hint}");
    }
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return format!("; write {} without quotes", quoted(text));
    }
    let has_unit = text.starts_with(|first: char| first.is_ascii_digit());
    match (has_unit, field.doc.trim_end_matches('.')) {
        (true, "") => "; write the number alone, without a unit".to_owned(),
        (true, doc) => format!("; write the number alone, without a unit ({doc})"),
        (false, _) => String::new(),
    }
}

/// Where true or false is expected.
pub(super) fn boolean(node: &Node<'_>, field: &FieldSchema) -> String {
    let text = text(node, field);
    if let Some(hint) = text.and_then(of_reference) {
        return hint;
    }
    match (&node.value, text.map(str::to_ascii_lowercase).as_deref()) {
        (Value::Int(1), _) | (_, Some("enabled")) => "; write true".to_owned(),
        (Value::Int(0), _) | (_, Some("disabled")) => "; write false".to_owned(),
        (_, Some("true" | "yes" | "on" | "1")) => "; write true without quotes".to_owned(),
        (_, Some("false" | "no" | "off" | "0")) => "; write false without quotes".to_owned(),
        (_, Some(other)) => did_you_mean(other, ["true", "false"]),
        _ => String::new(),
    }
}

/// Where a text is expected.
pub(super) fn string(node: &Node<'_>, field: &FieldSchema) -> String {
    match &node.value {
        Value::Int(_) | Value::Float(_) | Value::Bool(_) => "; put it in quotes".to_owned(),
        Value::List(items) => match items.as_slice() {
            [one] if one.as_str().is_some() && !field.is_confidential() => {
                format!("; write {} alone", shown(one, field))
            }
            _ => "; write one value".to_owned(),
        },
        // As YAML reads `- X-Name: value`.
        Value::Map(entries) if entries.len() == 1 && !field.is_confidential() => {
            "; put the whole in quotes".to_owned()
        }
        _ => String::new(),
    }
}

/// Where a list is expected.
pub(super) fn list(node: &Node<'_>, field: &FieldSchema) -> String {
    match &node.value {
        Value::Map(_) => "; start each entry with `- `".to_owned(),
        Value::Int(number) if !field.is_confidential() => format!("; write [{number}]"),
        _ => match text(node, field).filter(|text| text.chars().count() <= 60) {
            Some(text) if is_reference(text) => format!("; {NOT_RESOLVED}"),
            Some(text) => {
                let items = text.split(',').map(|item| format!("{:?}", item.trim()));
                format!("; write [{}]", items.collect::<Vec<_>>().join(", "))
            }
            None => String::new(),
        },
    }
}

/// Where names with values are expected.
pub(super) fn mapping(node: &Node<'_>) -> &'static str {
    match node.value {
        Value::List(_) => "; write `name: value` on each line, without `- `",
        _ => "; write `name: value` on lines of its own below it",
    }
}

/// Fields that hardly anybody writes.
const SELDOM: [&str; 3] = ["id", "created_at", "updated_at"];

/// Where the fields of a record are expected.
pub(super) fn record(node: &Node<'_>, schema: &RecordSchema, around: &RecordContext<'_>) -> String {
    let is_given = |name: &str| around.given.iter().any(|(given, _)| *given == name);
    let is_shown = |field: &&FieldSchema| !SELDOM.contains(&field.name) && !is_given(field.name);
    let mut fields: Vec<_> = schema.fields.iter().filter(is_shown).collect();
    fields.sort_by_key(|field| !field.required || field.default.is_some());
    let more = if fields.len() > 5 { ", …" } else { "" };
    let names = fields.iter().take(5).map(|field| field.name).collect::<Vec<_>>().join(", ");
    match node.value {
        Value::List(_) => format!("; leave out the `- ` before its fields: {names}{more}"),
        _ => format!("; its fields are: {names}{more}"),
    }
}
