//! Deterministic ids: the UUIDv5 of an entity's name, by Kong's scheme, so that ids agree with Kong's.
use crate::entity::DerivedId;
use crate::entity::EntityKind::{self, *};
use crate::node::{Node, Value};
use crate::plugin_schema::EntityKinds;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use uuid::{Uuid, uuid};

const ENTITIES: Uuid = uuid!("fd02801f-0957-4a15-a55a-c8d9606f30b5");

/// Makes ids, and remembers those of entities that have nothing but their content.
pub(super) struct Ids<'k> {
    kinds: &'k EntityKinds,
    namespaces: Vec<Uuid>,
    alike: HashMap<Uuid, u32>,
}

impl<'k> Ids<'k> {
    pub(super) fn new(kinds: &'k EntityKinds) -> Self {
        let namespace = |kind: EntityKind| Uuid::new_v5(&ENTITIES, kind.as_str().as_bytes());
        Ids { kinds, namespaces: kinds.iter().map(namespace).collect(), alike: HashMap::new() }
    }

    /// The id of an entity that gives none. `parent`: the field that names the parent, and the parent's id.
    pub(super) fn derive(&mut self, kind: EntityKind, node: &Node<'_>, parent: Option<(&str, Uuid)>) -> Uuid {
        let namespace = self.namespaces[self.kinds.index(kind)];
        match id_name(kind, node, parent) {
            Some(name) => Uuid::new_v5(&namespace, name.as_bytes()),
            None => self.of_content(namespace, node, parent),
        }
    }

    /// Entities that nothing names: their content, and how many alike came before.
    fn of_content(&mut self, namespace: Uuid, node: &Node<'_>, parent: Option<(&str, Uuid)>) -> Uuid {
        let mut content = parent.map(|(_, id)| id.to_string()).unwrap_or_default();
        write_content(node, self.kinds, &mut content);
        let first = Uuid::new_v5(&namespace, content.as_bytes());
        let alike = self.alike.entry(first).or_default();
        *alike += 1;
        match *alike {
            1 => first,
            count => Uuid::new_v5(&first, &count.to_be_bytes()),
        }
    }
}

/// What Kong derives the id from, where the entity has it.
fn id_name<'n>(kind: EntityKind, node: &'n Node<'_>, parent: Option<(&str, Uuid)>) -> Option<Cow<'n, str>> {
    let text = |field: &str| node.get(field).and_then(Node::as_str);
    let plain = |field: &str| text(field).map(Cow::Borrowed);
    match kind {
        Services | Routes | ConsumerGroups | Upstreams | Snis | KeySets => plain("name"),
        Vaults => plain("prefix"),
        // Kong prefers the key of the cache to the name.
        Keys => {
            let set = reference("set", node, parent);
            text("kid").map(|kid| cache_key(kind, &[kid.into(), set]))
        }
        Consumers => plain("username"),
        ApisixObjects => plain("key"),
        Custom(of) => match of.schema().derived_id {
            DerivedId::Content => None,
            DerivedId::Field(field) => plain(field),
            DerivedId::CacheKey(fields) => {
                let part = |field: &&str| match of.schema().references().any(|(name, _)| name == *field) {
                    true => Some(reference(field, node, parent)),
                    false => plain(field),
                };
                Some(cache_key(kind, &fields.iter().map(part).collect::<Option<Vec<_>>>()?))
            }
        },
        ConsumerGroupConsumers => {
            let parts = ["consumer_group", "consumer"].map(|field| reference(field, node, parent));
            Some(cache_key(kind, &parts))
        }
        Targets => text("target")
            .map(|target| cache_key(kind, &[reference("upstream", node, parent), target.into()])),
        Plugins => {
            let scope = ["route", "service", "consumer", "consumer_group"];
            let [route, service, consumer, group] = scope.map(|field| reference(field, node, parent));
            text("name").map(|name| cache_key(kind, &[name.into(), route, service, consumer, group]))
        }
        Certificates | CaCertificates => None,
    }
}

/// `kind:workspace:part:part…`
fn cache_key(kind: EntityKind, parts: &[Cow<'_, str>]) -> Cow<'static, str> {
    let mut key = format!("{}:*", kind.as_str());
    for part in parts {
        key.push(':');
        key.push_str(part);
    }
    key.into()
}

/// A reference as Kong sees it here: as written, or the id of the parent.
fn reference<'n>(field: &str, node: &'n Node<'_>, parent: Option<(&str, Uuid)>) -> Cow<'n, str> {
    if let Some((_, id)) = parent.filter(|(name, _)| *name == field) {
        return id.to_string().into();
    }
    let written = node.get(field);
    let named = written.and_then(|node| ["id", "name", "username"].iter().find_map(|key| node.get(key)));
    named.or(written).and_then(Node::as_str).unwrap_or_default().into()
}

fn write_content(node: &Node<'_>, kinds: &EntityKinds, content: &mut String) {
    let _ = match &node.value {
        Value::Null => content.write_char('~'),
        Value::Bool(value) => write!(content, "{value}"),
        Value::Int(value) => write!(content, "{value}"),
        Value::Float(value) => write!(content, "{value}"),
        Value::Str(text, _) => write!(content, "{text:?}"),
        Value::Id(id) => write!(content, "{id}"),
        Value::List(elements) => {
            content.push('[');
            elements.iter().for_each(|element| write_content(element, kinds, content));
            content.write_char(']')
        }
        Value::Map(entries) => {
            content.push('{');
            for entry in entries.iter().filter(|entry| kinds.find(&entry.key).is_none()) {
                let _ = write!(content, "{:?}:", entry.key);
                write_content(&entry.node, kinds, content);
            }
            content.write_char('}')
        }
    };
}
