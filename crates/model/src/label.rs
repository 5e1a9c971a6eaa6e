//! What messages call an entity: "plugin `cors` of service `orders`".
use crate::document::Document;
use crate::entity::{Entity, EntityKind};
use crate::node::{Node, Origin, Value};
use crate::plugin_schema::EntityKinds;
use crate::schema::quoted;

/// The kinds that others belong to, each with the field that names it.
const OWNERS: [(&str, EntityKind); 4] = [
    ("route", EntityKind::Routes),
    ("service", EntityKind::Services),
    ("consumer", EntityKind::Consumers),
    ("consumer_group", EntityKind::ConsumerGroups),
];

/// The fields that tell entities apart, the first of those that there are. The keys of credentials are secret.
const NAMES: [&str; 3] = ["name", "username", "group"];

/// The label of an entity of a document, with its id.
pub(crate) fn of_entity(entity: &Entity, document: &Document) -> String {
    let own = match name(entity) {
        Some(name) => format!("{} (id {})", called(entity.kind(), Some(&name)), entity.id()),
        None => called(entity.kind(), Some(&entity.id().to_string())),
    };
    let references = entity.references();
    let owners = OWNERS.iter().filter_map(|(field, kind)| {
        let id = references.iter().find(|reference| reference.field == *field)?.id;
        let name = document.search(*kind, id).and_then(|owner| name(&owner));
        Some(called(*kind, Some(&name.unwrap_or_else(|| id.to_string()))))
    });
    of_owners(own, owners.collect())
}

/// The label of the innermost entity on a path of a file, such as `services[0].plugins[1].config`.
pub fn on_path(root: &Node<'_>, path: &str, kinds: &EntityKinds) -> Option<String> {
    let (mut at, mut rest, mut found) = (root, path, Vec::new());
    while let Some((collection, after)) = rest.split_once('[') {
        let Some((kind, (index, after))) = kinds.find(collection).zip(after.split_once(']')) else {
            break;
        };
        at = at.get(collection)?.elements().get(index.parse::<usize>().ok()?)?;
        rest = after.trim_start_matches('.');
        found.push((kind, at));
    }
    let (kind, node) = found.pop()?;
    let around = found.iter().rev().map(|(kind, node)| called(*kind, written_name(node)));
    let named = OWNERS.iter().filter_map(|(field, kind)| {
        let owner = node.get(field)?;
        let in_mapping = || owner.entries().iter().find_map(|entry| shown(&entry.node));
        Some(called(*kind, shown(owner).or_else(in_mapping)))
    });
    Some(of_owners(called(kind, written_name(node)), around.chain(named).collect()))
}

fn of_owners(own: String, owners: Vec<String>) -> String {
    if owners.is_empty() { own } else { format!("{own} of {}", owners.join(", ")) }
}

fn called(kind: EntityKind, name: Option<&str>) -> String {
    let word = kind.as_str().trim_end_matches('s');
    name.map_or_else(|| word.to_owned(), |name| format!("{word} `{}`", quoted(name)))
}

fn name(entity: &Entity) -> Option<String> {
    let members = entity.to_value();
    NAMES.iter().find_map(|name| members.get(name)?.as_str()).map(str::to_owned)
}

fn written_name<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    NAMES.iter().chain(&["id"]).find_map(|name| shown(node.get(name)?))
}

/// A text that messages may repeat: none that came from the environment.
fn shown<'n>(node: &'n Node<'_>) -> Option<&'n str> {
    match &node.value {
        Value::Str(_, Origin::Interpolated) => None,
        _ => node.as_str(),
    }
}
