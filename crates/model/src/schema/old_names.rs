//! Fields under the names that they had once.
use super::{Json, JsonMap, RecordSchema, json};
use crate::node::{Entry, Node, Value};

/// The same record with each old name replaced by the path it has now; `None` when there is no old name. Null says
/// nothing, under either. An old name with another value than the new path is reported to `differs` and has no effect.
pub(super) fn replaced<'a>(
    schema: &RecordSchema,
    node: &Node<'a>,
    mut differs: impl FnMut(&Entry<'a>, &'static str),
) -> Option<Node<'a>> {
    let new_path = |key: &str| schema.old_names.iter().find(|(old, _)| *old == key).map(|(_, path)| *path);
    if !node.entries().iter().any(|entry| new_path(&entry.key).is_some()) {
        return None;
    }
    let (old, mut entries): (Vec<_>, Vec<_>) =
        node.entries().iter().cloned().partition(|entry| new_path(&entry.key).is_some());
    for entry in old.into_iter().filter(|entry| entry.node.value != Value::Null) {
        if let Some(path) = new_path(&entry.key)
            && let Some(entry) = place(path, entry, &mut entries)
        {
            differs(&entry, path);
        }
    }
    Some(Node::new(Value::Map(entries), node.at))
}

/// Puts an entry at a path below these members; gives it back if something else is there.
fn place<'a>(path: &'static str, entry: Entry<'a>, members: &mut Vec<Entry<'a>>) -> Option<Entry<'a>> {
    let (name, below) = path.split_once('.').map_or((path, None), |(name, below)| (name, Some(below)));
    let found = members.iter().position(|member| member.key == name && member.node.value != Value::Null);
    match (below, found) {
        (None, None) => {
            members.retain(|member| member.key != name);
            members.push(Entry { key: name.into(), ..entry });
            None
        }
        (None, Some(found)) => (!is_same(&members[found].node.value, &entry.node.value)).then_some(entry),
        (Some(below), Some(found)) => match &mut members[found].node.value {
            Value::Map(inner) => place(below, entry, inner),
            // A value that is not a record is reported when it is read.
            _ => None,
        },
        (Some(below), None) => {
            let (at, mut inner) = (entry.at, Vec::new());
            place(below, entry, &mut inner);
            members.retain(|member| member.key != name);
            members.push(Entry { key: name.into(), at, node: Node::new(Value::Map(inner), at) });
            None
        }
    }
}

/// Whether two values mean the same, however they are written.
fn is_same(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Str(one, _), Value::Str(other, _)) => one == other,
        (Value::Int(whole), Value::Float(number)) | (Value::Float(number), Value::Int(whole)) => {
            *whole as f64 == *number
        }
        (one, other) => one == other,
    }
}

/// Adds the values under their old names too, as Kong does: decK compares what it was given, name by name.
pub fn add(schema: &RecordSchema, members: &mut JsonMap) {
    for (old, path) in schema.old_names {
        let mut steps = path.split('.');
        let first = steps.next().and_then(|name| members.get(name));
        let value = steps.fold(first, |value, name| value?.get(name)).cloned();
        members.insert((*old).to_owned(), value.unwrap_or_default());
    }
}

/// The old names as Kong's schemas have them, by which decK knows that two names are of one field.
pub(super) fn described(schema: &RecordSchema) -> Vec<Json> {
    let described = |(old, path): &(&str, &str)| {
        let steps: Vec<_> = path.split('.').collect();
        let mut field = schema.field_at(path).map_or_else(JsonMap::new, json::type_of);
        field.insert("translate_backwards".to_owned(), steps.clone().into());
        let replaced_with = serde_json::json!({ "replaced_with": [{ "path": steps }] });
        field.insert("deprecation".to_owned(), replaced_with);
        serde_json::json!({ *old: field })
    };
    schema.old_names.iter().map(described).collect()
}
