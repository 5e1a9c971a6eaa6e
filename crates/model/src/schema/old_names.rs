//! Fields under the names that they had once.
use super::RecordSchema;
use crate::node::{Entry, Node, Value};

/// The same record with each old name replaced by the path it has now; `None` when there is no old name. A value
/// under the new path wins, and null says nothing.
pub(super) fn replaced<'a>(schema: &RecordSchema, node: &Node<'a>) -> Option<Node<'a>> {
    let new_path = |key: &str| schema.old_names.iter().find(|(old, _)| *old == key).map(|(_, path)| *path);
    if !node.entries().iter().any(|entry| new_path(&entry.key).is_some()) {
        return None;
    }
    let (old, mut entries): (Vec<_>, Vec<_>) =
        node.entries().iter().cloned().partition(|entry| new_path(&entry.key).is_some());
    for entry in old.into_iter().filter(|entry| entry.node.value != Value::Null) {
        if let Some(path) = new_path(&entry.key) {
            place(path, entry, &mut entries);
        }
    }
    Some(Node::new(Value::Map(entries), node.at))
}

/// Puts an entry at a path below these members.
fn place<'a>(path: &'static str, entry: Entry<'a>, members: &mut Vec<Entry<'a>>) {
    let (name, below) = path.split_once('.').map_or((path, None), |(name, below)| (name, Some(below)));
    let found = members.iter().position(|member| member.key == name && member.node.value != Value::Null);
    match (below, found) {
        (None, None) => {
            members.retain(|member| member.key != name);
            members.push(Entry { key: name.into(), ..entry });
        }
        (None, Some(_)) => {}
        (Some(below), Some(found)) => {
            if let Value::Map(inner) = &mut members[found].node.value {
                place(below, entry, inner);
            }
        }
        (Some(below), None) => {
            let (at, mut inner) = (entry.at, Vec::new());
            place(below, entry, &mut inner);
            members.retain(|member| member.key != name);
            members.push(Entry { key: name.into(), at, node: Node::new(Value::Map(inner), at) });
        }
    }
}
