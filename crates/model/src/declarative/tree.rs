//! What the trees of both formats have in common.
use crate::node::{Entry, Position, Value};
use crate::schema::{ConfigError, quoted};
use std::collections::HashMap;

/// A problem of the text itself.
pub(super) fn syntax(at: Position, message: impl Into<String>) -> ConfigError {
    ConfigError { at, path: String::new(), message: message.into() }
}

/// The members of a complete mapping: merge keys resolved, duplicates reported.
pub(super) fn close_map<'a>(mut entries: Vec<Entry<'a>>, problems: &mut Vec<ConfigError>) -> Vec<Entry<'a>> {
    let mut first: HashMap<&str, Position> = HashMap::with_capacity(entries.len());
    for entry in &entries {
        if let Some(earlier) = first.insert(&entry.key, entry.at) {
            let message = format!(
                "the key `{}` is here twice, first at line {}; remove one",
                quoted(&entry.key),
                earlier.line
            );
            problems.push(syntax(entry.at, message));
        }
    }
    if first.contains_key("<<") {
        merge(&mut entries);
    }
    entries
}

/// Adds the members of merged mappings that are not given themselves.
fn merge(entries: &mut Vec<Entry<'_>>) {
    let Some(at) = entries.iter().position(|entry| entry.key == "<<") else { return };
    let merged = match entries.remove(at).node.value {
        Value::List(mappings) => mappings,
        value => vec![crate::node::Node::new(value, Position::default())],
    };
    for mapping in merged {
        let Value::Map(members) = mapping.value else { continue };
        for member in members {
            if !entries.iter().any(|entry| entry.key == member.key) {
                entries.push(member);
            }
        }
    }
}
