//! Members of a configuration that a plugin knows. APISIX accepts others, keeps them, and ignores them.
use weir_model::ConfigError;
use weir_model::node::{Node, Value};
use weir_model::schema::{ConfigWarning, Json, Kind, RecordSchema, did_you_mean, quoted};

/// Options that every plugin has.
pub(super) const META: &str = "_meta";

/// The value without members that the record does not have.
pub(super) fn known_members(written: &Json, record: &RecordSchema) -> Json {
    let Json::Object(members) = written else { return written.clone() };
    let known = members.iter().filter_map(|(name, value)| {
        let field = record.field(name)?;
        Some((name.clone(), known_of(value, &field.kind)))
    });
    Json::Object(known.collect())
}

fn known_of(value: &Json, kind: &Kind) -> Json {
    match (kind, value) {
        (Kind::Record(inner), value) => known_members(value, inner),
        (Kind::Array(inner), Json::Array(elements)) => {
            elements.iter().map(|element| known_of(element, inner)).collect()
        }
        _ => value.clone(),
    }
}

/// Removes members that the record does not have.
pub(super) fn retain_known(node: &mut Node<'_>, record: &RecordSchema) {
    let Value::Map(entries) = &mut node.value else { return };
    entries.retain_mut(|entry| {
        let Some(field) = record.field(&entry.key) else { return false };
        retain_of(&mut entry.node, &field.kind);
        true
    });
}

fn retain_of(node: &mut Node<'_>, kind: &Kind) {
    match (kind, &mut node.value) {
        (Kind::Record(inner), _) => retain_known(node, inner),
        (Kind::Array(inner), Value::List(elements)) => {
            elements.iter_mut().for_each(|element| retain_of(element, inner));
        }
        _ => {}
    }
}

/// Warns of members that the record does not have. `path` leads to the node.
pub(super) fn unknown_members(
    node: &Node<'_>,
    record: &RecordSchema,
    path: &str,
    found: &mut Vec<ConfigWarning>,
) {
    for entry in node.entries().iter().filter(|entry| entry.key != META) {
        let path = format!("{path}.{}", quoted(&entry.key));
        if let Some(field) = record.field(&entry.key) {
            unknown_of(&entry.node, &field.kind, &path, found);
            continue;
        }
        let hint = did_you_mean(&entry.key, record.fields.iter().map(|field| field.name));
        let message = format!("without effect: the plugin has no such member{hint}");
        found.push(ConfigError { at: entry.at, path, message });
    }
}

fn unknown_of(node: &Node<'_>, kind: &Kind, path: &str, found: &mut Vec<ConfigWarning>) {
    match kind {
        Kind::Record(inner) => unknown_members(node, inner, path, found),
        Kind::Array(inner) => {
            let elements = node.elements().iter().enumerate();
            elements
                .for_each(|(index, element)| unknown_of(element, inner, &format!("{path}[{index}]"), found));
        }
        _ => {}
    }
}
